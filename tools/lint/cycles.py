"""Import cycles among the JavaScript modules of web/, which are not allowed.

    python -m tools.lint.cycles

Static and dynamic imports count; types that are imported in comments do not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.devkit.shell import ROOT

_COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*|\s//\s[^\n]*", re.S | re.M)
_IMPORT = re.compile(r"\bfrom\s*'(\.[^']+)'|\bimport\s*\(?\s*'(\.[^']+)'")


def imports(folder: Path) -> dict[str, list[str]]:
    """Return the modules that each module below `folder` imports, by path."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.js")):
        text = _COMMENT.sub("", path.read_text("utf-8"))
        named = [first or second for first, second in _IMPORT.findall(text)]
        targets = [(path.parent / name).resolve() for name in named]
        inside = [target for target in targets if target.is_relative_to(folder.resolve())]
        name = path.resolve().relative_to(folder.resolve()).as_posix()
        found[name] = [target.relative_to(folder.resolve()).as_posix() for target in inside]
    return found


def cycles(graph: Mapping[str, list[str]]) -> list[list[str]]:
    """Return cycles of a graph, each from a module to itself; empty only if the graph is acyclic."""
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(name: str, above: list[str]) -> None:
        if name in above:
            found.append([*above[above.index(name) :], name])
        elif name not in done:
            for target in graph.get(name, []):
                visit(target, [*above, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return found


def main() -> int:
    """Print the cycles; return their number."""
    found = cycles(imports(ROOT / "web"))
    for cycle in found:
        print("modules of web/ import each other:", " -> ".join(cycle))
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
