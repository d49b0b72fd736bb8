"""Draw docstrings to read: `python -m tools.lint.docstrings 2026-11-30 [COUNT]` prints fifty, the same for each date.

A docstring that an engineer of the field does not understand without the code is rewritten, with its siblings.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["docstrings"]

ROOT = Path(__file__).parents[2]
FOLDERS = ("pyruntime", "tools", "web")

_COMMENT = re.compile(r"^[ \t]*/\*\*(.*?)\*/", re.S | re.M)


def docstrings() -> Iterator[tuple[str, str]]:
    """(place, text) of the docstrings of Python and of the JSDoc comments with prose, in the order of files."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            place = path.relative_to(ROOT).as_posix()
            if path.suffix == ".py":
                yield from _of_python(place, path.read_text("utf-8"))
            elif path.suffix in (".js", ".ts"):
                yield from _of_javascript(place, path.read_text("utf-8"))


def _of_python(place: str, text: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found:
                yield f"{place}:{getattr(node, 'name', 'module')}", found


def _of_javascript(place: str, text: str) -> Iterator[tuple[str, str]]:
    for found in _COMMENT.finditer(text):
        comment = re.sub(r"^[ \t]*\* ?", "", found[1], flags=re.M).strip()
        prose = re.sub(r"@\w+ *(\{[^}]*\}+)?(\s*\[?[\w.]+\]?)?", "", comment).strip()
        if len(prose.split()) > 3:
            yield f"{place}:{text.count(chr(10), 0, found.start()) + 1}", comment


def main(argv: Sequence[str]) -> int:
    """Print the docstrings that the date in `argv` draws."""
    count = int(argv[1]) if len(argv) > 1 else 50
    for place, text in random.Random(argv[0]).sample(list(docstrings()), count):
        print(f"{place}\n    {text.replace(chr(10), chr(10) + '    ')}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
