"""pyruntime/ops/index.py from the operators' declarations: `python -m tools.operator_index [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pyruntime.ops.base import registered

OPERATORS = Path(__file__).parents[1] / "pyruntime" / "ops"
TARGET = OPERATORS / "index.py"
PREFIX = "pyruntime.ops."
HEAD = '''"""Where each operator is declared. Written by `python -m tools.operator_index`; do not edit."""

from __future__ import annotations

__all__ = ["MODULES"]

# fmt: off
MODULES: dict[tuple[str, str], tuple[str, ...]] = {
'''


def page() -> str:
    """The whole module: (domain, operator) to the modules within pyruntime.ops that declare a version of it."""
    for module in modules():
        import_module(PREFIX + module)
    rows = []
    for key, versions in sorted(registered.items()):
        found = {v.__module__.removeprefix(PREFIX) for v in versions if v.__module__.startswith(PREFIX)}
        if found:  # others are custom operators of this process
            rows.append(f"    {_quoted(key)}: {_quoted(tuple(sorted(found)))},\n")
    return HEAD + "".join(rows) + "}\n"


def modules() -> list[str]:
    """Every module within pyruntime.ops, sorted."""
    files = (f.relative_to(OPERATORS).with_suffix("") for f in OPERATORS.rglob("*.py"))
    return sorted(".".join(f.parts) for f in files if f.name != "__init__" and f != Path("index"))


def _quoted(names: tuple[str, ...]) -> str:
    return "(" + ", ".join(f'"{n}"' for n in names) + ("," if len(names) == 1 else "") + ")"


def main(argv: Sequence[str]) -> int:
    text = page()
    if "--check" not in argv:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() == text:
        return 0
    print(f"{TARGET.relative_to(OPERATORS.parents[1])} is out of date: run `python3 dev.py lint --fix`.")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
