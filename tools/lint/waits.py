"""Tests wait for what they need, not for a time: `python -m tools.lint.waits` names each other place.

A pause stands in a loop that ends with a condition, or its line, or the one before, has a comment that says why it must
be (a server that is slow on purpose). JavaScript is looked at in the strings that it is written in.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["complaints"]

ROOT = Path(__file__).parents[2]
FOLDERS = "e2e", "tests"
PAUSE = re.compile(
    r"\bwait_for_timeout\(|\btime\.sleep\(|\basyncio\.sleep\((?!0\))"
    r"|\bsetTimeout\((?:\(\) => )?(?!reject|process)[\w.]+(?:\([^()]*(?:\([^()]*\))?\))?, *(?!0\b)[\w.]+\)"
)
"""Python's, and JavaScript's but for limits, which reject a promise or end the process."""

LOOP = re.compile(r"^\s*(?:async )?(?:for|while)\b")
COMMENT = re.compile(r"(?:#|(?<!:)//) ")


def complaints(path: Path) -> Iterator[str]:
    """A line for each pause of a file that neither polls nor says why it is."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if not PAUSE.search(line) or COMMENT.search(line) or (number and COMMENT.search(lines[number - 1])):
            continue
        if not _is_in_loop(lines, number):
            yield f"{path}:{number + 1}: waits for a time; wait for a condition, or say why in a comment"


def _is_in_loop(lines: list[str], number: int) -> bool:
    """Whether a line is of a loop, or in one: lines that are indented less and less lead out of it."""
    indent = len(lines[number]) - len(lines[number].lstrip())
    if LOOP.search(lines[number]):
        return True
    for line in reversed(lines[:number]):
        own = len(line) - len(line.lstrip())
        if not line.strip() or own >= indent:
            continue
        if LOOP.search(line):
            return True
        indent = own
        if re.match(r"\s*(?:async )?def |\s*class ", line):
            return False
    return False


def main() -> int:
    """Print what waits for a time; how many places do."""
    found = [
        complaint
        for folder in FOLDERS
        for kind in ("*.py", "*.js", "*.html")
        for path in sorted((ROOT / folder).rglob(kind))
        if path.name != "test_waits.py"  # its pauses are examples
        for complaint in complaints(path)
    ]
    print(*found, sep="\n")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
