"""Random com.microsoft nodes on NumPy against onnxruntime; the seed changes with PYRUNTIME_SEED.

`python -m tests.contrib` runs as many as wanted, with fresh seeds, also on the GPU.
"""

from __future__ import annotations

import os

import pytest

from tests.contrib.case import check, check_graph, draws
from tests.contrib.float_types import TYPES
from tests.contrib.samples import NATIVE, each

SEED = int(os.environ.get("PYRUNTIME_SEED", "0"))
TYPED = range(1000, 1006)
"""Those in other float types."""


@pytest.mark.parametrize("op_type", draws())
def test_samples__on_numpy__agree_with_onnxruntime(op_type: str) -> None:
    each(op_type, SEED, NATIVE, lambda case, _: check(case))


@pytest.mark.parametrize("op_type", draws())
def test_samples__planned_and_optimised__agree_with_onnxruntime(op_type: str) -> None:
    each(op_type, SEED, NATIVE, lambda case, number: check_graph(case, constant=number % 2 == 0))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("op_type", draws())
def test_samples__in_other_float_types__agree_with_float32(op_type: str, kind: str) -> None:
    each(op_type, SEED, TYPED, lambda case, _: check(case), kind)
