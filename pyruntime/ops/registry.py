"""Operators by name, domain and opset, found by discovery and imported when a model needs them."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module, resources
from typing import Any

from pyruntime.errors import NotImplemented
from pyruntime.ops.base import LATEST, LATEST_ML, Op, registered

__all__ = ["domains", "find", "names", "newest", "op_class"]

_DECLARATION = re.compile(r'^(?:@op|    Row|    Unary|    Binary)\(\s*"(\w+)"(?:[^#\n]*?domain="([\w.]+)")?', re.M)

_LATEST = {"": LATEST, "ai.onnx.ml": LATEST_ML}


@lru_cache(maxsize=1)
def _index() -> dict[tuple[str, str], tuple[str, ...]]:
    """(domain, op_type) to the modules whose source declares it: read, not imported."""
    index: dict[tuple[str, str], tuple[str, ...]] = {}
    for file in sorted(resources.files("pyruntime.ops").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".py"):
            for name, domain in _DECLARATION.findall(file.read_text("utf-8")):
                known = index.get((domain, name), ())
                if file.name[:-3] not in known:
                    index[domain, name] = (*known, file.name[:-3])
    return index


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
    raise NotImplemented(f"{full} (opset {opset}) is not an operator of this runtime; add it with @pyruntime.custom_op")
