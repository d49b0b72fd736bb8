"""Operators by name, domain and opset, found by discovery and imported when a model needs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module, resources
from importlib.resources.abc import Traversable
from typing import Any

from pyruntime.errors import NotImplemented
from pyruntime.ops.base import LATEST, LATEST_ML, Op, registered

__all__ = ["domains", "find", "modules", "names", "newest", "op_class"]

_DECLARATION = re.compile(r'^(?:@op|    Row|    Unary|    Binary)\(\s*"(\w+)"(?:[^#\n]*?domain="([\w.]+)")?', re.M)

_ADD = "add it with @pyruntime.custom_op"

_NEXT = {
    "com.microsoft.nchwc": "it is of the layout that onnxruntime's optimiser chose for one processor: optimise the "
    "model at the level 'extended' or below, or not at all",
    "com.microsoft": "export the model without this fusion (without onnxruntime's optimiser, or with it at a level "
    f"below 'extended'), or {_ADD}",
}
"""What to do about an unknown operator, by domain."""

_LATEST = {"": LATEST, "ai.onnx.ml": LATEST_ML}


@lru_cache(maxsize=1)
def _index() -> dict[tuple[str, str], tuple[str, ...]]:
    """(domain, op_type) to the modules whose source declares it: read, not imported."""
    index: dict[tuple[str, str], tuple[str, ...]] = {}
    for name, source in _sources(resources.files("pyruntime.ops"), ""):
        for key in ((domain, op_type) for op_type, domain in _DECLARATION.findall(source)):
            if name not in index.get(key, ()):
                index[key] = (*index.get(key, ()), name)
    return index


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    """(module within pyruntime.ops, source) of every file of `folder` and the folders in it, by name."""
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.is_dir():
            yield from _sources(file, f"{prefix}{file.name}.")
        elif file.name.endswith(".py"):
            yield f"{prefix}{file.name[:-3]}", file.read_text("utf-8")


def modules() -> list[str]:
    """The full name of every module that may declare operators, sorted."""
    return sorted(f"pyruntime.ops.{name}" for name, _ in _sources(resources.files("pyruntime.ops"), ""))


def domains() -> list[str]:
    """Every domain of which an operator exists here, sorted; '' is ONNX's own."""
    return sorted({d for d, _ in (*_index(), *registered)})


def names(domain: str = "") -> list[str]:
    """Every operator of `domain` that exists here, sorted."""
    return sorted({n for d, n in (*_index(), *registered) if d == domain})


def find(op_type: str, domain: str, opset: int) -> type[Op] | None:
    """The class that implements `op_type` at `opset`, or None."""
    for module in _index().get((domain, op_type), ()):
        import_module(f"pyruntime.ops.{module}")
    versions = registered.get((domain, op_type), [])
    opset = min(opset, _LATEST.get(domain, opset))
    for cls in versions:
        if opset in cls.opsets:
            return cls
    return None


def newest(op_type: str, **attributes: Any) -> Op:
    """The ai.onnx operator at its newest opset: what passes write. Raises NotImplemented, TypeError."""
    make: Any = op_class(op_type, "", LATEST)
    made: Op = make(**attributes)
    return made


def op_class(op_type: str, domain: str, opset: int) -> type[Op]:
    """Like `find`. Raises NotImplemented naming the operator, the domain, the opset and what to do."""
    cls = find(op_type, domain, opset)
    if cls is not None:
        return cls
    full = f"{domain or 'ai.onnx'}.{op_type}"
    versions = registered.get((domain, op_type))
    if versions:
        have = ", ".join(f"{v.opsets.start} to {v.opsets.stop - 1}" for v in versions)
        raise NotImplemented(
            f"{full} at opset {opset}: implemented for opsets {have}; convert the model to one of these"
        )
    raise NotImplemented(f"{full} (opset {opset}) is not an operator of this runtime; {_NEXT.get(domain, _ADD)}")
