"""Index tensors: range checks on the host, clamping in kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.ir import Array, Bound, DType, TensorType
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import Op, Unsupported

__all__ = [
    "check_indices",
    "check_reachable",
    "from_front",
    "index_at",
    "index_bound",
    "index_value",
    "slot_code",
    "slot_values",
    "slots",
    "tuple_bounds",
]


def check_indices(op: Op, indices: TensorType) -> None:
    """Raise InvalidGraph unless indices are int32 or int64."""
    if indices.dtype not in (DType.INT32, DType.INT64):
        op.fail("indices of tensor(int32) or tensor(int64)", indices.dtype.type_string)


def check_reachable(bound: int, y: TensorType) -> None:
    """Raise Unsupported if there are no elements to index, so that the host reports the invalid index."""
    if bound == 0 and y.size:
        raise Unsupported("no index is valid along an axis of 0 elements")


def index_bound(length: Any, axis: int, every: tuple[int, int] = (0, 1)) -> Bound:
    """Return the range of the indices (input 1) along an axis of `length` elements; `every`: as `Bound.every`."""
    return Bound(1, -length, length - 1, "indices", f"the elements of axis {axis}", "give others or larger data", every)


def tuple_bounds(count: int, shape: Sequence[Any], first: int = 0) -> list[Bound]:
    """Return the ranges of tuples of `count` indices into dimensions `shape`, which start at axis `first`."""
    return [index_bound(dim, first + k, (k, count)) for k, dim in enumerate(shape)]


def from_front(indices: Array, length: int) -> Array:
    """Return the indices (int64) with negative ones counted from the end of `length` elements."""
    indices = indices.astype(np.int64, copy=False)
    return np.where(indices < 0, indices + length, indices)


_INDEX = {DType.INT64: "i64_saturate({})", DType.UINT64: "u64_saturate({})"}
_INDEX_BY_COMPUTE = {"i32": "{}", "u32": "i32(min({}, 0x7fffffffu))", "f32": "truncated_index({})"}


def index_value(dtype: DType, load: str) -> str:
    """Return WGSL that converts the loaded index `load` to i32, saturating. Accepts all types except float64."""
    return (_INDEX.get(dtype) or _INDEX_BY_COMPUTE[dtype.compute]).format(load)


def index_at(dtype: DType, load: str, size: str) -> str:
    """Return WGSL u32 of the loaded index `load`: negative counts from the end, clamped to `size` elements."""
    return f"wrap_index({index_value(dtype, load)}, {size})"


def slots(indices: Array, shape: Sequence[int]) -> Array:
    """Return the row-major offsets in `shape` that index tuples [..., k] refer to."""
    total = np.zeros(indices.shape[:-1], np.int64)
    for k, (dim, step) in enumerate(zip(shape, contiguous(shape), strict=True)):
        total += from_front(indices[..., k], dim) * step
    return total


def slot_values(shape: Sequence[int]) -> dict[str, int | list[int]]:
    """Return the uniforms that `slot_code` reads."""
    words = range(-(-len(shape) // 4))
    numbers = {"lengths": list(shape), "steps": list(contiguous(shape))}
    return {f"{name}_{w}": n[4 * w : 4 * w + 4] for name, n in numbers.items() for w in words}


def slot_code(dtype: DType, count: int, at: str) -> str:
    """Return WGSL that sets `slot` to the offset (as in `slots`) of tuple `at` in the binding `indices`."""
    lines = ["var slot = 0u;"]
    for k in range(count):
        word, lane = divmod(k, 4)
        index = index_at(dtype, f"load_indices({at} * {count}u + {k}u)", f"params.lengths_{word}[{lane}]")
        lines.append(f"slot += {index} * params.steps_{word}[{lane}];")
    return "\n  ".join(lines)
