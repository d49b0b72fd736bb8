"""GroupQueryAttention with more inputs than a device of the least limits binds at once."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from e2e.gpu import Gpu
from pyruntime.ir import Array
from tests.contrib.case import Case, check
from tests.contrib.families.group_query_attention import reference


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_group_query_attention__eight_storage_buffers__rows_are_made_ready_first(gpu: Gpu, kind: str) -> None:
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(kind)

    size, attributes = 16, {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "qk_norm_epsilon": 0.01}
    past, angles = (numbers(2, 2, 5, size) for _ in range(2)), rng.uniform(-3, 3, (20, 8))
    caches = (np.cos(angles).astype(kind), np.sin(angles).astype(kind))
    lengths, positions = np.array([5, 3], np.int32), rng.integers(0, 20, (2, 1))
    inputs: list[Array | None] = [numbers(2, 1, 8 * size), None, None, *past, lengths, np.array([6], np.int32)]
    inputs += [*caches, positions, *[None] * 4, numbers(size), numbers(size)]

    def wanted(*given: Any) -> tuple[Array, ...]:
        return reference(attributes, *given)[:3]

    def defined(number: int, x: Array) -> Array:
        return x if number == 0 else np.concatenate([x[b, :, : int(n) + 1].reshape(-1) for b, n in enumerate(lengths)])

    small = copy.copy(gpu)
    small.target = replace(gpu.target, limits=replace(gpu.target.limits, storage_buffers=8))
    tolerance = (1e-2, 1e-2) if kind == "float16" else (1e-4, 1e-5)
    case = Case("GroupQueryAttention", inputs, 3, attributes, reference=wanted, defined=defined, tolerance=tolerance)
    check(case, small)
