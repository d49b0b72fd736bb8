"""Explanations, memory plans and profiles of sessions."""
