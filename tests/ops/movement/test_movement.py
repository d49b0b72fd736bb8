"""Operators that move elements, on the host: ONNX's cases, and random ones against onnxruntime."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.harness import make_op, run_op
from tests.ops.movement.movement_cases import DTYPES, RANDOM, check_moves, random_case
from tests.oracle import node_of


@pytest.mark.parametrize("name", RANDOM)
def test_movement__random_case_of_any_type__elements_onnxruntime_picks(name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for number in range(30):
        check_moves(random_case(name, rng), rng, list(DTYPES)[number % len(DTYPES)])


@pytest.mark.parametrize("name", [name for name in RANDOM if name != "trilu"])
def test_movement__strings__elements_onnxruntime_picks(name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 3)
    for _ in range(4):
        check_moves(random_case(name, rng), rng, "string")


@pytest.mark.parametrize("shape", [(), (1,), (2, 1)])
def test_expand__shape_that_is_a_scalar__is_one_dimension(shape: tuple[int, ...]) -> None:
    x, wanted = np.ones(shape, np.float32), np.array(3, np.int64)
    (y,) = run_op(make_op(node_of("Expand", [x, wanted]), {"": 21}), [x, wanted])
    np.testing.assert_array_equal(y, np.ones(np.broadcast_shapes(shape, (3,)), np.float32))
