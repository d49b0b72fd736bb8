"""What nodes are lowered to: each problem once in a stage, however many of its nodes have it.

Models repeat their layers, and `Op.lower` looks at nothing but the operator and the types it is given. Where it asked
for the value of an input, what it gave is that node's alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from pyruntime.ir import TensorType
from pyruntime.kernels import Dispatch, Target
from pyruntime.kernels.candidates import Kernels, Noted, noting
from pyruntime.kernels.legalize import legalize
from pyruntime.ops.base import Op

__all__ = ["Lowered", "Lowerings"]

Lowered = tuple[tuple[Dispatch, ...], tuple[Noted, ...]]
"""Dispatches, and what kernels were chosen for."""


class Lowerings:
    """Lowers nodes for a device.

    What it keeps has the types of the first node of its kind, which know the graph's constants: it must not outlive it.

    Args:
        shared: equal problems are lowered once. Not where types have Dims, which are not compared without a trace.
        kernels: those of the plans made before.
    """

    def __init__(self, target: Target, shared: bool = True, kernels: Kernels | None = None) -> None:
        self.target = target
        self._shared = shared
        self._known: dict[Hashable, Lowered] = {}
        self._kernels = Kernels(kernels, target.is_software) if target.allows("shared_kernels") else None

    def key(self, op: Op, types: Sequence[TensorType | None]) -> Hashable:
        """The same for nodes that are one problem; None for a node of its own."""
        key = (exact(op), *map(_kind, types)) if self._shared and op.pure else None
        try:
            hash(key)
        except TypeError:  # a field of the operator that cannot be compared
            return None
        return key

    def of(self, op: Op, types: Sequence[TensorType | None], key: Hashable = ..., times: int = 1) -> Lowered:
        """The dispatches of an operator on inputs of these types, those that have nothing to do left out.

        Args:
            key: what `key` says of them, where it was asked. times: how many nodes have it.

        Raises:
            Unsupported, ValueNeeded: see `Op.lower`.
        """
        if key is ...:
            key = self.key(op, types)
        found = self._known.get(key) if key is not None else None
        if found is None:
            looked: list[str] = []
            found = self._lower(op, [_watched(t, looked) if key is not None else t for t in types], times)
            if key is not None and not looked:
                self._known[key] = found
        return found

    def _lower(self, op: Op, types: Sequence[TensorType | None], times: int) -> Lowered:
        with noting(self._kernels, op.title, times) as notes:
            dispatches = legalize(self.target, op.lower(self.target, *types))
        return tuple(d for d in dispatches if not d.is_empty), tuple(notes)


def exact(value: Any) -> Hashable:
    """What tells values apart, those too that compare equal: 0.0 and -0.0, 1 and True."""
    kind: Any = type(value)
    if kind is tuple:
        return tuple(map(exact, value))
    if kind is float:
        return float.hex(value)
    names = _names(kind)
    return (kind, value) if names is None else (kind, *(exact(getattr(value, name)) for name in names))


@lru_cache(maxsize=1024)
def _names(kind: Any) -> tuple[str, ...] | None:
    """The fields of a dataclass whose objects are what these hold; None for other types."""
    made = getattr(kind, "__dataclass_params__", None)
    return tuple(f.name for f in fields(kind)) if made is not None and made.eq else None


def _kind(kind: TensorType | None) -> Hashable:
    return None if kind is None else (kind.dtype, kind.shape, kind.source is None)


def _watched(kind: TensorType | None, looked: list[str]) -> TensorType | None:
    """The same type; `looked` hears when its value is asked for."""
    if kind is None or kind.source is None:
        return kind
    source, name = kind.source, kind.name

    def read() -> Any:
        looked.append(name)
        return source()

    return TensorType(kind.dtype, kind.shape, read, name)
