"""docs/images/layers.svg: the layers of the Python package, drawn from pyproject.toml and the sources.

`python -m tools.docs.figure`; `--check` reports whether the file is up to date.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "images" / "layers.svg"
ROW, WIDTH, PAD = 46, 760, 12


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


def draw() -> str:
    """Return the figure as SVG."""
    rows = layers()
    height = len(rows) * (ROW + 6) + 2 * PAD
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        ' font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, names in enumerate(rows):
        top = PAD + number * (ROW + 6)
        width = (WIDTH - 2 * PAD - 6 * (len(names) - 1)) / len(names)
        most = int(width / 6.4)
        for place, name in enumerate(names):
            left = PAD + place * (width + 6)
            text = told(name)
            text = text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0] + " …"
            count = files(name)
            lines += [
                f'<rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{ROW}" rx="5" fill="#e0f2f1"'
                ' stroke="#00796b"/>',
                f'<text x="{left + 10:.0f}" y="{top + 19}" fill="#004d40"><tspan font-weight="bold">{name}</tspan>'
                f' <tspan fill="#455a64">{count} {"file" if count == 1 else "files"}</tspan></text>',
                f'<text x="{left + 10:.0f}" y="{top + 37}" fill="#263238" font-size="11">{escape(text)}</text>',
            ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def main(argv: Sequence[str]) -> int:
    made = draw()
    if "--check" in argv:
        return int(not TARGET.is_file() or TARGET.read_text() != made)
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
