"""Checks that `python3 dev.py lint` runs, in addition to those of ruff, mypy, import-linter and tsc."""
