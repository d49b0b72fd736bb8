"""Files that are generated and kept in the repository."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["write_or_check"]

ROOT = Path(__file__).parents[1]


def write_or_check(target: Path, text: str, argv: Sequence[str]) -> int:
    """Write `text` to a file; with --check in `argv`, only say if that would change it. Return the exit status."""
    if "--check" not in argv:
        target.write_text(text)
        return 0
    if target.is_file() and target.read_text() == text:
        return 0
    print(f"{target.relative_to(ROOT)} is out of date: run `python3 dev.py lint --fix`.")
    return 1
