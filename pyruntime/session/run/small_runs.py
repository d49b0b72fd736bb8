"""Runs that NumPy has done before the GPU is asked: models of a few nodes on little data.

A GPU run of new shapes is planned and its kernels compiled first, tens of milliseconds; one of known shapes still costs
the way there and back. The session config entry `pyruntime.host_work` is the predicted work, in elementary operations,
up to which a run stays on NumPy where the session has the CPU provider too; 0, the default, sends all to the GPU.

The prediction is a bound from shapes alone, of each node, with (i) large inputs and outputs (o):

    16 (sum i + sum o)       what has one large input, arithmetic, Concat: resampling, sorting, transforms, reductions
    sum o * max i            anything else: products, convolutions, recurrences
    infinity                 bodies: loops, conditions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from pyruntime.compiler.typing import infer_node
from pyruntime.errors import OrtError
from pyruntime.ir import Graph, Node, TensorType, ValueNeeded, ValueType
from pyruntime.ops.control.body import BodyOp
from pyruntime.ops.elementwise.elementwise import Elementwise

__all__ = ["predicted_work"]

_NODES = 8
"""Nodes of a model at most: each costs Python's time, whatever its data."""

_PARAMETER = 64
"""Elements up to which an input counts as a parameter: axes, sizes, scales."""

_EACH = 16
"""Operations for an element of resampling, sorting or arithmetic at most, roughly."""


def predicted_work(graph: Graph, feeds: Mapping[str, ValueType]) -> float:
    """Elementary operations that a run takes at most; infinity where the shapes do not tell, or of many nodes.

    Args:
        feeds: every input, with its value.
    """
    if len(graph.nodes) > _NODES:
        return inf
    types: dict[str, ValueType] = {
        n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in graph.constants.items()
    }
    types |= feeds
    work = 0.0
    for node in graph.nodes:
        try:
            inputs = [types[n] if n else None for n in node.inputs]
            outputs = infer_node(node, inputs)
        except (KeyError, ValueNeeded, OrtError):  # the run itself says what is wrong, if anything
            return inf
        work += _work(node, inputs, outputs)
        types |= zip(_named(node), outputs, strict=False)
    return work


def _named(node: Node) -> list[str]:
    return [n for n in node.outputs if n]


def _work(node: Node, inputs: Sequence[ValueType | None], outputs: Sequence[ValueType]) -> float:
    tensors = [t for t in (*inputs, *outputs) if t is not None]
    if isinstance(node.op, BodyOp) or not all(isinstance(t, TensorType) for t in tensors):
        return inf
    large = [t.size for t in inputs if isinstance(t, TensorType) and t.size > _PARAMETER]
    made = sum(t.size for t in outputs if isinstance(t, TensorType))
    if len(large) < 2 or isinstance(node.op, Elementwise) or node.op.op_type == "Concat":
        return float(_EACH * (sum(large) + made))
    return float(made * max(large))
