"""Attention of one query that makes it and the newest row of keys and values ready itself."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array
from pyruntime.ops.registry import op_class
from tests.contrib.families.group_query_attention import reference
from tests.harness import run_op, typed
from tests.sampling import matrix

ROWS = 40


def step(size: int, kind: str, half: int, packed: bool, norm: bool, positions: bool) -> list[Array | None]:
    """Two texts of 9 and 33 rows in caches of ROWS, 4 heads over 2: the inputs of a node."""
    rng = np.random.default_rng(size)

    def numbers(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(kind)

    widths = (8 * size,) if packed else (4 * size, 2 * size, 2 * size)
    fresh: list[Array | None] = [numbers(2, 1, w) for w in widths] + [None] * (3 - len(widths))
    caches = [numbers(2, 2, ROWS, size) for _ in "kv"]
    angles = rng.uniform(-3, 3, (64, half))
    tables = [np.cos(angles).astype(kind), np.sin(angles).astype(kind)]
    where = rng.integers(0, 64, (2, 1)) if positions else None
    weights = [numbers(size), numbers(size)] if norm else [None, None]
    lengths, total = np.array([8, 32], np.int32), np.array([33], np.int32)
    return [*fresh, *caches, lengths, total, *tables, where, *[None] * 4, *weights]


FORMS = {
    "packed": {"packed": True},
    "packed pairs": {"packed": True, "pairs": True},
    "packed, norms": {"packed": True, "norm": True},
    "packed pairs, norms": {"packed": True, "norm": True, "pairs": True},
    "packed, half of them turned": {"packed": True, "part": True},
    "packed, positions": {"packed": True, "positions": True},
    "three tensors": {},
    "three tensors, pairs": {"pairs": True},
}
"""What of a node fits ten storage buffers."""


@pytest.mark.parametrize(("form", "size", "kind"), matrix(list(FORMS), [16, 64, 128], ["float32", "float16"]))
def test_one_query__caches_that_hold_all_else__is_made_ready_in_the_attention(
    form: str, size: int, kind: str, gpu: Any
) -> None:
    of = {name: FORMS[form].get(name, False) for name in ("packed", "norm", "positions", "pairs", "part")}
    make: Any = op_class("GroupQueryAttentionInPlace", "pyruntime", 1)
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": int(of.pop("pairs"))}
    inputs = step(size, kind, size // 4 if of.pop("part") else size // 2, **of)
    op = make(**attributes, present=(True,) * 3, qk_norm_epsilon=0.01)
    types: Any = [typed(x) for x in inputs]
    before = copy.copy(gpu)
    before.target = replace(gpu.target, disabled=frozenset({"attention_new_row"}))
    fused, apart = (op.lower(g.target, *types) for g in (gpu, before))
    assert len(fused) == len(apart) - 1 and "_new_row1" in fused[0].kernel.name

    found, wanted = run_op(op, inputs, gpu), run_op(op, inputs, before)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    past = [x[:, :, :33] if i in (3, 4) and x is not None else x for i, x in enumerate(inputs)]
    expected = reference({**attributes, "qk_norm_epsilon": 0.01}, *past)
    tolerance = 1e-2 if kind == "float16" else 1e-4
    np.testing.assert_allclose(found[0], expected[0], tolerance, tolerance)


def test_one_query__more_tensors_than_a_device_binds__is_made_ready_before(gpu: Any) -> None:
    make: Any = op_class("GroupQueryAttentionInPlace", "pyruntime", 1)
    op = make(num_heads=4, kv_num_heads=2, do_rotary=1, present=(True,) * 3)
    types: Any = [typed(x) for x in step(16, "float32", 8, packed=False, norm=True, positions=True)]
    assert not any("_new_row1" in d.kernel.name for d in op.lower(gpu.target, *types))
