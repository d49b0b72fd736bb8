"""Broad exception handlers: `python -m tools.lint.boundaries` lists those that are not at a boundary.

A handler of Exception or BaseException cleans up and ends with a bare `raise`; or it is at a boundary (a request, a
call of the host, a model of a survey), reports the exception, and says so: `# boundary: ...` on its line.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["complaints"]

ROOT = Path(__file__).parents[2]
FOLDERS = "pyruntime", "tools"
BROAD = {"Exception", "BaseException"}
MARK = "# boundary: "


def complaints(path: Path) -> Iterator[str]:
    """Yield a line for each broad handler in a file that is not at a boundary."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ExceptHandler(type=kind, body=[*_, last]) if _is_broad(kind):
                cleans_up = isinstance(last, ast.Raise) and last.exc is None
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=kinds) if any(
                map(_is_broad, kinds)
            ):
                cleans_up = False
            case _:
                continue
        if not cleans_up and not lines[node.lineno - 1].partition(MARK)[2].strip():
            yield f"{path}:{node.lineno}: catches every exception; name the classes, or end the line with `{MARK}why`"


def _is_broad(kind: ast.expr | None) -> bool:
    """Return whether `except kind` catches everything."""
    if isinstance(kind, ast.Tuple):
        return any(map(_is_broad, kind.elts))
    return kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD)


if __name__ == "__main__":
    found = [text for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for text in complaints(path)]
    sys.exit("\n".join(found) or 0)
