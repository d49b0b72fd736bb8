"""Every kernel variant can be switched off, with equal results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.target import Winners
from tests.harness import run_op, typed
from tests.kernels.variant_cases import CASES, lowered, target_of

SMALLER = {
    "matmul_large": (((130, 128), (128, 260)), "l1"),
    "matmul_slices": (((256, 384), (384, 600)), "m2"),
}
"""Shapes of variants for large products, and the candidate to take all the same: seconds on a processor."""


@pytest.mark.parametrize("name", CASES)
def test_variant__switched_off__results_are_equal(gpu: Gpu, name: str) -> None:
    case, given = CASES[name], gpu.target
    if lacking := case.features - given.features:
        pytest.skip(f"no {', '.join(sorted(lacking))}; e2e/execution/test_half_precision.py has shader-f16 in Firefox")
    plain = given
    if name in SMALLER:
        shapes, winner = SMALLER[name]
        case = replace(case, shapes=shapes)
        (m, k), (_, n) = shapes
        plain = replace(plain, winners=Winners({("product", f"{m}x{n}x{k}"): winner}))
    on = target_of(plain, case)
    assert case.uses(lowered(on, case, [typed(x) for x in case.inputs()]))
    found = []
    try:
        for disabled in ((), (name,)):
            gpu.target = target_of(plain, case, *disabled)
            found.append(run_op(case.op, case.inputs(), gpu))
    finally:
        gpu.target = given
    for on, off in zip(*found, strict=True):
        np.testing.assert_allclose(off, on, case.tolerance, case.tolerance)
