"""PreparedHeads: queries, keys and values made ready in one dispatch, on the GPU, against the same on NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array
from pyruntime.kernels.attention.description import HeadView
from pyruntime.ops.fused.prepared_heads import Part, PreparedHeads
from tests.harness import carrier, run_op, typed
from tests.sampling import matrix

RNG = np.random.default_rng(7)
TOLERANCE = {np.float32: (1e-4, 1e-5), np.float16: (2e-3, 2e-3)}
BATCH, ROWS, HEADS, GROUPS = 2, 3, 4, 2


def numbers(dtype: Any, *shape: int) -> Array:
    made: Array = RNG.standard_normal(shape).astype(dtype)
    return made


def packed(size: int) -> tuple[list[Part], int]:
    """Queries, keys and values side by side in the rows of one tensor, and how long a row is."""
    width = (HEADS + 2 * GROUPS) * size
    parts = []
    for first, heads in ((0, HEADS), (HEADS, GROUPS), (HEADS + GROUPS, GROUPS)):
        view = HeadView(first * size, (ROWS * width, size, width, 1))
        parts.append(Part(0, view, (BATCH, heads, ROWS, size)))
    return parts, width


def agree(op: Any, inputs: list[Array | None], gpu: Any, dtype: Any) -> None:
    """`lower` on the GPU gives what `evaluate` does."""
    for mine, wanted in zip(run_op(op, inputs, gpu), run_op(op, inputs), strict=True):
        np.testing.assert_allclose(mine.astype(np.float32), wanted.astype(np.float32), *TOLERANCE[dtype])


@pytest.fixture(params=["gpu", "software"])
def device(request: pytest.FixtureRequest) -> Any:
    """Either kind of kernels."""
    return request.getfixturevalue(request.param)


FORMS = [
    # components, of them turned, width of the tables, interleaved, normalized
    (16, 16, 16, False, False),
    (16, 16, 8, True, True),
    (8, 6, 6, False, True),
    (20, 12, 6, False, False),
    (4, 2, 2, True, False),
    (80, 80, 80, False, True),
    (256, 64, 64, False, True),
    (64, 0, 0, False, True),
]


@pytest.mark.parametrize(
    ("form", "past", "dtype", "device"),
    matrix(FORMS, [None, 0, 5], [np.float32, np.float16], ["gpu", "software"]),
    indirect=["device"],
)
def test_prepared_heads__one_source__agree_with_numpy(
    device: Any, form: tuple[int, int, int, bool, bool], past: int | None, dtype: Any
) -> None:
    size, turning, width, interleaved, norm = form
    parts, row = packed(size)
    inputs: list[Array | None] = [numbers(dtype, BATCH, ROWS, row)]
    op = PreparedHeads(parts=(), turning=turning, width=width, interleaved=interleaved, epsilon=1e-5)
    if turning:
        inputs += [numbers(dtype, BATCH, 1, ROWS, width) for _ in range(2)]
        op = replace(op, tables=(1, 2))
        parts = [replace(p, angles=(ROWS * width, 0, width, 1)) for p in parts[:2]] + parts[2:]
    if norm:
        parts = [replace(p, weight=len(inputs) + i) for i, p in enumerate(parts[:2])] + parts[2:]
        inputs += [numbers(dtype, size) for _ in range(2)]
    if past is not None:
        parts = parts[:1] + [replace(p, past=len(inputs) + i) for i, p in enumerate(parts[1:])]
        inputs += [numbers(dtype, BATCH, GROUPS, past, size) for _ in range(2)]
    agree(replace(op, parts=tuple(parts), present=(True,) * 3), inputs, device, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("sizes", [(24, 8), (128, 64), (192, 128)])
def test_prepared_heads__sources_and_sizes_of_their_own__agree_with_numpy(
    device: Any, sizes: tuple[int, int], dtype: Any
) -> None:
    key, value = sizes
    parts = (
        Part(0, HeadView(3, (2 * ROWS * key, ROWS * key, key, 1)), (BATCH, 2, ROWS, key), past=2),
        Part(1, HeadView(0, (ROWS * 5 * value, value, 5 * value, 1)), (BATCH, 5, ROWS, value), past=3),
    )
    inputs: list[Array | None] = [
        numbers(dtype, BATCH * 2 * ROWS * key + 3),
        numbers(dtype, BATCH, ROWS, 5, value),
        numbers(dtype, BATCH, 2, 7, key),
        numbers(dtype, BATCH, 5, 1, value),
    ]
    agree(PreparedHeads(parts=parts, present=(True, True)), inputs, device, dtype)


def test_prepared_heads__a_device_that_binds_few_tensors__takes_several_dispatches(gpu: Any) -> None:
    parts, row = packed(16)
    inputs = [
        numbers(np.float32, *shape)
        for shape in ((BATCH, ROWS, row), (ROWS, 16), (ROWS, 16), (16,), (16,), *[(BATCH, GROUPS, 5, 16)] * 2)
    ]
    parts = [replace(p, angles=(0, 0, 16, 1)) for p in parts[:2]] + parts[2:]
    parts = [replace(parts[0], weight=3), replace(parts[1], weight=4, past=5), replace(parts[2], past=6)]
    op = PreparedHeads(parts=tuple(parts), tables=(1, 2), turning=16, width=16, epsilon=1e-5, present=(True,) * 3)
    types: list[Any] = [typed(x) for x in inputs]
    counts = []
    for buffers in (10, 8, 6):
        target = replace(gpu.target, limits=replace(gpu.target.limits, storage_buffers=buffers))
        dispatches = op.lower(target, *types)
        assert all(len(d.operands) <= buffers for d in dispatches)
        counts.append(len(dispatches))
        made = gpu.run(dispatches, [carrier(x)[1] for x in inputs], types, op.infer(*types))
        for mine, wanted in zip(made, run_op(op, list(inputs)), strict=True):
            np.testing.assert_allclose(mine, wanted, *TOLERANCE[np.float32])
    assert counts == [1, 2, 3]
