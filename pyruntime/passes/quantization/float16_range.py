"""Range of float16, and magnitudes of the elements of constants."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Constant, DType, TensorType, TypedGraph
from pyruntime.ops.creation.constant_of_shape import ConstantOfShape

__all__ = ["LARGEST", "SMALLEST", "SMALLEST_NORMAL", "largest"]

LARGEST = 65504.0
"""Largest float16."""

SMALLEST_NORMAL = 2.0**-14
"""Smallest normal float16. Devices may flush subnormal numbers to 0, and these have fewer significant bits."""

SMALLEST = 2.0**-24
"""Smallest positive float16, a subnormal number."""

_BLOCK = 4 << 20
"""Bytes of a constant to read at a time."""

_COMPUTED = 1 << 16
"""Elements of a computed static value above which the constants it is computed from are examined instead."""

_INFINITY = 0x7F800000


def largest(graph: TypedGraph, name: str, known: dict[str, float]) -> float:
    """Return the largest finite magnitude of a static float32 value.

    Args:
        known: cache of magnitudes by name.
    """
    if name not in known:
        known[name] = 0.0
        kind, node = graph.tensor(name), graph.producer(name)
        if name in graph.constants:
            known[name] = _of_constant(graph.constants[name])
        elif node is not None and isinstance(node.op, ConstantOfShape):
            known[name] = _of(np.asarray(node.op.element()[1], np.float32).reshape(1))
        elif node is None or kind.size <= _COMPUTED:
            known[name] = _of(np.asarray(kind.value(), np.float32))
        else:
            sources = [n for n in node.inputs if n and isinstance(t := graph.types[n], TensorType) and t.dtype.is_float]
            known[name] = max((largest(graph, n, known) for n in sources if n in graph.static), default=0.0)
    return known[name]


def _of_constant(constant: Constant) -> float:
    if constant.type.dtype is not DType.FLOAT:
        return _of(np.asarray(constant.numpy(), np.float32))
    found = 0.0
    for begin in range(0, constant.nbytes, _BLOCK):
        raw = constant.source.read(constant.offset + begin, min(_BLOCK, constant.nbytes - begin))
        found = max(found, _of(np.frombuffer(raw, np.float32)))
    return found


def _of(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0x7FFFFFFF)
    most = int(bits.max(initial=0))
    if most >= _INFINITY:
        most = int(bits[bits < _INFINITY].max(initial=0))
    return float(np.uint32(most).view(np.float32))
