"""Random com.microsoft nodes on the GPU against onnxruntime's CPU; the seed changes with PYRUNTIME_SEED."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from pyruntime.kernels import Target
from pyruntime.ops.base import Unsupported
from tests.contrib.case import check, draws
from tests.contrib.test_cases import SEED

SAMPLES = 4
"""Cases of an operator for each kind of device."""


ON_HOST = {
    "Inverse": "has no kernel: a handful of small matrices, in float64",
    "Unique": "gives as many elements as the values say",
}
"""Operators that run on the host, with the reason."""


@pytest.mark.parametrize("op_type", ON_HOST)
def test_operators_on_the_host__have_no_kernel(op_type: str) -> None:
    case = draws()[op_type](np.random.default_rng(0))
    with pytest.raises(Unsupported):
        check(case, type("Gpu", (), {"target": Target(), "run": None})())


@pytest.mark.parametrize("op_type", [name for name in draws() if name not in ON_HOST])
@pytest.mark.parametrize("device", ["gpu", "software"])
def test_samples__on_the_gpu__agree_with_onnxruntime(op_type: str, device: str, request: pytest.FixtureRequest) -> None:
    gpu: Any = request.getfixturevalue(device)
    draw = draws()[op_type]
    for number in range(SAMPLES):
        case = draw(np.random.default_rng([SEED, zlib.crc32(op_type.encode()), number]))
        if any(x is not None and x.dtype == np.float64 for x in case.inputs):
            continue  # exact on the host
        try:
            check(case, gpu)
        except Exception as error:
            inputs = [None if x is None else (x.dtype.name, x.shape) for x in case.inputs]
            raise AssertionError(f"seed {SEED}, sample {number}: {op_type} {inputs} {dict(case.attributes)}") from error
