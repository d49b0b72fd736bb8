"""Checks that `python3 dev.py lint` runs, beside those of ruff, mypy, import-linter and tsc."""
