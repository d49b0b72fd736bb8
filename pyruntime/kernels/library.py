"""The shader folder: `shaders/*.wgsl` templates and the functions of `shaders/lib/*.wgsl`.

WGSL has no standard library and no includes. A kernel calls the functions of `lib/` by name; `link` adds those it uses,
and what they use, in front of it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from pathlib import Path

__all__ = ["link", "read", "shader_names"]

_FUNCTION = re.compile(r"^fn\s+(\w+)\s*\(.*?^\}", re.M | re.S)
_CONSTANT = re.compile(r"^(?:const|alias)\s+(\w+)\b[^\n]*;", re.M)
_CALL = re.compile(r"\b([A-Za-z_]\w*)\b")


def _root() -> Path:
    """`shaders/` inside the wheel, or beside the package in a source checkout."""
    package = Path(str(resources.files("pyruntime")))
    inside = package / "shaders"
    return inside if inside.is_dir() else package.parent / "shaders"


@lru_cache(maxsize=256)
def read(name: str) -> str:
    """The source of `shaders/<name>.wgsl`."""
    return (_root() / f"{name}.wgsl").read_text("utf-8")


def shader_names() -> list[str]:
    """Every template in `shaders/`, without ending, sorted; `lib/` is not in it."""
    return sorted(p.stem for p in _root().glob("*.wgsl"))


@lru_cache(maxsize=1)
def _library() -> dict[str, str]:
    """Function or constant name to its WGSL text, over all of `lib/`."""
    found: dict[str, str] = {}
    for path in sorted((_root() / "lib").glob("*.wgsl")):
        text = path.read_text("utf-8")
        for pattern in (_CONSTANT, _FUNCTION):
            for match in pattern.finditer(text):
                if match.group(1) in found:
                    raise ValueError(f"shaders/lib/{path.name}: {match.group(1)} is defined twice")
                found[match.group(1)] = match.group(0)
    return found


@lru_cache(maxsize=1024)
def _needs(text: str) -> tuple[str, ...]:
    """Library names mentioned in `text`, in order of appearance."""
    library = _library()
    code = re.sub(r"//[^\n]*", "", text)
    return tuple(dict.fromkeys(name for name in _CALL.findall(code) if name in library))


def link(text: str) -> str:
    """`text` with every library function it uses, directly or not, in front; callees first."""
    library = _library()
    ordered: dict[str, str] = {}
    own = set(re.findall(r"^\s*(?:fn|const|alias|override)\s+(\w+)", text, re.M))

    def visit(name: str) -> None:
        if name in ordered or name in own:
            return
        for other in _needs(library[name]):
            if other != name:
                visit(other)
        ordered[name] = library[name]

    for name in _needs(text):
        visit(name)
    return "\n\n".join([*ordered.values(), text]) if ordered else text
