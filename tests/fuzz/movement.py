"""Operators that move elements: layout, pieces, indices, padding."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.arrays import FLOATS, INTEGERS
from tests.fuzz.build import Build

__all__ = ["gathers", "joins", "layout", "pads", "scatters", "selections", "slices"]

TYPES = ("float32", "float16", "int64", "int8", "bool", "uint16", "int32", "float64", "bfloat16", "uint8")


def _axis(b: Build, rank: int) -> int:
    return b.integer(0, rank - 1) - (rank if b.flag() else 0)


def _factored(b: Build, count: int) -> list[int]:
    """A shape of `count` elements."""
    dims: list[int] = []
    while len(dims) < 3 and count > 1:
        divisors = [d for d in range(1, min(count, 64) + 1) if count % d == 0]
        dims.append(b.pick(*divisors))
        count //= dims[-1]
    return b.permutation([*dims, count])


def layout(b: Build) -> None:
    """Transpose, Reshape, Flatten, Squeeze, Unsqueeze, Expand, Tile, DepthToSpace, SpaceToDepth."""
    name = b.pick(
        "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"
    )
    dtype, shape = b.pick(*TYPES), b.shape(1 if name == "Flatten" else 0)
    if name == "Transpose":
        order = b.permutation(range(len(shape)))
        b.node(name, [b.tensor(dtype, shape)], perm=order if shape and b.flag() else None)
    elif name == "Reshape":
        wanted = _factored(b, math.prod(shape)) if 0 not in shape else list(shape)
        if b.flag() and 0 not in shape:
            wanted[b.integer(0, len(wanted) - 1)] = -1
        b.node(name, [b.tensor(dtype, shape), b.ints(wanted)])
    elif name == "Flatten":
        b.node(name, [b.tensor(dtype, shape)], axis=b.integer(-len(shape), len(shape)))
    elif name in ("Squeeze", "Unsqueeze"):
        _rank(b, name, dtype, shape)
    elif name == "Expand":
        b.node(name, [b.tensor(dtype, b.broadcast_of(shape)), b.ints(shape)])
    elif name == "Tile":
        b.node(name, [b.tensor(dtype, shape), b.ints([b.integer(1, 3) for _ in shape])])
    else:
        block, channels = b.pick(1, 2, 3), b.integer(1, 3)
        n, h, w = b.integer(1, 2), b.integer(1, 5), b.integer(1, 5)
        if name == "DepthToSpace":
            x = b.tensor(dtype, (n, channels * block * block, h, w))
            b.node(name, [x], blocksize=block, mode=b.pick("DCR", "CRD"))
        else:
            b.node(name, [b.tensor(dtype, (n, channels, h * block, w * block))], blocksize=block)


def _rank(b: Build, name: str, dtype: str, shape: tuple[int, ...]) -> None:
    b.opset = b.pick(21, 13, 11)
    if name == "Squeeze":
        shape = tuple(1 if b.flag() else n for n in shape)
        axes = b.some([i for i, n in enumerate(shape) if n == 1])
        rank = len(shape)
    else:
        rank = len(shape) + b.integer(1, 2)
        axes = b.permutation(range(rank))[: rank - len(shape)]
    axes = [a - (rank if b.flag() else 0) for a in axes]
    x = b.tensor(dtype, shape)
    if b.opset == 11:
        b.node(name, [x], axes=axes or None)
    else:
        b.node(name, [x, b.ints(axes)] if axes else [x])


def slices(b: Build) -> None:
    """Slice with any step and bounds beyond the ends; Split; ReverseSequence; Trilu."""
    name = b.pick("Slice", "Split", "ReverseSequence", "Trilu")
    dtype = b.pick(*TYPES)
    if name == "Slice":
        shape = b.shape(1)
        axes = b.some(range(len(shape)), 1)
        starts, ends = ([b.integer(-9, 9) for _ in axes] for _ in range(2))
        steps = [b.pick(1, 2, 3, -1, -2) for _ in axes]
        ends = [b.pick(e, 2**31 - 1, -(2**31)) for e in ends]
        signed = [a - (len(shape) if b.flag() else 0) for a in axes]
        b.node(name, [b.tensor(dtype, shape), b.ints(starts), b.ints(ends), b.ints(signed), b.ints(steps)])
    elif name == "Split":
        _split(b, dtype)
    elif name == "ReverseSequence":
        shape = (b.size(1), b.size(1), *b.shape(0, 2, 1))
        batch = b.pick(1, 0)
        lengths = [b.integer(1, shape[1 - batch]) for _ in range(shape[batch])]
        b.node(name, [b.tensor(dtype, shape), b.ints(lengths)], batch_axis=batch, time_axis=1 - batch)
    else:
        b.node(name, [b.tensor(dtype, b.shape(2, 4)), b.scalar(b.integer(-4, 6), "int64")], upper=int(b.flag()))


def _split(b: Build, dtype: str) -> None:
    b.opset = b.pick(21, 13, 11)
    shape = b.shape(1, 4, 1)
    axis = b.integer(0, len(shape) - 1)
    parts, left = [], shape[axis]
    while left and len(parts) < 5:
        parts.append(b.integer(1, left))
        left -= parts[-1]
    parts[-1] += left
    x, signed = b.tensor(dtype, shape), axis - (len(shape) if b.flag() else 0)
    if b.opset == 11:
        b.node("Split", [x], len(parts), axis=signed, split=parts)
    elif b.opset == 21 and b.flag():
        count = b.integer(1, min(5, shape[axis]))
        whole = -(-shape[axis] // count) * (count - 1) < shape[axis]
        b.node("Split", [x], count if whole else 1, axis=signed, num_outputs=count if whole else 1)
    else:
        b.node("Split", [x, b.ints(parts)], len(parts), axis=signed)


def joins(b: Build) -> None:
    """Concat of one to twelve."""
    dtype, shape = b.pick(*TYPES), b.shape(1, 4)
    axis, parts = b.integer(0, len(shape) - 1), list[str]()
    for _ in range(b.pick(2, 1, 3, 12)):
        size = b.integer(0, 5)
        parts.append(b.tensor(dtype, (*shape[:axis], size, *shape[axis + 1 :])))
    b.node("Concat", parts, axis=axis - (len(shape) if b.flag() else 0))


def _indices(b: Build, shape: tuple[int, ...], size: int, kind: str = "int64") -> str:
    rng = np.random.default_rng(b.integer(0, 999))
    values = rng.integers(-size, size, shape).astype(kind)
    return b.given(values, b.integer(0, 3) == 3, f"integers in [-{size}, {size}) {shape} = {values.tolist()}")


def gathers(b: Build) -> None:
    """Gather, GatherElements, GatherND, OneHot."""
    name = b.pick("Gather", "GatherElements", "GatherND", "OneHot")
    dtype, kind = b.pick(*TYPES), b.pick("int64", "int32")
    if name == "OneHot":
        depth, rank = b.integer(1, 9), b.shape(1, 3)
        values = b.tensor(b.pick("float32", "int32", "int64"), (2,), fixed=True)
        axis = b.integer(-len(rank) - 1, len(rank))
        b.node(name, [_indices(b, rank, depth, "int64"), b.scalar(depth, "int64"), values], axis=axis)
        return
    shape = b.shape(1, 4, 1)
    axis = b.integer(0, len(shape) - 1)
    signed = axis - (len(shape) if b.flag() else 0)
    x = b.tensor(dtype, shape)
    if name == "Gather":
        b.node(name, [x, _indices(b, b.shape(0, 2), shape[axis], kind)], axis=signed)
    elif name == "GatherElements":
        inner = tuple(b.integer(0, n + (2 if i == axis else 0)) for i, n in enumerate(shape))
        b.node(name, [x, _indices(b, inner, shape[axis], kind)], axis=signed)
    else:
        batch = b.integer(0, len(shape) - 1)
        depth = b.integer(1, len(shape) - batch)
        outer = (*shape[:batch], *b.shape(0 if batch else 1, 2))
        rng = np.random.default_rng(b.integer(0, 999))
        columns = [rng.integers(-n, n, outer) for n in shape[batch : batch + depth]]
        index = np.stack(columns, -1).astype(np.int64)
        b.node(name, [x, b.given(index, b.flag(), f"indices {index.tolist()}")], batch_dims=batch)


def scatters(b: Build) -> None:
    """ScatterElements and ScatterND; where indices meet, by a reduction that does not mind their order."""
    name = b.pick("ScatterElements", "ScatterND")
    shape = b.shape(1, 3, 1)
    reduction = b.pick("none", "add", "mul", "max", "min")
    b.opset = b.pick(18, 21) if reduction != "none" else b.pick(21, 16, 13)
    dtype = b.pick("float32", "int32", "int64", "float16") if reduction == "none" else b.pick("float32", "int32")
    attributes = {"reduction": reduction} if b.opset > 13 else {}
    x = b.tensor(dtype, shape)
    rng = np.random.default_rng(b.integer(0, 999))
    if name == "ScatterElements":
        axis = b.integer(0, len(shape) - 1)
        inner = tuple(b.integer(1, n) for n in shape)
        if reduction == "none":
            columns = rng.permuted(np.broadcast_to(np.arange(shape[axis]), (math.prod(inner), shape[axis])), axis=1)
            taken = columns[:: inner[axis]][: math.prod(inner) // inner[axis], : inner[axis]]
            rest = [n for i, n in enumerate(inner) if i != axis]
            index = np.moveaxis(taken.reshape(*rest, inner[axis]), -1, axis)
        else:
            index = rng.integers(-shape[axis], shape[axis], inner)
        given = b.given(index.astype(np.int64), b.flag(), f"indices {index.tolist()}")
        b.node(name, [x, given, b.tensor(dtype, inner, "positive")], axis=axis, **attributes)
        return
    depth = b.integer(1, len(shape))
    places = math.prod(shape[:depth])
    count = b.integer(1, min(places, 9))
    flat = rng.permutation(places)[:count] if reduction == "none" else rng.integers(0, places, count)
    index = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
    updates = b.tensor(dtype, (count, *shape[depth:]), "positive")
    b.node(name, [x, b.given(index, b.flag(), f"indices {index.tolist()}"), updates], **attributes)


def pads(b: Build) -> None:
    """Pad in every mode, with pads that cut off, with axes."""
    b.opset = b.pick(21, 18, 13, 11)
    modes = ("constant", "edge", "reflect", *(("wrap",) if b.opset > 18 else ()))
    mode = b.pick(*modes)
    dtype = b.pick("float32", "int32", "float64", "int8", "uint8", "int64") if b.opset > 11 else "float32"
    shape = b.shape(1, 4, 1)
    axes = b.some(range(len(shape)), 1) if b.opset >= 18 and b.flag() else list(range(len(shape)))
    most = [min(shape[a] - 1, 4) if mode in ("reflect", "wrap") else 4 for a in axes]
    pads = [b.integer(0, m) for m in (*most, *most)]
    if mode == "constant" and b.integer(0, 3) == 3:
        pads = [
            -(p % shape[a]) if b.flag() and i < len(axes) else p
            for i, (p, a) in enumerate(zip(pads, axes * 2, strict=True))
        ]
    inputs = [b.tensor(dtype, shape), b.ints(pads)]
    if mode == "constant" and b.flag():
        inputs.append(b.scalar(3, dtype))
    if b.opset >= 18 and len(axes) < len(shape):
        inputs += [""] * (3 - len(inputs)) + [b.ints([a - (len(shape) if b.flag() else 0) for a in axes])]
    b.node("Pad", inputs, mode=mode)


def selections(b: Build) -> None:
    """Operators with data-dependent shapes, EyeLike, Range, ConstantOfShape, CumSum, Shape, Size."""
    name = b.pick("NonZero", "Compress", "Unique", "EyeLike", "Range", "CumSum", "Shape", "Size")
    if name == "NonZero":
        b.node(name, [b.tensor(b.pick("float32", "int32", "int64", "bool", "uint8"), b.shape(1), "normal")])
    elif name == "Compress":
        shape = b.shape(1, 4, 1)
        axis = b.pick(None, *range(-len(shape), len(shape)))
        whole = math.prod(shape) if axis is None else shape[axis]
        b.node(name, [b.tensor(b.pick(*TYPES), shape), b.tensor("bool", (b.integer(1, whole),))], axis=axis)
    elif name == "Unique":
        shape = b.shape(1, 3, 1)
        axis = b.pick(None, *range(-len(shape), len(shape)))
        b.node(name, [b.tensor(b.pick("float32", "int64", "int8"), shape, "ties")], 4, sorted=int(b.flag()), axis=axis)
    elif name == "EyeLike":
        b.opset = b.pick(9, 21)
        b.node(name, [b.tensor(b.pick("float32", "int32"), b.shape(2, 2))], k=b.integer(-5, 5))
    elif name == "Range":
        dtype = b.pick("int64", "float32", "int32", "int16")
        start, count, delta = b.integer(-9, 9), b.integer(0, 30), b.pick(1, 2, -1, 3)
        b.node(name, [b.scalar(v, dtype) for v in (start, start + count * delta, delta)])
    elif name == "CumSum":
        shape = b.shape(1, 4)
        dtype = b.pick("float32", "int32", "int64", "float64")
        flags = {"exclusive": int(b.flag()), "reverse": int(b.flag())}
        b.atol = 1e-2
        b.node(name, [b.tensor(dtype, shape), b.scalar(_axis(b, len(shape)), "int64")], **flags)
    else:
        b.node(name, [b.tensor(b.pick(*FLOATS, *INTEGERS), b.shape())])
