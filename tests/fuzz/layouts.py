"""Graphs that alternate convolutions and layers over the last dimension, with transpositions between them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.build import Build
from tests.fuzz.graphs import F, Graph, Shape

__all__ = ["layouts"]


def _first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def _last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _turn(g: Graph) -> None:
    """To channels first, or last."""
    x, shape = g.value()
    if len(shape) > 2:
        perm = (_first if g.b.flag() else _last)(len(shape))
        g.add("Transpose", [x], tuple(shape[p] for p in perm), perm=perm)


def _flat(g: Graph) -> None:
    """Pixels in one dimension, or that as a picture."""
    x, shape = g.value()
    if len(shape) > 3:
        wanted: Shape = (*shape[:2], math.prod(shape[2:]))
    elif len(shape) == 3 and shape[2]:
        high = g.b.pick(*[d for d in range(1, shape[2] + 1) if shape[2] % d == 0])
        wanted = (*shape[:2], high, shape[2] // high)
    else:
        return
    g.add("Reshape", [x, g.b.given(np.array(wanted, np.int64), True)], wanted)


def _weights(g: Graph, *shape: int) -> list[str]:
    """Weights and perhaps a bias, constant as in models."""
    return [g.b.tensor(F, shape, fixed=True), *([g.b.tensor(F, shape[:1], fixed=True)] if g.b.flag() else [])]


def _depthwise(g: Graph) -> None:
    x, shape = g.value()
    if len(shape) not in (3, 4) or not math.prod(shape):
        return
    axes = shape[2:]
    kernel, pads = [g.b.integer(1, 3) for _ in axes], [g.b.integer(0, 1) for _ in axes * 2]
    strides, dilations = [g.b.pick(1, 2) for _ in axes], [g.b.pick(1, 2) for _ in axes]
    padded = [n + a + b for n, a, b in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    made = [(r - e) // s + 1 for r, e, s in zip(padded, reach, strides, strict=True)]
    if min(made) < 1:
        return
    attributes = {"group": shape[1], "pads": pads, "strides": strides, "dilations": dilations}
    g.add("Conv", [x, *_weights(g, shape[1], 1, *kernel)], (*shape[:2], *made), **attributes)


def _patches(g: Graph) -> None:
    """Windows side by side; of one element: a pointwise convolution."""
    x, shape = g.value()
    if len(shape) < 3 or not math.prod(shape):
        return
    kernel = [g.b.integer(1, min(3, n)) for n in shape[2:]]
    maps = g.b.pick(4, 3)
    made = (shape[0], maps, *(n // k for n, k in zip(shape[2:], kernel, strict=True)))
    g.add("Conv", [x, *_weights(g, maps, shape[1], *kernel)], made, strides=kernel)


def _elementwise(g: Graph) -> None:
    """Of one value, two of one shape, or with one number a channel, image and channel, or column."""
    x, shape = g.value()
    ones = (1,) * (len(shape) - 2)
    others: list[Shape] = [shape, (), shape[-1:]]
    others += [(shape[1], *ones), (1, shape[1], *ones), (*shape[:2], *ones)] if len(shape) > 2 else []
    if g.b.flag():
        g.add(g.b.pick("Relu", "Sigmoid", "Neg"), [x], shape)
        return
    other = g.b.pick(*others)
    same = [n for n, s in g.values if s == shape]
    operand = g.b.pick(*same[::-1]) if other == shape else g.b.tensor(F, other)
    g.add(g.b.pick("Add", "Mul", "Sub"), [x, operand] if g.b.flag() else [operand, x], shape)


def _reduce(g: Graph) -> None:
    """All spatial dimensions."""
    x, shape = g.value()
    if len(shape) < 3 or not math.prod(shape):
        return
    ones = (1,) * (len(shape) - 2)
    if g.b.flag():
        g.add("GlobalAveragePool", [x], (*shape[:2], *ones))
        return
    axes = g.b.given(np.arange(2, len(shape)), True)
    keep = g.b.flag()
    kept = (*shape[:2], *(ones if keep else ()))
    g.add(g.b.pick("ReduceMean", "ReduceMax", "ReduceSum"), [x, axes], kept, keepdims=int(keep))


def _rows(g: Graph) -> None:
    """A norm, or a product, over the last dimension."""
    x, shape = g.value()
    if len(shape) < 2 or not math.prod(shape):
        return
    if g.b.flag():
        scale = g.b.tensor(F, shape[-1:], fixed=True)
        g.add("LayerNormalization", [x, scale], shape, axis=-1)
        return
    wide = g.b.pick(4, 8, 5)
    g.add("MatMul", [x, g.b.tensor(F, (shape[-1], wide), fixed=True)], (*shape[:-1], wide))


_FORMS: tuple[Callable[[Graph], None], ...] = (
    _turn,
    _turn,
    _depthwise,
    _elementwise,
    _patches,
    _flat,
    _rows,
    _reduce,
)


def layouts(b: Build) -> None:
    """Four to fourteen nodes; the last value is an output, others now and then."""
    b.rtol, b.atol = 3e-3, 1e-2
    g = Graph(b)
    axes = [b.integer(1, 6) for _ in range(b.pick(2, 1, 2, 3))]
    batch, channels = b.pick(1, 2), b.pick(4, 8, 3)
    shape = (batch, *axes, channels) if b.flag() else (batch, channels, *axes)
    g.values.append((b.tensor(F, shape, fixed=False), shape))
    for _ in range(b.integer(4, 14)):
        b.pick(*_FORMS)(g)
    made = [n for n, _ in g.values[1:]]
    if not made:
        g.add("Relu", [g.values[0][0]], shape)
        made = [g.values[-1][0]]
    b.keep(*dict.fromkeys([*b.some(made[:-1])[:2], made[-1]]))
