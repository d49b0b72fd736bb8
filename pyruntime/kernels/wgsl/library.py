"""The shader folder: `shaders/*.wgsl` templates and the functions of `shaders/lib/*.wgsl`.

WGSL has no standard library and no includes. A kernel calls the functions of `lib/` by name; `link` adds those it uses,
and what they use, before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from pathlib import Path

from pyruntime.kernels.wgsl.module import Module
from pyruntime.kernels.wgsl.unroll import unroll

__all__ = ["bare", "link", "read", "shader_names"]

_COMMENT = re.compile(r"^[ \t]*//(?!#| </?(?:optimized|fallback)>).*\n|[ \t]+//(?!#).*$", re.M)


def _root() -> Path:
    """`shaders/` inside the wheel, or next to the package in a source checkout."""
    package = Path(str(resources.files("pyruntime")))
    inside = package / "shaders"
    return inside if inside.is_dir() else package.parent / "shaders"


@lru_cache(maxsize=1)
def sources() -> dict[str, Path]:
    """Every file of the shader folder by its name without ending; names are unique across its subfolders."""
    found: dict[str, Path] = {}
    for path in sorted(_root().rglob("*.wgsl")):
        if path.stem in found:
            raise ValueError(f"{path} and {found[path.stem]} have one name")
        found[path.stem] = path
    return found


@lru_cache(maxsize=256)
def read(name: str) -> str:
    """The source of the file `<name>.wgsl`, in whichever subfolder of `shaders/` it is. Raises KeyError."""
    return sources()[name].read_text("utf-8")


def bare(text: str) -> str:
    """WGSL without its comments: those are for who reads the file, and browsers take 0.4 ms a kilobyte."""
    return _COMMENT.sub("", text)


def shader_names() -> list[str]:
    """The names of all templates, sorted: `shaders/lib/` and `shaders/parts/` have none."""
    return sorted(
        name for name, path in sources().items() if path.relative_to(_root()).parts[0] not in ("lib", "parts")
    )


@lru_cache(maxsize=1)
def _library() -> dict[str, Module]:
    """Return each declaration of `shaders/lib/` as a module, by its name."""
    found: dict[str, Module] = {}
    for path in sorted((_root() / "lib").glob("*.wgsl")):
        for name, text in Module(bare(path.read_text("utf-8"))).declared.items():
            if name in found:
                raise ValueError(f"shaders/lib/{path.name}: {name} is defined twice")
            found[name] = Module(text)
    return found


def link(*parts: Module) -> str:
    """The texts of `parts`, marked loops written out, with every library function they use in front; callees first."""
    library = _library()
    ordered: dict[str, str] = {}
    own = {name for part in parts for name in part.declared}

    def visit(names: Iterable[str]) -> None:
        for name in names:
            if name in library and name not in own and name not in ordered:
                needed = library[name]
                visit(other for other in needed.names if other != name)
                ordered[name] = needed.text

    for part in parts:
        visit(part.names)
    return "\n\n".join((*ordered.values(), *(unroll(part.text) for part in parts)))
