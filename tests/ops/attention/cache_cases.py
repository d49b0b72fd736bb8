"""Random TensorScatter nodes, and the specification's loop over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array
from pyruntime.ops.indexing.tensor_scatter import TensorScatter
from tests.harness import run_op

__all__ = ["check_tensor_scatter"]


def expected(past: Array, update: Array, write: Array | None, axis: int, mode: str) -> Array:
    """The pseudocode of the specification."""
    present, axis = past.copy(), axis % past.ndim
    for prefix in np.ndindex(past.shape[:axis]):
        for turn in range(update.shape[axis]):
            place = (0 if write is None else int(write[prefix[0]])) + turn
            if mode == "circular":
                place %= past.shape[axis]
            present[(*prefix, place)] = update[(*prefix, turn)]
    return present


def check_tensor_scatter(rng: np.random.Generator, dtype: Any, gpu: Any = None) -> None:
    """One random case."""
    shape = [int(d) for d in rng.integers(1, 5, rng.integers(2, 5))]
    axis = int(rng.integers(1, len(shape)))
    shape[axis] = int(rng.integers(2, 9))
    count = int(rng.integers(1, shape[axis] + 1))
    mode = str(rng.choice(["linear", "circular"]))
    past = rng.integers(0, 100, shape).astype(dtype)
    update = rng.integers(0, 100, [count if d == axis else n for d, n in enumerate(shape)]).astype(dtype)
    last = shape[axis] - count if mode == "linear" else 3 * shape[axis]
    first = 0 if mode == "linear" else -last
    write = None if rng.random() < 0.3 else rng.integers(first, last + 1, shape[0])
    if write is not None and mode == "circular":
        write[0] += shape[axis] << 40
    op = TensorScatter(axis=axis - len(shape) * int(rng.integers(2)), mode=mode)
    (got,) = run_op(op, [past, update, write], gpu)
    np.testing.assert_array_equal(got, expected(past, update, write, axis, mode).astype(got.dtype))
