"""Every kernel variant can be switched off, with equal results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from e2e.gpu import Gpu
from pyruntime.kernels import matmul
from tests.harness import run_op, typed
from tests.kernels.variant_cases import CASES, lowered, target_of

SMALLER = {
    "matmul_large": (((250, 48), (48, 380)), {"MANY": 4}),
    "matmul_slices": (((256, 384), (384, 600)), {"UNITS": 40}),
}
"""Shapes of variants for large products, and what the choice is to take for many tiles: seconds on a processor."""


@pytest.mark.parametrize("name", CASES)
def test_variant__switched_off__results_are_equal(gpu: Gpu, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, plain = CASES[name], gpu.target
    if name in SMALLER:
        shapes, numbers = SMALLER[name]
        case = replace(case, shapes=shapes)
        for number, value in numbers.items():
            monkeypatch.setattr(matmul, number, value)
    on = target_of(plain, case)
    assert case.uses(lowered(on, case, [typed(x) for x in case.inputs()]))
    found = []
    try:
        for disabled in ((), (name,)):
            gpu.target = target_of(plain, case, *disabled)
            found.append(run_op(case.op, case.inputs(), gpu))
    finally:
        gpu.target = plain
    for on, off in zip(*found, strict=True):
        np.testing.assert_allclose(off, on, case.tolerance, case.tolerance)
