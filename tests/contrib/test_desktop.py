"""Random com.microsoft nodes on the desktop's GPU, with the kernels of GPUs and of software adapters."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from tests.contrib.case import check, draws
from tests.contrib.samples import each
from tests.contrib.test_cases import SEED
from tests.desktop import DesktopGpu

NUMBERS = range(20, 22)
"""Samples of an operator that neither NumPy nor the browser has."""


@pytest.mark.parametrize("kernels", ["gpu", "software"])
@pytest.mark.parametrize("op_type", draws())
def test_samples__on_the_desktop__agree_with_onnxruntime(op_type: str, kernels: str, every_gpu: None) -> None:
    gpu = DesktopGpu()
    if kernels == "gpu":
        gpu = copy.copy(gpu)
        gpu.target = replace(gpu.target, disabled=gpu.target.disabled | {"software"})
    each(op_type, SEED, NUMBERS, lambda case, _: check(case, gpu))
