"""Attention in windows as exporters write it: of a picture as it is or rolled, and patches that are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from pyruntime.compiler.typing import Guards, Typing
from pyruntime.ir import Array, DType, TensorType, TypedGraph
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.passes import optimize
from tests.model_writer import ModelNodes

__all__ = ["GPU", "WindowModel", "Windows", "optimized", "types"]

GPU = Target(Limits(storage_buffers=10), frozenset({"subgroups"}), "nvidia")

LAST = 2**63 - 1


@dataclass(frozen=True)
class Windows:
    """A picture of `rows` by `columns` windows of `size` squared pixels, of `heads` heads of 8 components.

    Attributes:
        post_norm: norms come after attention and products (Swin 2), not before.
        padded: pixels that a Pad adds to rows and columns, and a Slice takes away again.
        masked: shifted windows have a mask.
        swapped: residuals are the first operand of additions.
        open: the model leaves the number of pictures open.
        both: slices of merged patches are one Slice for both axes.
    """

    batch: int = 1
    rows: int = 2
    columns: int = 3
    size: int = 4
    heads: int = 2
    post_norm: bool = False
    padded: int = 0
    masked: bool = True
    swapped: bool = False
    both: bool = False
    open: bool = False
    dtype: type = np.float32

    @property
    def width(self) -> int:
        """Components of a pixel."""
        return 8 * self.heads


class WindowModel(ModelNodes):
    """Layers of attention in windows, every other one shifted, and 2 x 2 patches merged after them."""

    def __init__(self, form: Windows, layers: int = 2, merged: bool = False) -> None:
        super().__init__()
        self.form, self.layers, self.merged = form, layers, merged
        self.height = form.rows * form.size - form.padded
        self.across = form.columns * form.size - form.padded

    def weight(self, *shape: int) -> str:
        return self.given((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(self.form.dtype))

    def reshape(self, x: str, *shape: int) -> str:
        """The first dimension counts pictures, or windows of all."""
        return self.add("Reshape", x, self.ints(-1 if self.form.open else shape[0], *shape[1:]))

    def turned(self, x: str, *perm: int) -> str:
        return self.add("Transpose", x, perm=list(perm))

    def norm(self, x: str, width: int) -> str:
        scale = self.given(self.rng.uniform(0.5, 1.5, width).astype(self.form.dtype))
        return self.add("LayerNormalization", x, scale, self.weight(width), axis=-1)

    def linear(self, x: str, k: int, n: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(k, n)), self.weight(n))

    def sum(self, x: str, residual: str) -> str:
        return self.add("Add", *((residual, x) if self.form.swapped else (x, residual)))

    def rolled(self, x: str, by: int) -> str:
        for axis in (1, 2):
            first = self.add("Slice", x, self.ints(by), self.ints(LAST), self.ints(axis))
            x = self.add("Concat", first, self.add("Slice", x, self.ints(0), self.ints(by), self.ints(axis)), axis=axis)
        return x

    def attended(self, x: str, shift: int) -> str:
        f = self.form
        B, R, C, S, W = f.batch, f.rows, f.columns, f.size, f.width
        x = self.reshape(x, B, self.height, self.across, W)
        x = self.add("Pad", x, self.ints(0, 0, 0, 0, 0, f.padded, f.padded, 0))
        x = self.rolled(x, shift) if shift else x
        x = self.reshape(self.turned(self.reshape(x, B, R, S, C, S, W), 0, 1, 3, 2, 4, 5), B * R * C, S * S, W)
        q, k, v = (self.reshape(self.linear(x, W, W), B * R * C, S * S, f.heads, 8) for _ in range(3))
        q, k, v = self.turned(q, 0, 2, 1, 3), self.turned(k, 0, 2, 3, 1), self.turned(v, 0, 2, 1, 3)
        scores = self.add("Mul", self.add("MatMul", q, k), self.given(f.dtype(8**-0.5)))
        scores = self.add("Add", scores, self.given(self.draw(1, f.heads, S * S, S * S)))
        if shift and f.masked:
            hidden: Array = np.where(self.rng.random((1, R * C, 1, S * S, S * S)) < 0.3, -100, 0).astype(f.dtype)
            scores = self.add("Add", self.reshape(scores, B, R * C, f.heads, S * S, S * S), self.given(hidden))
            scores = self.reshape(scores, B * R * C, f.heads, S * S, S * S)
        x = self.turned(self.add("MatMul", self.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
        x = self.linear(self.reshape(x, B * R * C, S * S, W), W, W)
        x = self.turned(self.reshape(x, B, R, C, S, S, W), 0, 1, 3, 2, 4, 5)
        x = self.reshape(x, B, R * S, C * S, W)
        x = self.rolled(x, -shift) if shift else x
        if f.padded:
            ends = self.ints(self.height, self.across)
            x = self.add("Slice", x, self.ints(0, 0), ends, self.ints(1, 2))
        return self.reshape(x, B, self.height * self.across, W)

    def draw(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(self.form.dtype)

    def layer(self, x: str, shift: int) -> str:
        W, post_norm = self.form.width, self.form.post_norm
        y = self.attended(x if post_norm else self.norm(x, W), shift)
        x = self.sum(self.norm(y, W) if post_norm else y, x)
        y = self.add("Relu", self.linear(x if post_norm else self.norm(x, W), W, 2 * W))
        y = self.linear(y, 2 * W, W)
        return self.sum(self.norm(y, W) if post_norm else y, x)

    def merge(self, x: str) -> str:
        """2 x 2 patches side by side, down first, then their norm and a product."""
        f = self.form
        x = self.reshape(x, f.batch, self.height, self.across, f.width)
        parts = []
        for column in (0, 1):
            for row in (0, 1):
                ends = self.ints(LAST, LAST)
                if f.both:
                    part = self.add("Slice", x, self.ints(row, column), ends, self.ints(1, 2), self.ints(2, 2))
                else:
                    part = self.add("Slice", x, self.ints(row), self.ints(LAST), self.ints(1), self.ints(2))
                    part = self.add("Slice", part, self.ints(column), self.ints(LAST), self.ints(2), self.ints(2))
                parts.append(part)
        x = self.add("Concat", *parts, axis=-1)
        x = self.reshape(x, f.batch, self.height * self.across // 4, 4 * f.width)
        return self.add("MatMul", self.norm(x, 4 * f.width), self.weight(4 * f.width, 2 * f.width))

    def model(self) -> bytes:
        f = self.form
        x = "x"
        for i in range(self.layers):
            x = self.layer(x, f.size // 2 if i % 2 else 0)
        x = self.merge(x) if self.merged else self.norm(x, f.width)
        self.add("Identity", x, out="y")
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(f.dtype))
        batch = "B" if f.open else f.batch
        inputs = [helper.make_tensor_value_info("x", kind, [batch, self.height * self.across, f.width])]
        outputs = [helper.make_tensor_value_info("y", kind, [batch, None, None])]
        graph = helper.make_graph(self.nodes, "windows", inputs, outputs, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString())

    def feeds(self, batch: int = 0) -> dict[str, Array]:
        return {"x": self.draw(batch or self.form.batch, self.height * self.across, self.form.width)}


def types(given: dict[str, Any]) -> dict[str, TensorType]:
    """The types of arrays."""
    return {n: TensorType(DType.from_numpy(x.dtype), x.shape, None, n) for n, x in given.items()}


def optimized(model: bytes, given: dict[str, Any], target: Target = GPU) -> TypedGraph:
    """The graph of a model for inputs of these types, after all passes."""
    graph = import_model(read_model(memoryview(model))).graph
    known = {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in graph.constants.items()}
    typing = Typing({**types(given), **known}, set(graph.constants), Guards({}))
    rest, boundary = typing.run(graph.nodes)
    assert not rest and boundary is None
    typed = typing.graph(list(given), [v.name for v in graph.outputs], graph.constants)
    optimize(typed, target)
    typed.verify()
    return typed
