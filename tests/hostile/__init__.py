"""Fuzzing with atheris: `python -m tests.hostile reader --seconds 60`; `python3 dev.py fuzz` runs every target."""
