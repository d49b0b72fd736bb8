"""Gradient: dy/dx of a part of the graph around it. Source: ai.onnx.preview.training.Gradient, version 1.

The importer replaces the node by the nodes that compute it (`pyruntime.onnx.gradient`); SumTo is what these need
beyond ONNX's operators.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.indexing import MAX_RANK
from pyruntime.kernels.reduce import reduction
from pyruntime.ops._folds import FOLDS
from pyruntime.ops.base import Op, Unsupported, op


@op("Gradient", domain="ai.onnx.preview.training", opsets=range(1, 2))
class Gradient(Op):
    """inputs: the values at which to differentiate, for xs and then zs; outputs: d sum(y) / dx for each of xs."""

    xs: tuple[str, ...]
    y: str
    zs: tuple[str, ...] | None = None

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        self.fail("a Gradient in the model's main graph", "one in a function or in the body of another operator")


@op("SumTo", domain="pyruntime", opsets=range(1, 2))
class SumTo(Op):
    """y = g summed over the axes along which `like` was broadcast to g's shape; y has the shape of `like`.

    It is the derivative of broadcasting: g of any float type, `like` of a shape that broadcasts to g's.
    """

    def infer(self, g: TensorType, like: TensorType) -> tuple[TensorType, ...]:
        if np.broadcast_shapes(g.shape, like.shape) != g.shape:
            self.fail(f"a shape that broadcasts to {list(g.shape)}", list(like.shape))
        return (TensorType(g.dtype, like.shape),)

    def evaluate(self, g: Array, like: Array) -> tuple[Array, ...]:
        wide = g.astype(np.float64)
        return (wide.sum(axis=_broadcast_axes(g.shape, like.shape)).reshape(like.shape).astype(g.dtype),)

    def alias(self, g: TensorType, like: TensorType) -> int | None:
        return 0 if g.size == like.size else None

    def lower(self, target: Target, g: TensorType, like: TensorType) -> tuple[Dispatch, ...]:
        fold = FOLDS["Sum"](g.dtype)
        if g.dtype is DType.DOUBLE or fold is None:
            raise Unsupported("float64 is exact on the host")
        if g.rank > MAX_RANK:
            raise Unsupported(f"more than {MAX_RANK} dimensions")
        axes = _broadcast_axes(g.shape, like.shape)
        return reduction(target, fold, out(0, TensorType(g.dtype, like.shape)), inp(0, g), axes)


def _broadcast_axes(wide: tuple[int, ...], narrow: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of `wide` that broadcasting from `narrow` made."""
    padded = (1,) * (len(wide) - len(narrow)) + narrow
    return tuple(axis for axis, (n, m) in enumerate(zip(wide, padded, strict=True)) if n != m)
