"""Operators that move elements without computing with them."""
