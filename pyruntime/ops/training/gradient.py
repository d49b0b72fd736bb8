"""Gradient: dy/dx of a part of the enclosing graph. Source: ai.onnx.preview.training.Gradient, version 1.

The importer replaces the node by nodes that compute the gradient (`pyruntime.onnx.importer.gradient`); besides ONNX's
operators they use SumTo.
"""

from __future__ import annotations

from pyruntime.ir import TensorType
from pyruntime.ops.base import Op, broadcasts_to, op
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("Gradient", domain="ai.onnx.preview.training", opsets=range(1, 2))
class Gradient(Op):
    """inputs: values of xs, then of zs, at which to differentiate; outputs: d sum(y) / dx for each of xs."""

    xs: tuple[str, ...]
    y: str
    zs: tuple[str, ...] | None = None

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        self.fail("a Gradient in the model's main graph", "one in a function or in the body of another operator")


@op("SumTo", domain="pyruntime", opsets=range(1, 2))
class SumTo(Decomposed):
    """y = g summed over the axes along which `like` was broadcast to g's shape; y has the shape of `like`.

    This is the derivative of broadcasting. g: floats; `like`: a shape that broadcasts to g's.
    """

    def expand(self, body: Expansion, g: TensorType, like: TensorType) -> tuple[TensorType | None, ...]:
        if not broadcasts_to(like.shape, g.shape):
            self.fail(f"a shape that broadcasts to {list(g.shape)}", list(like.shape))
        more = g.rank - like.rank
        axes = [axis for axis, n in enumerate(g.shape) if axis < more or n != like.shape[axis - more]]
        y = body("ReduceSum", g, body.ints(*axes), keepdims=1) if axes else body("Identity", g)
        return (body("Squeeze", y, body.ints(*range(more))) if more else y,)
