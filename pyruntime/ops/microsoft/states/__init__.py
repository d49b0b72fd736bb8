"""Recurrent operators of com.microsoft with states that persist between tokens."""
