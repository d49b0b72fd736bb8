"""Graphs where fusion and the reuse of memory meet: an operator's own input after it, diamonds, views, fan-out.

Operators are those of `tests.forms`, at small odd sizes and at sizes over a tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tests.forms import KINDS, Form, Shape
from tests.fuzz.build import Build

__all__ = ["reuse"]

UNSTABLE = ("hardmax", "sorted", "sum of squares expanded", "matmul by itself twice")
"""A rounding error becomes a whole one, or results grow."""
STABLE = tuple(name for name in KINDS if name not in UNSTABLE)
MOST = 1 << 15
"""Elements of a value."""


class Part(Form):
    """Adds a form's operator to a sample."""

    def __init__(self, b: Build, value: str, shape: Shape) -> None:
        super().__init__(shape)
        self.b, self.value = b, value

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """See `Form.op`."""
        return self.b.node(op_type, [self.value if n == "t" else n for n in inputs], outputs, **attributes)[0]

    def const(self, value: Any) -> str:
        """See `Form.const`."""
        self.initializers[str(len(self.initializers))] = None  # weights are drawn by how many there are
        array = np.asarray(value)
        return self.b.given(array, True, f"a constant of {array.dtype} {list(array.shape)}" if array.size > 8 else "")


@dataclass
class Graph:
    """A graph under construction: values that nodes may read."""

    b: Build
    values: list[tuple[str, Shape]] = field(default_factory=list)

    def value(self) -> tuple[str, Shape]:
        """A value made before, mostly a late one."""
        last = len(self.values) - 1
        return self.values[last - min(last, self.b.pick(0, 0, 0, 1, 2, 3, 5))]

    def add(self, name: str, shape: Shape) -> None:
        """Have `name` read by nodes to come."""
        self.values.append((name, shape))

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A node's first output."""
        return self.b.node(op_type, inputs, **attributes)[0]

    def ints(self, *values: int) -> str:
        """A constant vector."""
        return self.b.given(np.array(values, np.int64), True)

    def applied(self, value: str, shape: Shape) -> str:
        """An operator that keeps the shape, on `value`."""
        for _ in range(3 if len(shape) > 1 else 0):
            kind = KINDS[self.b.pick(*STABLE)]
            count = len(self.b.nodes)
            made = kind(Part(self.b, value, shape))
            if made is not None:
                return made
            del self.b.nodes[count:]
        return self.op("Softsign", value)

    def bounded(self, value: str, always: bool = False) -> str:
        """Mostly an activation, which keeps numbers small."""
        act = self.b.pick("Tanh", "Sigmoid", "Softsign", *(() if always else ("Relu", "HardSwish", "")))
        return self.op(act, value) if act else value

    def joined(self, a: str, b: str) -> str:
        """Two values of one shape, or that broadcast, made one."""
        kind = self.b.pick("Add", "Sub", "Mul", "Sub from", "Max", "Where", "Min")
        if kind == "Where":
            return self.op("Where", self.op(self.b.pick("Greater", "LessOrEqual"), a, b), *self.b.permutation([a, b]))
        return self.op("Sub", b, a) if kind == "Sub from" else self.op(kind, a, b)

    def view(self, value: str, shape: Shape, wanted: Shape) -> str:
        """The same bytes with another shape, said in one of several ways."""
        way = self.b.pick("Reshape", "Flatten", "Squeeze", "Reshape twice")
        if way == "Flatten" and len(wanted) == 2:
            for axis in range(len(shape) + 1):
                if (math.prod(shape[:axis]), math.prod(shape[axis:])) == wanted:
                    return self.op("Flatten", value, axis=axis)
        ones = [i for i, n in enumerate(shape) if n == 1]
        if way == "Squeeze" and ones and tuple(n for n in shape if n != 1) == wanted:
            return self.op("Squeeze", value, self.ints(*ones))
        if way == "Reshape twice":
            value = self.op("Reshape", value, self.ints(-1))
        return self.op("Reshape", value, self.ints(*wanted))

    def other_shape(self, shape: Shape) -> Shape:
        """Another shape of as many elements."""
        count = math.prod(shape)
        divisor = self.b.pick(*[d for d in (1, 2, 3, 7, 8, 13, 31, 33) if count % d == 0])
        return self.b.pick(
            tuple(self.b.permutation(shape)),
            (divisor, count // divisor),
            (count // divisor, divisor),
            (1, divisor, count // divisor),
            (1, *shape) if len(shape) < 4 else (count,),
        )


def _residual(g: Graph) -> None:
    """act(f(v) op v), perhaps with a bias between."""
    v, shape = g.value()
    y = g.applied(v, shape)
    if g.b.integer(0, 3) == 3:
        y = g.op("Add", y, g.b.tensor("float32", g.b.pick(shape[-1:], shape, ()), fixed=True))
    y = g.joined(y, v)
    if g.b.integer(0, 3) == 3:
        y = g.joined(y, g.b.pick(v, *[n for n, s in g.values if s == shape]))
    g.add(g.bounded(y), shape)


def _residual_of_a_view(g: Graph) -> None:
    """f of a view of v, seen as v again, and v."""
    v, shape = g.value()
    wanted = g.other_shape(shape)
    y = g.applied(g.view(v, shape, wanted), wanted)
    g.add(g.bounded(g.joined(g.view(y, wanted, shape), v)), shape)


def _diamond(g: Graph) -> None:
    v, shape = g.value()
    g.add(g.bounded(g.joined(g.applied(v, shape), g.applied(v, shape))), shape)


def _plain(g: Graph) -> None:
    v, shape = g.value()
    g.add(g.bounded(g.applied(v, shape)), shape)


def _views_of_one(g: Graph) -> None:
    """A product, a concatenation or a choice of several views of one value."""
    v, shape = g.value()
    count = math.prod(shape)
    rows = g.b.pick(*[d for d in (1, 2, 3, 5, 7, 8, 11, 13, 31, 33) if count % d == 0])
    cols = count // rows
    match g.b.pick("product", "concat", "choice", "gather"):
        case "product" if rows * rows <= MOST:
            a, b = g.view(v, shape, (rows, cols)), g.view(v, shape, (cols, rows))
            y = g.op("MatMul", g.op("Tanh", a) if g.b.flag() else a, b)
            y = g.op("Mul", y, g.b.given(np.float32(1 / cols), True))
            g.add(g.bounded(y), (rows, rows))
        case "concat" if 2 * count <= MOST:
            parts = [g.view(v, shape, (rows, cols)) for _ in range(2)]
            g.add(g.op("Concat", *parts, axis=g.b.integer(0, 1) * 0), (2 * rows, cols))
        case "gather":
            order = np.random.default_rng(rows).permutation(rows).astype(np.int64)
            taken = g.op("Gather", g.view(v, shape, (rows, cols)), g.b.given(order, True), axis=0)
            g.add(g.joined(taken, g.view(v, shape, (rows, cols))), (rows, cols))
        case _:
            a, b = (g.view(v, shape, (rows, cols)) for _ in range(2))
            g.add(g.joined(g.op("Neg", a), b), (rows, cols))


def _transposed(g: Graph) -> None:
    v, shape = g.value()
    order = g.b.permutation(range(len(shape)))
    g.add(g.op("Transpose", v, perm=order), tuple(shape[i] for i in order))


def _split(g: Graph) -> None:
    v, shape = g.value()
    axes = [i for i, n in enumerate(shape) if n > 1]
    if not axes:
        return
    axis = g.b.pick(*axes)
    first = g.b.integer(1, shape[axis] - 1) if g.b.flag() else shape[axis] // 2
    sizes = (first, shape[axis] - first)
    names = g.b.node("Split", [v, g.ints(*sizes)], 2, axis=axis)
    parts = [(n, (*shape[:axis], size, *shape[axis + 1 :])) for n, size in zip(names, sizes, strict=True)]
    if sizes[0] == sizes[1] and g.b.flag():
        g.add(g.joined(names[0], g.op("Sigmoid", names[1])), parts[0][1])
        return
    g.values += parts


def _slice(g: Graph) -> None:
    v, shape = g.value()
    axis = g.b.integer(0, len(shape) - 1)
    start, step = g.b.integer(0, shape[axis] - 1), g.b.pick(1, 2, -1)
    count = start + 1 if step < 0 else -(-(shape[axis] - start) // step)
    end = -(1 << 31) if step < 0 else 1 << 31
    bounds = [g.ints(value) for value in (start, end, axis, step)]
    g.add(g.op("Slice", v, *bounds), (*shape[:axis], count, *shape[axis + 1 :]))


def _reduced(g: Graph) -> None:
    """A reduction that broadcasts over what it is of."""
    v, shape = g.value()
    axes = g.b.some(range(len(shape)), 1)
    y = g.op(g.b.pick("ReduceMean", "ReduceMax", "ReduceL2", "ReduceMin"), v, g.ints(*axes), keepdims=1)
    g.add(g.bounded(g.joined(v, y)), shape)


def _cast(g: Graph) -> None:
    """To another width and back, between other uses."""
    v, shape = g.value()
    kind = g.b.pick(onnx.TensorProto.FLOAT16, onnx.TensorProto.BOOL, onnx.TensorProto.INT32, onnx.TensorProto.INT8)
    scaled = g.op("Mul", v, g.b.given(np.float32(0.0 if kind == onnx.TensorProto.BOOL else 3.3), True))
    back = g.op("Cast", g.op("Cast", scaled, to=kind), to=onnx.TensorProto.FLOAT)
    exact = kind == onnx.TensorProto.FLOAT16
    g.add(g.bounded(g.joined(back if exact else g.op("Mul", back, g.b.given(np.float32(0), True)), v)), shape)


def _half(g: Graph) -> None:
    """A few elementwise operators in half precision."""
    v, shape = g.value()
    x = g.op("Cast", v, to=onnx.TensorProto.FLOAT16)
    y = g.op(g.b.pick("Tanh", "Abs", "Neg"), x)
    y = g.op(g.b.pick("Add", "Mul", "Max"), y, x)
    g.add(g.op("Cast", y, to=onnx.TensorProto.FLOAT), shape)


STEPS: tuple[Callable[[Graph], None], ...] = (
    _residual,
    _residual,
    _residual,
    _residual_of_a_view,
    _diamond,
    _plain,
    _views_of_one,
    _transposed,
    _split,
    _slice,
    _reduced,
    _cast,
    _half,
)


def _start(b: Build) -> Shape:
    """Odd sizes, whole groups of four, sizes over a tile."""
    side = b.pick(7, 5, 13, 8, 4, 9, 31, 33, 3, 1, 2)
    other = b.pick(side, side, 7, 12, 66)
    channels = b.pick(8, 4, 7, 3, 1, 6, 16)
    return b.pick(
        (1, channels, side, other),
        (b.pick(2, 1, 3), channels, side, side),
        (b.pick(1, 2), side * b.pick(1, side), b.pick(8, 5, 12, 33, 64)),
        (side, b.pick(31, 7, 64, 65, 130)),
        (b.pick(1, 3, 8, 70), b.pick(66, 129, 256)),
    )


def reuse(b: Build) -> None:
    """Up to ten steps on what one or two inputs' activations are; the last value and perhaps others are wanted."""
    b.opset, b.rtol, b.atol = 23, 1e-2, 1e-2
    g = Graph(b)
    first = _start(b)
    for shape in [first] if b.flag() else [first, b.pick(first, _start(b))]:
        x = b.tensor("float32", shape, fixed=False)
        g.add(g.bounded(x, always=True), shape)
    for _ in range(b.integer(1, 8)):
        before = list(g.values)
        b.pick(*STEPS)(g)
        if math.prod(g.values[-1][1]) > MOST:
            g.values = before
    made = [n for n, _ in g.values]
    b.keep(*dict.fromkeys([*(b.some(made) if b.integer(0, 2) == 2 else []), made[-1]]))
