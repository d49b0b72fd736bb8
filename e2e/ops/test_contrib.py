"""Random com.microsoft nodes on the GPU against onnxruntime's CPU; the seed changes with PYRUNTIME_SEED.

`python -m tests.contrib --browser` runs as many as wanted, with fresh seeds.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contrib.case import check, draws
from tests.contrib.samples import GPU, SOFTWARE, each
from tests.contrib.test_cases import SEED

TYPED = range(1000, 1002)
"""Samples in float16."""


@pytest.mark.parametrize("op_type", draws())
@pytest.mark.parametrize("device", ["gpu", "software"])
def test_samples__on_the_gpu__agree_with_onnxruntime(op_type: str, device: str, request: pytest.FixtureRequest) -> None:
    gpu: Any = request.getfixturevalue(device)
    numbers = GPU if device == "gpu" else SOFTWARE
    each(op_type, SEED, numbers, lambda case, _: check(case, gpu))


@pytest.mark.parametrize("op_type", draws())
def test_samples__in_float16_on_the_gpu__agree_with_float32(op_type: str, gpu: Any) -> None:
    each(op_type, SEED, TYPED, lambda case, _: check(case, gpu), "tensor(float16)")
