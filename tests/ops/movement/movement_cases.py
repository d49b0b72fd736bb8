"""Random cases of the operators that move elements, and what the outputs are for any element type.

What such an operator does is independent of the type. So onnxruntime runs it once on int64 numbers that name the
elements, from 1 on, and its answer says where each element of the output comes from; 0 is the type's zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from pyruntime.ir import Array
from tests.harness import carrier, make_op, run_op
from tests.oracle import node_of, ort_run

__all__ = ["DTYPES", "RANDOM", "Case", "Data", "check_moves", "one_hot_case", "random_case"]

Rng = np.random.Generator


DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "int8": np.int8,
    "float64": np.float64,
    "int4": ml_dtypes.int4,
    "bool": np.bool_,
    "int64": np.int64,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "uint16": np.uint16,
    "uint2": ml_dtypes.uint2,
    "uint32": np.uint32,
}


class Data(tuple[int, ...]):
    """The shape of an input whose elements are moved."""


@dataclass(frozen=True)
class Case:
    """One node. Inputs are `Data`, arrays given as they are, or None."""

    op_type: str
    inputs: tuple[Any, ...]
    opset: int = 18
    outputs: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        inputs = [f"Data{list(x)}" if isinstance(x, Data) else np.asarray(x).tolist() for x in self.inputs]
        return f"{self.op_type}({', '.join(map(str, inputs))}, {self.attributes}, opset {self.opset})"


def sources(case: Case) -> list[Array]:
    """For every output the numbers of the elements it is made of, as onnxruntime has it."""
    start, inputs = 1, []
    for x in case.inputs:
        if isinstance(x, Data):
            size = int(np.prod(x))
            inputs.append(np.arange(start, start + size, dtype=np.int64).reshape(x))
            start += size
        else:
            inputs.append(x)
    return ort_run(case.op_type, inputs, case.opset, case.outputs, **case.attributes)


def values(rng: Rng, shape: tuple[int, ...], dtype: Any) -> Array:
    """Random elements of a type, with NaN and infinity among the float32; `object` gives strings."""
    if dtype is object:
        return rng.integers(0, 1 << 20, shape).astype(str).astype(object)
    x = (rng.standard_normal(shape) * 40).astype(np.float32)
    if dtype is np.float32 and x.size > 2:
        x.reshape(-1)[:2] = np.nan, -np.inf
    if np.dtype(dtype).kind in "iub" or dtype in (ml_dtypes.int4, ml_dtypes.uint2):
        x = np.abs(x) if np.dtype(dtype).kind == "u" or dtype is ml_dtypes.uint2 else x
        limit = {ml_dtypes.int4: 8, ml_dtypes.uint2: 4, np.bool_: 2}.get(dtype, 100)
        x = np.fmod(x, limit)
    return x.astype(dtype)


def check_moves(case: Case, rng: Rng, dtype: str, gpu: Any = None) -> None:
    """The outputs are the elements onnxruntime picks, bit for bit, in any type (one of `DTYPES`, or 'string')."""
    picked = sources(case)
    inputs = [values(rng, x, DTYPES.get(dtype, object)) if isinstance(x, Data) else x for x in case.inputs]
    data = [carrier(v)[1] for v, x in zip(inputs, case.inputs, strict=True) if isinstance(x, Data)]
    zero = np.array([""] if dtype == "string" else [0], data[0].dtype)
    pool = np.concatenate([zero, *(d.reshape(-1) for d in data)])
    op = make_op(node_of(case.op_type, inputs, case.outputs, **case.attributes), {"": case.opset})
    got = run_op(op, inputs, gpu)
    assert len(got) == len(picked)
    for mine, where in zip(got, picked, strict=True):
        np.testing.assert_array_equal(mine, pool[where], err_msg=f"{dtype} {case}")
        assert mine.dtype == pool.dtype


def _shape(rng: Rng, least: int = 1, most: int = 5, large: bool = True) -> Data:
    dims = rng.integers(1, 7, rng.integers(least, most + 1))
    if large and rng.random() < 0.5:
        dims[rng.integers(len(dims)) :][:1] = rng.choice([8, 16, 24, 33])
    return Data(map(int, dims))


def _ints(rng: Rng, values: Any, types: tuple[Any, ...] = (np.int32, np.int64)) -> Array:
    return np.asarray(values, types[rng.integers(len(types))])


def transpose(rng: Rng) -> Case:
    x = _shape(rng, 1, 6)
    return Case("Transpose", (x,), 13, 1, {"perm": rng.permutation(len(x)).tolist()})


def concat(rng: Rng) -> Case:
    x = _shape(rng, 1, 4)
    axis = int(rng.integers(len(x)))
    count = int(rng.choice([1, 2, 3, 5, 12, 40]))
    parts = [Data((*x[:axis], int(rng.integers(0 if count > 1 else 1, 5)), *x[axis + 1 :])) for _ in range(count)]
    return Case("Concat", tuple(parts), int(rng.choice([4, 11, 13])), 1, {"axis": axis - len(x) * (count % 2)})


def split(rng: Rng) -> Case:
    x = _shape(rng, 1, 4)
    axis = int(rng.integers(len(x)))
    form = int(rng.integers(4))
    count = int(rng.choice([1, 2, 3, 13]))
    if form == 0:
        size = int(rng.integers(1, 4))
        x = Data((*x[:axis], size * count - int(rng.integers(0, size) if count > 1 else 0), *x[axis + 1 :]))
        return Case("Split", (x,), 18, count, {"axis": axis, "num_outputs": count})
    sizes = rng.integers(0, 5, count) if form < 3 else np.full(count, rng.integers(1, 5))
    x = Data((*x[:axis], int(sizes.sum()), *x[axis + 1 :]))
    if form == 1:
        return Case("Split", (x, sizes.astype(np.int64)), int(rng.choice([13, 18])), count, {"axis": axis - len(x)})
    if form == 2:
        return Case("Split", (x,), int(rng.choice([2, 11])), count, {"axis": axis, "split": sizes.tolist()})
    return Case("Split", (x,), int(rng.choice([2, 11, 13])), count, {"axis": axis})


def cut(rng: Rng) -> Case:
    x = _shape(rng, 1, 5)
    axes = rng.permutation(len(x))[: rng.integers(1, len(x) + 1)]
    ends = [-(2**31), 2**31 - 1, *range(-9, 10)]
    bounds = [[int(rng.choice(ends)) for _ in axes] for _ in range(2)]
    steps = [int(rng.choice([1, 1, 2, 3, -1, -2, 7, -(2**31)])) for _ in axes]
    if rng.random() < 0.25:
        bounds = [[max(b, -9) for b in bound] for bound in bounds]
        attributes = {"starts": bounds[0], "ends": bounds[1], "axes": axes.tolist()}
        return Case("Slice", (x,), int(rng.choice([7, 9])), 1, attributes)
    kind = (np.int32, np.int64)[rng.integers(2)]
    where = [np.asarray(v, kind) for v in (*bounds, axes - len(x) * (axes % 2), steps)]
    return Case("Slice", (x, *where), int(rng.choice([10, 11, 13])))


def gather(rng: Rng) -> Case:
    x = _shape(rng, 1, 4)
    axis = int(rng.integers(len(x)))
    indices = _ints(rng, rng.integers(-x[axis], x[axis], rng.integers(0, 6, rng.integers(0, 3))))
    return Case("Gather", (x, indices), int(rng.choice([1, 11, 13])), 1, {"axis": axis - len(x) * (axis % 2)})


def gather_elements(rng: Rng) -> Case:
    x = _shape(rng, 1, 4)
    axis = int(rng.integers(len(x)))
    shape = [int(rng.integers(1, d + 1)) for d in x]
    shape[axis] = int(rng.integers(0, 9))
    return Case("GatherElements", (x, _ints(rng, rng.integers(-x[axis], x[axis], shape))), 13, 1, {"axis": axis})


def gather_nd(rng: Rng) -> Case:
    x = _shape(rng, 1, 5)
    b = int(rng.integers(0, len(x)))
    k = int(rng.integers(1, len(x) - b + 1))
    picks = rng.integers(0, 4, rng.integers(0, 3))
    indices = np.stack([rng.integers(-d, d, (*x[:b], *picks)) for d in x[b : b + k]], axis=-1)
    return Case("GatherND", (x, indices), 13, 1, {"batch_dims": b})


def scatter_elements(rng: Rng) -> Case:
    x = _shape(rng, 1, 4)
    axis = int(rng.integers(len(x)))
    shape = [int(rng.integers(1, d + 1)) for d in x]
    shape[axis] = int(rng.integers(0, 9))
    indices = _ints(rng, rng.integers(-x[axis], x[axis], shape))
    name, opset = [("Scatter", 9), ("ScatterElements", 11), ("ScatterElements", 18)][rng.integers(3)]
    return Case(name, (x, indices, Data(shape)), opset, 1, {"axis": axis - len(x) * (axis % 2)})


def scatter_nd(rng: Rng) -> Case:
    x = _shape(rng, 1, 5)
    k = int(rng.integers(1, len(x) + 1))
    picks = rng.integers(0, 4, rng.integers(0, 3))
    indices = np.stack([rng.integers(-d, d, picks) for d in x[:k]], axis=-1)
    return Case("ScatterND", (x, indices, Data((*map(int, picks), *x[k:]))), int(rng.choice([11, 13, 18])))


def expand(rng: Rng) -> Case:
    y = _shape(rng, 1, 5)
    x = Data(d if rng.random() < 0.5 else 1 for d in y[rng.integers(0, len(y)) :])
    shape = [1 if d in x[-1:] and rng.random() < 0.3 else d for d in y]
    return Case("Expand", (x, np.array(shape, np.int64)), int(rng.choice([8, 13])))


def tile(rng: Rng) -> Case:
    x = _shape(rng, 1, 4)
    return Case("Tile", (x, rng.integers(0 if rng.random() < 0.2 else 1, 4, len(x))), int(rng.choice([6, 13])))


def pad(rng: Rng) -> Case:
    mode = str(rng.choice(["constant", "constant", "edge", "reflect", "wrap"]))
    x = _shape(rng, 1, 5)
    axes = sorted(rng.permutation(len(x))[: rng.integers(1, len(x) + 1)].tolist())
    sides = []
    for axis in axes:
        crops = rng.integers(0, 3, 2) if x[axis] > 4 else np.zeros(2, int)
        most = x[axis] - int(crops.sum()) - 1 if mode == "reflect" else 5
        sides.append(np.where(crops > 0, -crops, rng.integers(0, most + 1, 2)))
    pads = np.array(sides, np.int64).T.reshape(-1)
    value = Data(()) if mode == "constant" and rng.random() < 0.7 else None
    return Case("Pad", (x, pads, value, _ints(rng, axes)), 19, 1, {"mode": mode})


def trilu(rng: Rng) -> Case:
    x = _shape(rng, 2, 4)
    k = None if rng.random() < 0.3 else np.array(rng.integers(-8, 9), np.int64)
    return Case("Trilu", (x, k), 14, 1, {"upper": int(rng.integers(2))})


def reverse_sequence(rng: Rng) -> Case:
    x = _shape(rng, 2, 4)
    time = int(rng.integers(2))
    lens = rng.integers(1, x[time] + 1, x[1 - time])
    return Case("ReverseSequence", (x, lens), 10, 1, {"time_axis": time, "batch_axis": 1 - time})


def one_hot(rng: Rng) -> Case:
    shape = _shape(rng, 1, 3, large=False)
    depth = int(rng.integers(1, 9))
    indices = _ints(rng, rng.integers(-depth - 2, depth + 2, shape), (np.int64,))
    axis = int(rng.integers(-len(shape) - 1, len(shape) + 1))
    return Case("OneHot", (indices, np.array(depth, np.int64), Data((2,))), 11, 1, {"axis": axis})


def center_crop_pad(rng: Rng) -> Case:
    x = _shape(rng, 1, 4)
    axes = rng.permutation(len(x))[: rng.integers(1, len(x) + 1)].tolist()
    return Case("CenterCropPad", (x, rng.integers(1, 12, len(axes))), 18, 1, {"axes": axes})


def compress(rng: Rng) -> Case:
    x = _shape(rng, 1, 4)
    axis = int(rng.integers(-len(x), len(x)))
    attributes = {"axis": axis} if rng.random() < 0.7 else {}
    length = rng.integers(1, (x[axis] if attributes else int(np.prod(x))) + 1)
    return Case("Compress", (x, rng.random(length) < 0.5), int(rng.choice([9, 11])), 1, attributes)


RANDOM: dict[str, Callable[[Rng], Case]] = {
    f.__name__: f
    for f in (
        transpose, concat, split, cut, gather, gather_elements, gather_nd, scatter_elements, scatter_nd, expand, tile,
        pad, trilu, reverse_sequence, one_hot, center_crop_pad, compress,
    )
}  # fmt: skip


def random_case(name: str, rng: Rng) -> Case:
    """A random case of one of `RANDOM`."""
    return RANDOM[name](rng)


def one_hot_case(kind: str) -> tuple[Array, Array]:
    """Indices of a type at depth 3, with what does not fit it or the depth; and where the output is on."""
    limits = np.iinfo(kind) if kind[0] in "iu" else None
    numbers: list[Any] = [0, 2, 3] if limits else [0.9, 2.9, -0.9, -1.0, -3.9, np.nan, np.inf, -np.inf, 1e20, -4.0]
    hot = [0, 2, None] if limits else [0, 2, 0, 2, 0, None, None, None, None, None]
    if limits:
        numbers += [limits.max, limits.min, limits.max - 2]
        hot += [None, 0 if limits.min == 0 else None, None]
    if limits and limits.min < 0:
        numbers += [-1, -3, -4]
        hot += [2, 0, None]
    return np.array(numbers, kind), np.array([[place == d for d in range(3)] for place in hot])
