"""Operators that move elements, on the GPU: ONNX's cases, and random ones against onnxruntime."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from tests.harness import check_case
from tests.ops.movement_cases import DTYPES, RANDOM, check_moves, onnx_cases, random_case

HOST = {"Compress", "Constant", "NonZero", "Shape", "Size", "Unique"}
"""Their output's shape depends on the data, or their value is known while planning."""


@pytest.mark.parametrize("name", [name for name, operator in onnx_cases().items() if operator not in HOST])
def test_movement__onnx_case__expected_output(name: str, gpu: Any) -> None:
    check_case(name, gpu)


@pytest.mark.parametrize("name", [name for name in RANDOM if name != "compress"])
def test_movement__random_case_of_any_type__elements_onnxruntime_picks(name: str, gpu: Any) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1)
    for dtype in DTYPES:
        check_moves(random_case(name, rng), rng, dtype, gpu)
