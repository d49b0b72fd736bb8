"""Private attributes stay in their module: `python -m tools.lint.privates` names each that another module reads.

`x._name` is private to the module that defines `_name`: as a function, a class attribute or an attribute of `self`. On
`self`, `cls` and `super()` it may come from a base class.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["complaints"]

ROOT = Path(__file__).parents[2]
OWN = {"self", "cls"}
NAMED_TUPLE = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}


def complaints(path: Path) -> Iterator[str]:
    """A line for each private attribute that a file reads or writes and does not define."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    defined = NAMED_TUPLE | {name for node in nodes for name in _defined(node)}
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) if name not in defined and _is_private(name) and not _is_own(node.value):
                yield f"{path}:{node.lineno}: `{ast.unparse(node)}` is private to another module; give it a public name"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_own(value: ast.expr) -> bool:
    """Whether a value is `self`, `cls` or `super()`."""
    match value:
        case ast.Name(id=name):
            return name in OWN
        case ast.Call(func=ast.Name(id="super")):
            return True
    return False


def _defined(node: ast.AST) -> Iterator[str]:
    """The names that a node defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name


if __name__ == "__main__":
    found = [text for path in sorted((ROOT / "pyruntime").rglob("*.py")) for text in complaints(path)]
    sys.exit("\n".join(found) or 0)
