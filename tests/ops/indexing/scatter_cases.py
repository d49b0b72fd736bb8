"""Random scatters with duplicate indices and every reduction, and the specification's loop over the updates."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.oracle import node_of

__all__ = ["DTYPES", "REDUCTIONS", "check_scatter", "random_scatter"]

REDUCTIONS = ("none", "add", "mul", "max", "min")
DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "bool": np.bool_,
}
_FOLD = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _values(rng: np.random.Generator, shape: Any, dtype: Any) -> Array:
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))
    if dtype is np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    return np.asarray(rng.standard_normal(shape) * 2, dtype)


def random_scatter(rng: np.random.Generator, op_type: str, dtype: str) -> tuple[list[Array], dict[str, Any]]:
    """(data, indices, updates) and attributes; few places for many updates."""
    shape = tuple(int(d) for d in rng.integers(1, 6, rng.integers(1, 4)))
    kind = DTYPES[dtype]
    if op_type == "ScatterND":
        k = int(rng.integers(1, len(shape) + 1))
        picks = tuple(int(d) for d in rng.integers(1, 7, rng.integers(1, 3)))
        indices = np.stack([rng.integers(-d, d, picks) for d in shape[:k]], axis=-1)
        return [_values(rng, shape, kind), indices, _values(rng, picks + shape[k:], kind)], {}
    axis = int(rng.integers(len(shape)))
    picks = tuple(int(rng.integers(1, 12 if d == axis else size + 1)) for d, size in enumerate(shape))
    indices = rng.integers(-shape[axis], shape[axis], picks).astype((np.int32, np.int64)[rng.integers(2)])
    return [_values(rng, shape, kind), indices, _values(rng, picks, kind)], {"axis": axis}


def expected(op_type: str, data: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    """The updates applied one after another; 16-bit floats are folded in float32."""
    small = data.dtype == np.float16 or data.dtype == ml_dtypes.bfloat16
    y = data.astype(np.float32) if small else data.copy()
    updates = updates.astype(y.dtype)
    places = np.ndindex(indices.shape[:-1] if op_type == "ScatterND" else indices.shape)
    for at in places:
        if op_type == "ScatterND":
            place: tuple[Any, ...] = tuple(indices[at])
        else:
            place = (*at[:axis], indices[at], *at[axis + 1 :])
        with np.errstate(over="ignore"):
            y[place] = updates[at] if reduction == "none" else _FOLD[reduction](y[place], updates[at])
    return y.astype(data.dtype)


def check_scatter(rng: np.random.Generator, op_type: str, dtype: str, reduction: str, gpu: Any = None) -> None:
    """One random case: exact, for floats too, as the order is that of the updates."""
    inputs, attributes = random_scatter(rng, op_type, dtype)
    data, indices, updates = inputs
    op = make_op(node_of(op_type, inputs, reduction=reduction, **attributes), {"": 18})
    (got,) = run_op(op, [data, indices, updates], gpu)
    wanted = expected(op_type, data, indices, updates, attributes.get("axis", 0), reduction)
    np.testing.assert_array_equal(got, wanted.astype(got.dtype), err_msg=f"{op} {dtype} {inputs}")
