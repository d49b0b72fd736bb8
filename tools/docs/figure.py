"""docs/images/layers.svg: the layers of the Python package, drawn from pyproject.toml and the sources.

`python -m tools.docs.figure`; `--check` reports whether the file is up to date.
"""

from __future__ import annotations

import ast
import sys
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tools.generated import write_or_check

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "images" / "layers.svg"
ROW, LINE, WIDTH, PAD = 46, 14, 760, 12


def layers() -> list[list[str]]:
    """Return packages by layer, the highest first, as in import-linter's contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return [[name.strip(" ()").removeprefix("pyruntime.") for name in layer.split("|")] for layer in found]


def told(name: str) -> str:
    """Return the first sentence of a package's docstring, without its full stop."""
    place = ROOT / "pyruntime" / name
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return (ast.get_docstring(ast.parse(source.read_text())) or "").split("\n")[0].rstrip(".:").replace("`", "")


def files(name: str) -> int:
    place = ROOT / "pyruntime" / name
    return len([*place.rglob("*.py")]) if place.is_dir() else 1


def breadth(names: Sequence[str]) -> float:
    """Return the width of each package of a layer."""
    return (WIDTH - 2 * PAD - 6 * (len(names) - 1)) / len(names)


def words(names: Sequence[str]) -> tuple[int, list[list[str]]]:
    """Return the height of a layer, and the lines of each of its packages."""
    made = [textwrap.wrap(told(name), int(breadth(names) / 6.4)) for name in names]
    return ROW + LINE * (max(map(len, made)) - 1), made


def draw() -> str:
    """Return the figure as SVG."""
    rows = [(names, *words(names)) for names in layers()]
    height = sum(tall + 6 for _, tall, _ in rows) + 2 * PAD
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        ' font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    top = PAD
    for names, tall, lines_of in rows:
        width = breadth(names)
        for place, name in enumerate(names):
            left = PAD + place * (width + 6)
            count = files(name)
            lines += [
                f'<rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{tall}" rx="5" fill="#e0f2f1"'
                ' stroke="#00796b"/>',
                f'<text x="{left + 10:.0f}" y="{top + 19}" fill="#004d40"><tspan font-weight="bold">{name}</tspan>'
                f' <tspan fill="#455a64">{count} {"file" if count == 1 else "files"}</tspan></text>',
                *(
                    f'<text x="{left + 10:.0f}" y="{top + 37 + line * LINE}" fill="#263238" font-size="11">'
                    f"{escape(text)}</text>"
                    for line, text in enumerate(lines_of[place])
                ),
            ]
        top += tall + 6
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, draw(), sys.argv[1:]))
