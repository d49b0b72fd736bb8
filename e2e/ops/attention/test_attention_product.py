"""A skinny product that reduces the partial results of attention: as a separate kernel does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.ops.fused.attention_product import AttentionProduct
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.registry import newest, op_class
from tests.harness import run_op, typed

HEADS, GROUPS, SIZE, COLUMNS, BLOCK = 6, 2, 32, 72, 32
WIDTH = HEADS * SIZE


def product(residual: bool) -> tuple[Any, int]:
    """The product, to which a residual is added, and its inputs but the rows."""
    kind: Any = op_class("MatMulNBits", "com.microsoft", 1)
    base = kind(K=WIDTH, N=COLUMNS, block_size=BLOCK)
    if not residual:
        return base, 2
    add: Any = newest("Add")
    chain = FusedElementwise(steps=(Step(add, (0, 1)),))
    return WithEpilogue(base=base, count=3, chain=chain), 3


def weights(rng: np.random.Generator, dtype: Any, *rows: int) -> list[Array]:
    """Weights, scales and a residual."""
    blob = rng.integers(0, 256, (COLUMNS, WIDTH // BLOCK, BLOCK // 2), np.uint8)
    scales = rng.uniform(0.02, 0.05, (COLUMNS, WIDTH // BLOCK)).astype(dtype)
    return [blob, scales, rng.standard_normal((*rows, COLUMNS)).astype(dtype)]


def masked(rng: np.random.Generator, dtype: Any, batch: int, queries: int, keys: int) -> tuple[Op, list[Array | None]]:
    """ai.onnx Attention of which a query sees some keys, the last share of them none, and one query none."""
    kind: Any = type(newest("Attention"))
    shapes = ((batch, queries, WIDTH), (batch, keys, GROUPS * SIZE), (batch, keys, GROUPS * SIZE))
    seen = rng.random((queries, keys)) < 0.5
    seen[:, keys - keys // 3 :] = False
    seen[-1] = queries == 1
    given = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    return kind(q_num_heads=HEADS, kv_num_heads=GROUPS), [*given, seen]


def cached(
    rng: np.random.Generator, dtype: Any, batch: int, length: int, capacity: int
) -> tuple[Op, list[Array | None]]:
    """GroupQueryAttention of one query whose row is set into caches, of which `length` rows count."""
    kind: Any = op_class("GroupQueryAttentionInPlace", "pyruntime", 1)
    op = kind(num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1, present=(True,) * 3)
    cache, angles = (batch, GROUPS, capacity, SIZE), (capacity, SIZE // 2)
    shapes = ((batch, 1, WIDTH + 2 * GROUPS * SIZE), cache, cache, angles, angles)
    packed, past_k, past_v, cosines, sines = (rng.standard_normal(s).astype(dtype) for s in shapes)
    lengths = np.array([length - 1, *[length // 2] * (batch - 1)], np.int32)
    return op, [packed, None, None, past_k, past_v, lengths, np.array(length, np.int32), cosines, sines]


def expected(op: AttentionProduct, inputs: list[Any]) -> Array:
    """y; that of caches as a model has them, which end where the longest text does."""
    if op.attention.op_type == "GroupQueryAttentionInPlace":
        kind: Any = op_class("GroupQueryAttention", "com.microsoft", 1)
        attention = kind(num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1, present=(True,) * 3)
        op, rows = replace(op, attention=attention), int(inputs[6])
        inputs = [x[:, :, :rows] if i in (3, 4) else x for i, x in enumerate(inputs)]
    return op.evaluate_typed(tuple(map(typed, inputs)), *inputs)[0].astype(np.float32)


MADE = {
    "one query, masked": (masked, (2, 1, 700)),
    "some queries, masked": (masked, (2, 3, 1000)),
    "cache nearly empty": (cached, (1, 100, 1024)),
    "caches of two texts": (cached, (2, 900, 1024)),
}


@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", MADE)
def test_product_of_partial_results__reduced_on_the_way__as_by_a_separate_kernel(
    gpu: Gpu, name: str, dtype: Any, residual: bool
) -> None:
    rng, before = np.random.default_rng(7), gpu.target
    make, sizes = MADE[name]
    made: Any = make(rng, dtype, *sizes)
    attention, given = made
    base, count = product(residual)
    op = AttentionProduct(attention=attention, base=base, count=len(given), present=attention.present)
    inputs = [*given, *weights(rng, dtype, *given[0].shape[:2])[:count]]
    on: Target = replace(gpu.target, vendor="")
    off = replace(on, disabled=frozenset({"merging_skinny"}))
    kinds: Any = [typed(x) for x in inputs]
    names = [[d.kernel.name.split("_dim")[0] for d in op.lower(t, *kinds)] for t in (on, off)]
    assert "attention_merge" in names[1] and "attention_merge" not in names[0] and len(names[0]) == len(names[1]) - 1
    found = []
    try:
        for gpu.target in (on, off):
            found.append(run_op(op, inputs, gpu))
    finally:
        gpu.target = before
    tolerance = 1e-4 if dtype is np.float32 else 4e-3
    for joined, apart in zip(*found, strict=True):
        np.testing.assert_array_equal(joined, apart)
    np.testing.assert_allclose(np.float32(found[0][0]), expected(op, inputs), tolerance, 10 * tolerance)
