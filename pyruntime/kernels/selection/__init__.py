"""Kernel candidates, their estimated costs, and what was measured."""
