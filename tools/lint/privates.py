"""Private attributes stay in their module: `python -m tools.lint.privates` lists those that another module uses.

`x._name` is private to the module that defines `_name`: as a function, a class attribute or an attribute of `self`. On
`self`, `cls` and `super()` it may come from a base class. The same holds for names in strings (`getattr(x, "_name")`,
`vars(x)["_name"]`) and for `from module import _name`. In JavaScript private members are `#name`: no property begins
with an underscore. A necessary use of another package's private name is marked: `# private: why` on its line.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["complaints", "complaints_of_javascript"]

ROOT = Path(__file__).parents[2]
FOLDERS = "pyruntime", "tools"
OWN = {"self", "cls"}
NAMED_TUPLE = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}
BY_STRING = {"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller"}
MARK = "# private: "

_PROPERTY = re.compile(r"(?:\.|\[['\"`])(_\w+)|^\s*(?:(?:static|get|set|async) )*(_\w+)\s*(?:[=:(]|;$)")
_COMMENT = re.compile(r"^\s*(?:\*|/\*|//)")
PYODIDE = {"_api", "_createPyodideModule", "_loadSnapshot", "_module", "_sbrk"}
"""Properties of Pyodide and of Emscripten."""


def complaints(path: Path) -> Iterator[str]:
    """Yield a line for each private attribute that a file uses and does not define."""
    text = path.read_text(encoding="utf-8")
    lines, nodes = text.splitlines(), list(ast.walk(ast.parse(text)))
    defined = NAMED_TUPLE | {name for node in nodes for name in _defined(node)}
    for node in nodes:
        for name, whole in _private(node):
            line = node.lineno  # type: ignore[attr-defined]
            if name not in defined and not lines[line - 1].partition(MARK)[2].strip():
                yield f"{path}:{line}: `{whole}` is private to another module; give it a public name"


def complaints_of_javascript(path: Path) -> Iterator[str]:
    """Yield a line for each property in a file that begins with an underscore, except Pyodide's."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for found in () if _COMMENT.match(line) else _PROPERTY.finditer(line):
            name = found[1] or found[2]
            if name not in PYODIDE:
                yield f"{path}:{number}: `{name}`: private members are called `#name`"


def _private(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the private names that a node uses from elsewhere, with their source."""
    match node:
        case ast.Attribute(attr=name, value=value) if _is_private(name) and not _is_own(value):
            yield name, ast.unparse(node)
        case ast.ImportFrom(names=names):
            yield from ((alias.name, f"import {alias.name}") for alias in names if _is_private(alias.name))
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=args) if called in BY_STRING:
            of_own = called.endswith("attr") and bool(args) and _is_own(args[0])
            for value in () if of_own else args:
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and _is_private(value.value):
                    yield value.value, ast.unparse(node)
        case ast.Subscript(
            value=ast.Call(func=ast.Name(id="vars")) | ast.Attribute(attr="__dict__"),
            slice=ast.Constant(value=str(name)),
        ) if _is_private(name):
            yield name, ast.unparse(node)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_own(value: ast.expr) -> bool:
    """Return whether a value is `self`, `cls` or `super()`."""
    match value:
        case ast.Name(id=name):
            return name in OWN
        case ast.Call(func=ast.Name(id="super")):
            return True
    return False


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name


def main() -> int:
    """Print the uses; return 1 if there are any."""
    found = [text for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for text in complaints(path)]
    found += [text for path in sorted((ROOT / "web").rglob("*.js")) for text in complaints_of_javascript(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
