"""Look up operators by name, domain and opset. Modules that declare them are imported on first use."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from typing import Any

from pyruntime.errors import NotImplemented
from pyruntime.ops.base import LATEST, LATEST_ML, Op, registered
from pyruntime.ops.index import DECLARED

__all__ = ["domains", "find", "modules", "names", "newest", "op_class"]

_ADD = "add it with @pyruntime.custom_op"

_NEXT = {
    "com.microsoft.nchwc": "onnxruntime's optimizer writes this domain for one processor: optimize the model at level "
    "'extended' or below, or not at all",
    "com.microsoft": "export the model without this fusion (without onnxruntime's optimizer, or with it at a level "
    f"below 'extended'), or {_ADD}",
}
"""Advice for an unknown operator, by domain."""

_MODULES: dict[tuple[str, str], list[str]] = defaultdict(list)
"""(domain, operator) -> modules of pyruntime.ops that declare versions of it."""

for _domain, _declared in DECLARED.items():
    for _module, _names in _declared.items():
        for _name in _names.split():
            _MODULES[_domain, _name].append(_module)

_LATEST = {"": LATEST, "ai.onnx.ml": LATEST_ML}


def modules() -> list[str]:
    """Return the full names of all modules that declare operators, sorted."""
    return sorted({f"pyruntime.ops.{name}" for declared in DECLARED.values() for name in declared})


def domains() -> list[str]:
    """Return all domains with operators, sorted; "" is ai.onnx."""
    return sorted({*DECLARED, *(d for d, _ in registered)})


def names(domain: str = "") -> list[str]:
    """Return the names of all operators of `domain`, sorted."""
    return sorted({n for d, n in (*_MODULES, *registered) if d == domain})


def find(op_type: str, domain: str, opset: int) -> type[Op] | None:
    """Return the class that implements `op_type` at `opset`, or None."""
    for module in _MODULES.get((domain, op_type), ()):
        import_module(f"pyruntime.ops.{module}")
    versions = registered.get((domain, op_type), [])
    opset = min(opset, _LATEST.get(domain, opset))
    for cls in versions:
        if opset in cls.opsets:
            return cls
    return None


def newest(op_type: str, **attributes: Any) -> Op:
    """Make an ai.onnx operator of the newest opset, as passes do. Raises NotImplemented, TypeError."""
    make: Any = op_class(op_type, "", LATEST)
    made: Op = make(**attributes)
    return made


def op_class(op_type: str, domain: str, opset: int) -> type[Op]:
    """Like `find`, but raises NotImplemented with the operator, domain, opset and advice where none is found."""
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
