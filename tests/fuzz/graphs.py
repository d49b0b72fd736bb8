"""Graphs of a dozen nodes: what passes rewrite, the planner places, and memory is shared between."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.build import Build

__all__ = ["graphs"]

F = "float32"
Shape = tuple[int, ...]


@dataclass
class Graph:
    """A graph under construction: values that nodes may read, all float32 and of moderate size."""

    b: Build
    values: list[tuple[str, Shape]] = field(default_factory=list)

    def value(self) -> tuple[str, Shape]:
        """A value made before, mostly a late one."""
        last = len(self.values) - 1
        return self.values[last - min(last, self.b.integer(0, 4))]

    def like(self, shape: Shape) -> str:
        """Another value that broadcasts to `shape`: one made before, or a constant."""
        same = [n for n, s in self.values if s == shape]
        if same and self.b.flag():
            return self.b.pick(*same[::-1])
        return self.b.tensor(F, self.b.broadcast_of(shape), fixed=self.b.integer(0, 3) != 3)

    def add(self, op_type: str, inputs: list[str], shape: Shape, **attributes: object) -> str:
        """Add a node; its output becomes a value."""
        (name,) = self.b.node(op_type, inputs, **attributes)
        self.values.append((name, shape))
        return name

    def hidden(self, op_type: str, inputs: list[str], **attributes: object) -> str:
        """Add a node whose output only the pattern at hand reads."""
        return self.b.node(op_type, inputs, **attributes)[0]

    def constant(self, value: float) -> str:
        """A float scalar."""
        return self.b.given(np.float32(value), True)


def _unary(g: Graph) -> None:
    x, shape = g.value()
    g.add(g.b.pick("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "HardSwish", "Softsign", "Identity"), [x], shape)


def _binary(g: Graph) -> None:
    x, shape = g.value()
    inputs = [x, g.like(shape)]
    g.add(g.b.pick("Add", "Sub", "Mul", "Max", "Min"), inputs if g.b.flag() else inputs[::-1], shape)


def _choice(g: Graph) -> None:
    x, shape = g.value()
    condition = g.hidden(g.b.pick("Greater", "LessOrEqual"), [x, g.like(shape)])
    g.add("Where", [condition, x, g.like(shape)], shape)


def _reshape(g: Graph) -> None:
    x, shape = g.value()
    wanted = g.b.permutation(shape) if g.b.flag() else (math.prod(shape[:-1]), *shape[-1:])
    g.add("Reshape", [x, g.b.ints(wanted)], tuple(wanted))


def _reshape_by_shape(g: Graph) -> None:
    """The shape is computed: Shape, Gather, Concat."""
    x, shape = g.value()
    if not shape:
        return
    last = g.hidden("Gather", [g.hidden("Shape", [x]), g.b.given(np.array([len(shape) - 1], np.int64), True)])
    wanted = g.hidden("Concat", [g.b.given(np.array([-1], np.int64), True), last], axis=0)
    g.add("Reshape", [x, wanted], (math.prod(shape[:-1]), shape[-1]))


def _transpose(g: Graph) -> None:
    x, shape = g.value()
    order = g.b.permutation(range(len(shape)))
    if order:
        g.add("Transpose", [x], tuple(shape[i] for i in order), perm=order)


def _concat(g: Graph) -> None:
    x, shape = g.value()
    if not shape or math.prod(shape) > 5000:
        return
    axis = g.b.integer(0, len(shape) - 1)
    others = [n for n, s in g.values if s == shape]
    count = g.b.integer(1, 2)
    wide = tuple(n * (count + 1) if i == axis else n for i, n in enumerate(shape))
    g.add("Concat", [x, *(g.b.pick(*others) for _ in range(count))], wide, axis=axis)


def _split(g: Graph) -> None:
    x, shape = g.value()
    axes = [i for i, n in enumerate(shape) if n > 1]
    if not axes:
        return
    axis = g.b.pick(*axes)
    first = g.b.integer(1, shape[axis] - 1)
    parts = [first, shape[axis] - first]
    names = g.b.node("Split", [x, g.b.ints(parts)], 2, axis=axis)
    g.values += [(n, (*shape[:axis], p, *shape[axis + 1 :])) for n, p in zip(names, parts, strict=True)]


def _slice(g: Graph) -> None:
    x, shape = g.value()
    axes = [i for i, n in enumerate(shape) if n > 1]
    if not axes:
        return
    axis = g.b.pick(*axes)
    start, step = g.b.integer(0, shape[axis] - 1), g.b.pick(1, 2)
    count = -(-(shape[axis] - start) // step)
    bounds = [g.b.ints([v]) for v in (start, shape[axis], axis, step)]
    g.add("Slice", [x, *bounds], (*shape[:axis], count, *shape[axis + 1 :]))


def _matmul(g: Graph) -> None:
    x, shape = g.value()
    if len(shape) < 2:
        return
    n = g.b.pick(4, 1, 8, 17, 32)
    y = g.add("MatMul", [x, g.b.tensor(F, (shape[-1], n), "unit", True)], (*shape[:-1], n))
    if g.b.flag():
        y = g.add("Add", [y, g.b.tensor(F, (n,), "normal", True)], (*shape[:-1], n))
    if g.b.flag():
        g.add("Tanh", [y], (*shape[:-1], n))


def _gemm(g: Graph) -> None:
    x, shape = g.value()
    if len(shape) != 2:
        return
    n = g.b.pick(4, 1, 16)
    inputs = [x, g.b.tensor(F, (n, shape[1]), "unit", True), g.b.tensor(F, (n,), "normal", True)]
    g.add("Gemm", inputs, (shape[0], n), transB=1, alpha=g.b.pick(1.0, 0.5))


def _conv(g: Graph) -> None:
    x, shape = g.value()
    if len(shape) != 4 or min(shape[2:]) < 3:
        return
    maps, k = g.b.pick(4, 1, 8), g.b.pick(1, 3)
    w = g.b.tensor(F, (maps, shape[1], k, k), "unit", True)
    made = (shape[0], maps, *shape[2:])
    y = g.add("Conv", [x, w, g.b.tensor(F, (maps,), fixed=True)], made, kernel_shape=[k, k], pads=[k // 2] * 4)
    if g.b.flag():
        kinds = ("normal", "normal", "normal", "positive")
        y = g.add("BatchNormalization", [y, *(g.b.tensor(F, (maps,), kind, True) for kind in kinds)], made)
    if g.b.flag():
        g.add(g.b.pick("Relu", "Sigmoid", "HardSwish"), [y], made)


def _softmax(g: Graph) -> None:
    x, shape = g.value()
    if shape:
        g.add("Softmax", [x], shape, axis=g.b.integer(-len(shape), len(shape) - 1))


def _reduce(g: Graph) -> None:
    x, shape = g.value()
    if not shape:
        return
    axis = g.b.integer(0, len(shape) - 1)
    keep = int(g.b.flag())
    made = (*shape[:axis], *((1,) if keep else ()), *shape[axis + 1 :])
    axes = g.b.given(np.array([axis], np.int64), True)
    g.add(g.b.pick("ReduceMean", "ReduceMax", "ReduceL2"), [x, axes], made, keepdims=keep)


def _layer_norm(g: Graph) -> None:
    """As exporters write it out."""
    x, shape = g.value()
    if len(shape) < 2 or shape[-1] < 2:
        return
    axes = g.b.given(np.array([-1], np.int64), True)
    mean = g.hidden("ReduceMean", [x, axes], keepdims=1)
    centred = g.hidden("Sub", [x, mean])
    variance = g.hidden("ReduceMean", [g.hidden("Pow", [centred, g.constant(2)]), axes], keepdims=1)
    root = g.hidden("Sqrt", [g.hidden("Add", [variance, g.constant(1e-2)])])
    y = g.add("Div", [centred, root], shape)
    y = g.add("Mul", [y, g.b.tensor(F, shape[-1:], fixed=True)], shape)
    g.add("Add", [y, g.b.tensor(F, shape[-1:], fixed=True)], shape)


def _gelu(g: Graph) -> None:
    x, shape = g.value()
    e = g.hidden("Erf", [g.hidden("Div", [x, g.constant(math.sqrt(2))])])
    half = g.hidden("Mul", [x, g.hidden("Add", [e, g.constant(1)])])
    g.add("Mul", [half, g.constant(0.5)], shape)


def _attention(g: Graph) -> None:
    """softmax(q kᵀ · scale + mask) v of heads taken from one projection, as exporters write it."""
    b = g.b
    batch, length, heads, width = b.integer(1, 2), b.pick(3, 1, 9, 33), b.pick(2, 1, 3), b.pick(4, 8, 16)
    x = b.tensor(F, (batch, length, heads * width), fixed=False)
    split = b.given(np.array([batch, length, heads, width], np.int64), True)
    parts = []
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        made = g.hidden("MatMul", [x, b.tensor(F, (heads * width, heads * width), "unit", True)])
        parts.append(g.hidden("Transpose", [g.hidden("Reshape", [made, split])], perm=perm))
    scores = g.hidden("Mul", [g.hidden("MatMul", parts[:2]), g.constant(0.02)])
    if b.flag():
        scores = g.hidden("Add", [scores, b.tensor(F, (length, length), fixed=b.flag())])
    y = g.hidden("MatMul", [g.hidden("Softmax", [scores], axis=-1), parts[2]])
    y = g.hidden("Transpose", [y], perm=(0, 2, 1, 3))
    g.add(
        "Reshape",
        [y, b.given(np.array([batch, length, heads * width], np.int64), True)],
        (batch, length, heads * width),
    )


STEPS: tuple[Callable[[Graph], None], ...] = (
    _unary,
    _binary,
    _unary,
    _binary,
    _choice,
    _reshape,
    _reshape_by_shape,
    _transpose,
    _concat,
    _split,
    _slice,
    _matmul,
    _gemm,
    _conv,
    _softmax,
    _reduce,
    _layer_norm,
    _gelu,
    _attention,
)


def graphs(b: Build) -> None:
    """Up to a dozen steps; the last value and some before it are wanted."""
    b.rtol, b.atol = 1e-2, 1e-2
    g = Graph(b)
    for _ in range(b.integer(1, 2)):
        shape = (b.pick(1, 2), b.pick(3, 1, 4), b.pick(4, 5, 1, 8), b.pick(4, 1, 6, 16))[-b.integer(1, 4) :]
        g.values.append((b.tensor(F, shape, "normal", False), shape))
    for _ in range(b.integer(1, 12)):
        b.pick(*STEPS)(g)
        if b.integer(0, 5) == 5:
            x, made = g.value()
            g.add("Tanh", [x], made)
    if not b.nodes:
        _unary(g)
    made_here = [n for n, _ in g.values if n.startswith("y")]
    b.keep(*dict.fromkeys([*b.some(made_here), made_here[-1]]))
