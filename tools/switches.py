"""The tables of docs/SWITCHES.md, from the passes' docstrings and `VARIANTS`: `python -m tools.switches [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from pyruntime.kernels.variants import VARIANTS
from pyruntime.passes.pipeline import PASSES
from tools.generated import write_or_check

TARGET = Path(__file__).parents[1] / "docs" / "SWITCHES.md"
BEGIN = "<!-- Tables: written by `python -m tools.switches`, from docstrings; do not edit below. -->"


def page() -> str:
    """Return the page: its existing prose, and the generated tables."""
    prose, mark, _ = TARGET.read_text().partition(BEGIN)
    passes = {one.name: _summary(one.run.__module__) for one in PASSES}
    tables = [
        f"## Passes\n\n{_table('what it does', passes.items())}",
        f"## Kernel variants\n\n{_table('what it is', VARIANTS.items())}",
    ]
    return f"{prose}{mark}\n\n" + "\n\n".join(tables) + "\n"


def _summary(module: str) -> str:
    """Return the first paragraph of a module's docstring on one line, without its full stop."""
    text = sys.modules[module].__doc__ or ""
    return " ".join(text.partition("\n\n")[0].split()).removesuffix(".")


def _table(head: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"| name | {head} |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows)])


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, page(), sys.argv[1:]))
