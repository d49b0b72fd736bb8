"""What passes make of patterns that exporters write, on the GPU, against the same on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from pyruntime.ir import Array
from pyruntime.kernels.attention.description import HeadView
from pyruntime.ops.fused.attention import FusedAttention
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.fused.paired_product import PairedProduct
from pyruntime.ops.fused.rolled_transpose import RolledTranspose
from pyruntime.ops.fused.rotary import FusedRotary
from pyruntime.ops.registry import newest, op_class
from tests.harness import run_op
from tests.sampling import matrix
from tests.window_models import WindowModel, Windows, optimized

RNG = np.random.default_rng(5)
TOLERANCE = {np.float32: (1e-4, 1e-5), np.float16: (2e-3, 2e-3)}


def agree(op: Any, inputs: list[Array | None], gpu: Any, dtype: Any = np.float32) -> None:
    """`lower` on the GPU gives what `evaluate` does."""
    for mine, wanted in zip(run_op(op, inputs, gpu), run_op(op, inputs), strict=True):
        np.testing.assert_allclose(mine.astype(np.float32), wanted.astype(np.float32), *TOLERANCE[dtype])


def numbers(dtype: Any, *shape: int) -> Array:
    made: Array = RNG.standard_normal(shape).astype(dtype)
    return made


TABLES = [(1, 1, 5), (2, 1, 5), (2, 3, 5), (5,), ()]
TURNS = [(8, 8, 8), (8, 4, 8), (6, 6, 11), (6, 3, 9)]
"""How many components are turned, how wide the tables are, and how many components there are."""


@pytest.mark.parametrize(
    ("table", "turn", "interleaved", "dtype"), matrix(TABLES, TURNS, [True, False], [np.float32, np.float16])
)
def test_fused_rotary__views_and_tables__agree_with_numpy(
    gpu: Any, table: tuple[int, ...], turn: tuple[int, int, int], interleaved: bool, dtype: Any
) -> None:
    turning, width, size = turn
    sizes = (2, 3, 5, size)
    # Heads after one other component each, in rows of 3 heads, after two more.
    view = HeadView(2, (5 * 3 * (size + 1), size + 1, 3 * (size + 1), 1))
    x = numbers(dtype, 2 * 5 * 3 * (size + 1) + 2)
    op = FusedRotary(sizes=sizes, view=view, turning=turning, width=width, y_shape=sizes, interleaved=interleaved)
    agree(op, [x, numbers(dtype, *table, width), numbers(dtype, *table, width)], gpu, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rolled_transpose__windows_there_and_back__agree_with_numpy(gpu: Any, dtype: Any) -> None:
    there = RolledTranspose(
        before=(0, 1, 5, 0), middle=(2, 3, 2, 2, 4, 5), perm=(0, 1, 3, 2, 4, 5), shape=(12, 8, 5), after=(0, 0, 0)
    )
    agree(there, [numbers(dtype, 2, 6, 8, 5)], gpu, dtype)
    back = RolledTranspose(
        before=(0, 0, 0), middle=(2, 3, 2, 2, 4, 5), perm=(0, 1, 3, 2, 4, 5), shape=(2, 6, 8, 5), after=(0, 5, 3, 0)
    )
    agree(back, [numbers(dtype, 12, 8, 5)], gpu, dtype)


@pytest.mark.parametrize(
    "form",
    [
        Windows(2, 2, 3),
        Windows(rows=1, columns=2, size=6, heads=3, swapped=True, both=True),
        Windows(2, padded=2, dtype=np.float16),
        Windows(post_norm=True),
    ],
)
def test_windows__after_all_passes__compute_what_onnxruntime_does(form: Windows, gpu: Any) -> None:
    made = WindowModel(form, 2, True)
    model, given = made.model(), made.feeds()
    graph, values = optimized(model, given), dict[str, Any](given)
    for step in graph.nodes:
        inputs = [(values[n] if n in values else graph.tensor(n).value()) if n else None for n in step.inputs]
        on_gpu = gpu if step.outputs[0] not in graph.static else None
        results = run_op(step.op, inputs, on_gpu)  # type: ignore[arg-type]
        named = [n for n in step.outputs if n] if on_gpu is not None else step.outputs
        values |= dict(zip(named, results, strict=False))
    (wanted,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    tolerance = (1e-3, 1e-3) if form.dtype is np.float32 else (5e-2, 5e-2)
    np.testing.assert_allclose(values["y"].astype(np.float32), wanted.astype(np.float32), *tolerance)


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("group", "queries", "size", "cap"),
    [(3, 5, 8, 0), (2, 40, 16, 0), (6, 1, 20, 0.6), (2, 70, 6, 1.5), (1, 9, 64, 0.9)],
)
def test_fused_attention__heads_that_share_keys_and_capped_scores__agree_with_numpy(
    group: int, queries: int, size: int, cap: float, dtype: Any, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    heads, keys = 6, 37
    shared = heads // group

    def packed(count: int, rows: int) -> HeadView:
        return HeadView(0, (rows * count * size, size, count * size, 1))

    op = FusedAttention(
        sizes=(2, heads, queries, keys, size, size),
        q_view=packed(heads, queries),
        k_view=packed(shared, keys),
        v_view=packed(shared, keys),
        y_view=packed(heads, queries),
        y_shape=(2, queries, heads * size),
        scale=0.3,
        group=group,
        cap=cap,
    )
    inputs: list[Array | None] = [
        numbers(dtype, 2, queries, heads * size),
        *(numbers(dtype, 2, keys, shared * size) for _ in range(2)),
    ]
    agree(op, [*inputs, numbers(dtype, 2, 1, queries, keys)], gpu, dtype)


WEIGHTS = [(200, 44, 4, True), (64, 37, 8, False), (96, 5, 2, True)]
"""Of packed products: elements of a row, columns, bits, whether there are zero points."""


@pytest.mark.parametrize(
    ("form", "rows", "dtype", "device"),
    matrix(WEIGHTS, [1, 6, 40], [np.float32, np.float16], ["gpu", "software"]),
)
def test_paired_product__gate_and_values__agree_with_numpy(
    form: tuple[int, int, int, bool], rows: int, dtype: Any, device: str, request: pytest.FixtureRequest
) -> None:
    k, n, bits, zeros = form
    gpu: Any = request.getfixturevalue(device)
    make: Any = op_class("MatMulNBits", "com.microsoft", 1)
    sigmoid, mul = newest("Sigmoid"), newest("Mul")
    chain = FusedElementwise(steps=(Step(sigmoid, (0,)), Step(mul, (0, -1)), Step(mul, (-2, 1))))  # type: ignore[arg-type]
    op = PairedProduct(base=make(K=k, N=2 * n, block_size=32, bits=bits), chain=chain)
    blocks = -(-k // 32)
    weights = RNG.integers(0, 256, (2 * n, blocks, 4 * bits)).astype(np.uint8)
    scales = (RNG.uniform(0.5, 1.5, (2 * n, blocks)) * 2.0**-bits / 4).astype(dtype)
    packed = [RNG.integers(0, 256, (2 * n, -(-blocks * bits // 8))).astype(np.uint8)] if zeros else []
    inputs: list[Array | None] = [numbers(dtype, rows, k), weights, scales, *packed]
    for mine, wanted in zip(run_op(op, inputs, gpu), run_op(op, inputs), strict=True):
        tolerance = (1e-3, 1e-4) if dtype is np.float32 else (1e-2, 1e-2)
        np.testing.assert_allclose(mine.astype(np.float32), wanted.astype(np.float32), *tolerance)
