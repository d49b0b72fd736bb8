"""Operators that move elements, on the GPU: random cases against onnxruntime."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from pyruntime.ops.fused.rows_of_part import PartIndex, PartRows
from tests.harness import run_op
from tests.ops.movement.movement_cases import DTYPES, RANDOM, check_moves, random_case


@pytest.mark.parametrize("name", [name for name in RANDOM if name != "compress"])
def test_movement__random_case_of_any_type__elements_onnxruntime_picks(name: str, gpu: Any) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1)
    for dtype in DTYPES:
        check_moves(random_case(name, rng), rng, dtype, gpu)


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64"])
def test_rows_of_parts__indices_from_both_ends__rows_of_the_whole_table(dtype: str, width: int, gpu: Any) -> None:
    rng = np.random.default_rng(width)
    table = rng.integers(0, 200, (50, width)).astype(dtype)
    indices = np.array([[0, 19, 20], [-1, -50, 49], [25, 31, -30]])
    made = None
    for first, end in [(0, 20), (20, 21), (21, 50)]:
        (at,) = run_op(PartIndex(rows=50, start=first, length=end - first), [indices], gpu)
        (made,) = run_op(PartRows(), [table[first:end], at, *([] if made is None else [made])], gpu)
    np.testing.assert_array_equal(made, table[indices])
