"""pyruntime/ops/index.py, generated from the operators' declarations: `python -m tools.operator_index [--check]`."""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from importlib import import_module
from pathlib import Path

from pyruntime.ops.base import registered
from tools.generated import write_or_check

OPERATORS = Path(__file__).parents[1] / "pyruntime" / "ops"
TARGET = OPERATORS / "index.py"
PREFIX = "pyruntime.ops."
HEAD = '''"""Where each operator is declared. Written by `python -m tools.operator_index`; do not edit."""

from __future__ import annotations

__all__ = ["DECLARED"]

DECLARED: dict[str, dict[str, str]] = {
'''
WIDTH = 104


def page() -> str:
    """Return the module: by domain, the modules of pyruntime.ops with the operators that they declare versions of."""
    for module in modules():
        import_module(PREFIX + module)
    declared: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for (domain, name), versions in registered.items():
        for version in versions:
            if version.__module__.startswith(PREFIX):  # others are custom operators of this process
                declared[domain][version.__module__.removeprefix(PREFIX)].add(name)
    text = HEAD
    for domain, found in sorted(declared.items()):
        rows = "".join(_row(module, " ".join(sorted(names))) for module, names in sorted(found.items()))
        text += f'    "{domain}": {{\n{rows}    }},\n'
    return text + "}\n"


def modules() -> list[str]:
    """Return all modules within pyruntime.ops, sorted."""
    files = (f.relative_to(OPERATORS).with_suffix("") for f in OPERATORS.rglob("*.py"))
    return sorted(".".join(f.parts) for f in files if f.name != "__init__" and f != Path("index"))


def _row(module: str, names: str) -> str:
    """Return a module's entry as the formatter writes it."""
    start = f'        "{module}": '
    if len(start) + len(names) + len('"",') <= 120:
        return f'{start}"{names}",\n'
    lines = textwrap.wrap(names, WIDTH)
    quoted = [f'            "{line} "\n' for line in lines[:-1]] + [f'            "{lines[-1]}"\n']
    return f"{start.rstrip()} (\n{''.join(quoted)}        ),\n"


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, page(), sys.argv[1:]))
