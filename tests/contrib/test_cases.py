"""Random com.microsoft nodes on NumPy against onnxruntime; the seed changes with PYRUNTIME_SEED."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from tests.contrib.case import Case, check, check_graph, draws

SEED = int(os.environ.get("PYRUNTIME_SEED", "0"))
SAMPLES = 12
"""Cases of an operator."""


def _each(op_type: str, test: Callable[[Case, int], None]) -> None:
    """`test` of every sample of an operator; errors name it."""
    draw = draws()[op_type]
    for number in range(SAMPLES):
        case = draw(np.random.default_rng([SEED, zlib.crc32(op_type.encode()), number]))
        try:
            test(case, number)
        except Exception as error:
            inputs = [None if x is None else (x.dtype.name, x.shape) for x in case.inputs]
            raise AssertionError(f"seed {SEED}, sample {number}: {op_type} {inputs} {dict(case.attributes)}") from error


@pytest.mark.parametrize("op_type", draws())
def test_samples__on_numpy__agree_with_onnxruntime(op_type: str) -> None:
    _each(op_type, lambda case, _: check(case))


@pytest.mark.parametrize("op_type", draws())
def test_samples__planned_and_optimised__agree_with_onnxruntime(op_type: str) -> None:
    _each(op_type, lambda case, number: check_graph(case, constant=number % 2 == 0))
