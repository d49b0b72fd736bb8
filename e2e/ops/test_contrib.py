"""Random com.microsoft nodes on the GPU against onnxruntime's CPU; the seed changes with PYRUNTIME_SEED."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from tests.contrib.case import check, draws
from tests.contrib.test_cases import SEED

SAMPLES = 4
"""Cases of an operator for each kind of device."""


@pytest.mark.parametrize("op_type", draws())
@pytest.mark.parametrize("device", ["gpu", "software"])
def test_samples__on_the_gpu__agree_with_onnxruntime(op_type: str, device: str, request: pytest.FixtureRequest) -> None:
    gpu: Any = request.getfixturevalue(device)
    draw = draws()[op_type]
    for number in range(SAMPLES):
        case = draw(np.random.default_rng([SEED, zlib.crc32(op_type.encode()), number]))
        try:
            check(case, gpu)
        except Exception as error:
            inputs = [None if x is None else (x.dtype.name, x.shape) for x in case.inputs]
            raise AssertionError(f"seed {SEED}, sample {number}: {op_type} {inputs} {dict(case.attributes)}") from error
