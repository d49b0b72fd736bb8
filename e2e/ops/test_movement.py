"""Operators that move elements, on the GPU: random cases against onnxruntime."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from tests.ops.movement.movement_cases import DTYPES, RANDOM, check_moves, random_case


@pytest.mark.parametrize("name", [name for name in RANDOM if name != "compress"])
def test_movement__random_case_of_any_type__elements_onnxruntime_picks(name: str, gpu: Any) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1)
    for dtype in DTYPES:
        check_moves(random_case(name, rng), rng, dtype, gpu)
