"""Operators on inputs of which an axis has no elements, on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from e2e.harness.gpu import Gpu
from pyruntime.ir import DType
from pyruntime.ir.encoding import round_to
from tests.harness import run_op
from tests.ops.empty_axes import emptied_cases


def test_operators__an_axis_without_elements__as_on_the_host(gpu: Gpu) -> None:
    ran, wrong = 0, {}
    for case in emptied_cases(gpu.target):
        kinds: list[Any] = [t for i, t in enumerate(case.op.infer(*case.types)) if case.op.wants(i)]
        wanted = [y for i, y in enumerate(case.wanted) if case.op.wants(i)]
        ran += 1
        try:
            made = run_op(case.op, case.inputs, gpu)
            for y, expected, kind in zip(made, wanted, kinds, strict=True):
                loose = 2e-2 if kind.dtype in (DType.FLOAT16, DType.BFLOAT16) else 1e-3
                np.testing.assert_allclose(y, round_to(expected, kind.dtype), loose, loose)
        except AssertionError as error:
            wrong[case.name] = str(error)
    assert not wrong
    assert ran >= 684
