"""Small networks with random weights, in the operators that exporters of real ones write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Dims = Sequence[int | str | None]

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Network:
    """Nodes and weights of one graph; methods append nodes and return the name of what they make.

    A branch of an `If` is a network that shares the weights of the one it belongs to.
    """

    def __init__(self, seed: int, parent: Network | None = None, name: str = "") -> None:
        self.random: np.random.Generator = parent.random if parent else np.random.default_rng(seed)
        self.weights: dict[str, Any] = parent.weights if parent else {}
        self.nodes: list[NodeProto] = []
        self._prefix = f"{name}/" if parent else ""
        self._count = 0

    def op(self, kind: str, *inputs: str, outputs: int = 1, name: str = "", **attributes: Any) -> str:
        """A node; the name of its first output, which `name` decides."""
        self._count += 1
        own = f"{self._prefix}{kind}_{self._count}"
        names = [name or own, *(f"{own}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=own, **attributes))
        return names[0]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Normal numbers, by default of a variance that keeps that of what they are multiplied with."""
        deviation = scale if scale is not None else shape[0] ** -0.5
        name = f"weight_{len(self.weights)}"
        self.weights[name] = (self.random.standard_normal(shape) * deviation).astype(np.float32)
        return name

    def linear(self, x: str, width: int, out: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(width, out)), self.weight(out, scale=0.1))

    def norm(self, x: str, width: int) -> str:
        scale = self.constant(np.ones(width), np.float32)
        return self.op("LayerNormalization", x, scale, self.weight(width, scale=0.1), axis=-1, epsilon=1e-5)

    def gelu(self, x: str) -> str:
        """As exporters write it: x/2 (1 + erf(x/sqrt 2))."""
        root, one, half = (self.constant(v, np.float32) for v in (2**0.5, 1, 0.5))
        wave = self.op("Add", self.op("Erf", self.op("Div", x, root)), one)
        return self.op("Mul", self.op("Mul", x, wave), half)

    def size(self, x: str, axis: int) -> str:
        """A dimension of `x`, a scalar."""
        return self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)

    def heads(self, x: str, count: int, size: int) -> str:
        """[b, s, count size] as [b, count, s, size]."""
        split = self.op("Reshape", x, self.constant([0, 0, count, size]))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attend(self, q: str, k: str, v: str, size: int, bias: str = "") -> str:
        """softmax(q kᵀ / sqrt size + bias) v, [b, heads, s, size], and back to [b, s, width]."""
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.constant(size**0.5, np.float32))
        if bias:
            scores = self.op("Add", scores, bias)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        return self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant([0, 0, -1]))

    def repeat(self, x: str, times: int, heads: int, size: int) -> str:
        """Each of the heads of [b, heads, s, size] `times` times, as grouped queries need it."""
        wide = self.op("Unsqueeze", x, self.constant([2]))
        wide = self.op("Tile", wide, self.constant([1, 1, times, 1, 1]))
        return self.op("Reshape", wide, self.constant([0, heads * times, -1, size]))

    def feed_forward(self, x: str, width: int) -> str:
        inner = self.gelu(self.linear(x, width, 2 * width))
        return self.op("Add", x, self.linear(inner, 2 * width, width))

    def layer(self, x: str, width: int, count: int, bias: str = "") -> str:
        """A layer of an encoder, normalised before each half."""
        size = width // count
        y = self.norm(x, width)
        q, k, v = (self.heads(self.linear(y, width, width), count, size) for _ in range(3))
        x = self.op("Add", x, self.linear(self.attend(q, k, v, size, bias), width, width))
        return self.feed_forward(x, width)

    def mask_bias(self, mask: str) -> str:
        """0 where `mask` [b, t] is 1, -10000 elsewhere, [b, 1, 1, t]."""
        there = self.op("Cast", self.op("Unsqueeze", mask, self.constant([1, 2])), to=FLOAT)
        away = self.op("Sub", self.constant(1, np.float32), there)
        return self.op("Mul", away, self.constant(-1e4, np.float32))

    def causal_bias(self, mask: str, new: str) -> str:
        """0 where a query of [b, s] may look at a key, whose mask is [b, t]; -10000 elsewhere, [b, 1, s, t]."""
        total, count = self.size(mask, 1), self.size(new, 1)
        zero, one = self.constant(0), self.constant(1)
        keys = self.op("Unsqueeze", self.op("Range", zero, total, one), self.constant([0]))
        queries = self.op("Range", self.op("Sub", total, count), total, one)
        seen = self.op("LessOrEqual", keys, self.op("Unsqueeze", queries, self.constant([1])))
        there = self.op("Cast", self.op("Unsqueeze", mask, self.constant([1, 2])), to=BOOL)
        both = self.op("And", self.op("Unsqueeze", seen, self.constant([0, 1])), there)
        zero_, far = self.constant(0, np.float32), self.constant(-1e4, np.float32)
        return self.op("Where", both, zero_, far)

    def graph(self, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto], name: str = "g") -> GraphProto:
        """The graph with the weights; a branch's has none of its own."""
        made = [] if self._prefix else [numpy_helper.from_array(array, n) for n, array in self.weights.items()]
        return helper.make_graph(self.nodes, name, list(inputs), list(outputs), made)

    def model(self, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> bytes:
        opset = [helper.make_opsetid("", 17)]
        made = helper.make_model(self.graph(inputs, outputs), opset_imports=opset, ir_version=8)
        return bytes(made.SerializeToString())


def value(name: str, dims: Dims, dtype: int = FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)
