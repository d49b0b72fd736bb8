"""Positions that kernels clamp, checked where the host knows them: constants, and what it brings to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import (
    Array,
    HostTensor,
    Node,
    TensorType,
    TypedGraph,
    ValueType,
    evaluate,
    expression,
    has_dims,
    is_dim,
)
from pyruntime.ops.attention.rotary import Rotary, check_positions
from pyruntime.ops.host import HostValue
from pyruntime.ops.interpreter import located

__all__ = ["Positions", "of_run", "positions_of"]


@dataclass(frozen=True, slots=True)
class Positions:
    """Input `source` of a run, or the constant `known`, has the positions of `node`, whose inputs have these types."""

    node: Node
    types: tuple[ValueType | None, ...]
    source: str
    known: Array | None

    def check(self, values: Mapping[str, HostValue], sizes: Sequence[int] = ()) -> None:
        """Raise RuntimeException where a position is none of the caches' rows; `sizes`: those that are open."""
        value = values.get(self.source)
        if self.known is None and not isinstance(value, HostTensor):
            return
        at = value.array() if isinstance(value, HostTensor) else self.known
        types = [t and of_run(t, sizes) for t in self.types]
        with located(self.node, types):
            found = self.node.op.positions(*types)  # type: ignore[attr-defined]
            assert found is not None and at is not None
            _, rows, count = found
            check_positions(at.reshape(1, -1) + np.arange(count) if count > 1 else at, rows)


def positions_of(typed: TypedGraph) -> list[Positions]:
    """The positions in a graph that are constants, or come with a run; once for all nodes that read as many rows."""
    producers = {name: node for node in typed.nodes for name in node.outputs if name}
    needed, found = set(typed.outputs), dict[str, Positions]()
    for node in reversed(typed.nodes):
        if needed.isdisjoint(node.outputs):
            continue
        needed.update(node.inputs)
        if not isinstance(node.op, Rotary):
            continue
        types = tuple(typed.types[n] if n else None for n in node.inputs)
        read = node.op.positions(*types)  # type: ignore[arg-type]
        if read is None:
            continue
        name = node.inputs[read[0]]
        static = name in typed.static and not has_dims(typed.types[name])
        known = typed.types[name].value() if static else None
        while known is None and (moved := producers.get(name)) is not None and moved.op.op_type in _MOVES:
            name = moved.inputs[0]
        if known is not None or name in typed.inputs:
            found[f"{name} {read[1:]}"] = Positions(node, types, name, known)
    return list(found.values())


_MOVES = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""What leaves positions as they are."""


def of_run(kind: ValueType, sizes: Sequence[int]) -> ValueType:
    """The type in a run of these open sizes."""
    if not isinstance(kind, TensorType) or not any(map(is_dim, kind.shape)):
        return kind
    return kind.with_shape(*(evaluate(expression(d), sizes) for d in kind.shape))
