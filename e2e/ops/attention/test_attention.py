"""Attention, FlexAttention, LinearAttention, RotaryEmbedding on the GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.kernels import inp, out
from pyruntime.kernels.attention import attention
from pyruntime.kernels.attention.attention import Tile
from pyruntime.kernels.attention.candidates import ATTENTIONS
from pyruntime.kernels.attention.description import AttentionForm, AttentionProblem, AttentionTensors, HeadView, Reach
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Noted
from pyruntime.ops.attention.attention import Attention
from pyruntime.ops.attention.linear_attention import RULES, LinearAttention
from pyruntime.ops.attention.rotary_embedding import RotaryEmbedding
from pyruntime.ops.base import Op
from tests.harness import carrier, run_op, typed
from tests.ops.attention.test_attention import normal

RNG = np.random.default_rng(1)


def _same(gpu: Gpu, op: Op, inputs: list[Any], tolerance: float = 2e-5) -> None:
    """The GPU's outputs are the host's."""
    host = [y for i, y in enumerate(run_op(op, list(inputs))) if op.wants(i)]
    for mine, theirs in zip(run_op(op, list(inputs), gpu), host, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, tolerance, tolerance)


@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (6, 1)])
@pytest.mark.parametrize("flat", [False, True])
def test_attention__heads_and_layouts__as_host(gpu: Gpu, heads: tuple[int, int], flat: bool) -> None:
    hq, hk = heads
    mask = normal(2, hq, 5, 9)
    if flat:
        op = Attention(q_num_heads=hq, kv_num_heads=hk)
        inputs = [normal(2, 5, hq * 8), normal(2, 9, hk * 8), normal(2, 9, hk * 12), mask]
    else:
        op = Attention()
        inputs = [normal(2, hq, 5, 8), normal(2, hk, 9, 8), normal(2, hk, 9, 12), mask]
    _same(gpu, op, inputs)


@pytest.mark.parametrize("mask", [(9,), (5, 9), (5, 7), (1, 5, 9), (4, 1, 9), (2, 1, 5, 9), (1, 4, 5, 1)])
@pytest.mark.parametrize("kind", ["bool", "float32", "int32"])
def test_attention__masks__as_host(gpu: Gpu, mask: tuple[int, ...], kind: str) -> None:
    given = RNG.random(mask) > 0.3 if kind == "bool" else RNG.integers(-2, 2, mask).astype(kind)
    _same(gpu, Attention(is_causal=1), [normal(2, 4, 5, 8), normal(2, 2, 9, 8), normal(2, 2, 9, 8), given])


def test_attention__decode_with_past__as_host(gpu: Gpu) -> None:
    q, k, v = normal(2, 4, 1, 16), normal(2, 2, 1, 16), normal(2, 2, 1, 16)
    past = [normal(2, 2, 70, 16), normal(2, 2, 70, 16)]
    for present in ((True,), (True, True, True), (False, True, True)):
        _same(gpu, Attention(is_causal=1, present=present), [q, k, v, None, *past])


def test_attention__wide_heads__as_host(gpu: Gpu) -> None:
    _same(gpu, Attention(), [normal(1, 2, 40, 160), normal(1, 2, 36, 160), normal(1, 2, 36, 160)], 1e-4)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_attention__scores_wanted__as_host(gpu: Gpu, mode: int) -> None:
    op = Attention(qk_matmul_output_mode=mode, softcap=1.5, is_causal=1, present=(True, False, False, True))
    inputs: list[Any] = [normal(1, 4, 5, 8), normal(1, 2, 9, 8), normal(1, 2, 9, 8)]
    host = run_op(op, list(inputs))
    y, scores = run_op(op, list(inputs), gpu)
    np.testing.assert_allclose(y, host[0], 2e-5, 2e-5)
    np.testing.assert_allclose(scores, host[3], 2e-5, 2e-5)


def test_attention__external_cache__as_host(gpu: Gpu) -> None:
    lengths = np.array([9, 2], np.int64)
    q, k, v = normal(2, 2, 4, 8), normal(2, 2, 9, 8), normal(2, 2, 9, 8)
    for causal, left, right in ((1, -1, -1), (0, 2, 1), (1, 3, -1)):
        op = Attention(is_causal=causal, left_window_size=left, right_window_size=right)
        _same(gpu, op, [q, k, v, None, None, None, lengths])


def test_attention__half__as_host(gpu: Gpu) -> None:
    inputs = [normal(1, 2, 5, 8), normal(1, 2, 9, 8), normal(1, 2, 9, 8), normal(5, 9)]
    _same(gpu, Attention(), [x.astype(np.float16) for x in inputs], 2e-3)


@pytest.mark.parametrize(
    ("queries", "keys", "wanted"),
    [
        (5, 600, {"few", "few_x1", "rows"}),
        (17, 600, {"tiled_64", "tiled_32_split2", "flash_16", "flash_4", "rows"}),
        (35, 75, {"tiled_32", "tiled_32x64"}),
    ],
)
def test_attention__every_candidate__as_the_formula(gpu: Gpu, queries: int, keys: int, wanted: set[str]) -> None:
    problem = AttentionProblem(2, queries, keys, 16, 16, 1, keys)
    target = replace(gpu.target, vendor="", limits=replace(gpu.target.limits, workgroup_bytes=32768))
    q, k, v = (normal(1, 2, rows, 16) for rows in (queries, keys, keys))
    weights = np.exp(q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    types = [typed(x) for x in (q, k, v)]
    names = [c.name for c in ATTENTIONS.rank(problem, target).others if c.cost is not None]
    assert wanted <= set(names)
    for name in names:
        made = sample(Noted(ATTENTIONS, problem), name, target)
        (got,) = gpu.run(made, [carrier(x)[1] for x in (q, k, v)], types, [typed(q)])
        np.testing.assert_allclose(got, expected, 2e-5, 2e-5, err_msg=name)


LARGE, SMALL, WIDE = attention.LARGE, attention.SMALL, attention.WIDE
TILED = [
    # batch, heads, queries, keys, components of keys and of values; tile; masked; packed heads; type
    ((1, 2, 70, 75, 56, 56), LARGE, False, True, "float32"),
    ((2, 3, 33, 40, 32, 32), replace(LARGE, splits=2), True, False, "float16"),
    ((1, 2, 47, 70, 64, 64), SMALL, True, True, "float32"),
    ((1, 3, 35, 33, 5, 7), SMALL, True, False, "float32"),
    ((1, 1, 66, 70, 33, 18), replace(LARGE, splits=3), True, True, "float32"),
    ((1, 1, 40, 66, 80, 76), SMALL, False, True, "float32"),
    ((1, 2, 47, 70, 44, 44), WIDE, True, True, "float32"),
    ((2, 3, 35, 130, 5, 7), WIDE, True, False, "float16"),
    ((1, 1, 33, 140, 33, 18), replace(WIDE, splits=2), True, True, "float32"),
]


@pytest.mark.parametrize(("sizes", "tile", "masked", "packed", "kind"), TILED)
def test_attention__tiles_at_odd_sizes__as_the_formula(
    gpu: Gpu, sizes: tuple[int, int, int, int, int, int], tile: Tile, masked: bool, packed: bool, kind: str
) -> None:
    B, H, M, N, D, E = sizes

    def view(positions: int, size: int) -> HeadView:
        own = (positions * H * size, size, H * size, 1) if packed else (H * positions * size, positions * size, size, 1)
        return HeadView(0, own)

    def whole(positions: int, size: int) -> tuple[int, ...]:
        return (B, positions, H, size) if packed else (B, H, positions, size)

    def heads(x: Any) -> Any:
        return x.astype(np.float64).swapaxes(1, 2) if packed else x.astype(np.float64)

    form = AttentionForm(sizes, view(M, D), view(N, D), view(N, E), view(M, E), 0.3, masked)
    q, k, v = (normal(*whole(*s)).astype(kind) for s in ((M, D), (N, D), (N, E)))
    mask = normal(H, M, N) * np.float32(2)
    mask[..., ::3] = -np.inf
    mask[0, 1 % M] = -np.inf
    inputs = [q, k, v, *([mask] if masked else [])]
    types = [typed(x) for x in inputs]
    y = typed(np.zeros(whole(M, E), kind))
    operands = [inp(i, t) for i, t in enumerate(types) if t is not None]
    bias = operands[3] if masked else None
    assert y is not None
    target = replace(gpu.target, vendor="", limits=replace(gpu.target.limits, workgroup_bytes=32768))
    assert tile.workgroup_bytes(D, E) <= 32768
    tensors = AttentionTensors(operands[0], operands[1], operands[2], out(0, y), bias)
    made = attention.attend(target, form, tensors, tile)
    (got,) = gpu.run(made, [carrier(x)[1] for x in inputs], types, [y])
    scores = 0.3 * heads(q) @ heads(k).swapaxes(2, 3) + (mask if masked else 0)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    expected = np.where(total == 0, 0, weights / np.where(total == 0, 1, total)) @ heads(v)
    tolerance = 2e-5 if kind == "float32" else 2e-3
    np.testing.assert_allclose(heads(got), expected, tolerance, tolerance)


REACH = [
    # batch, heads, group, queries, keys, components; kernel
    ((2, 4, 2, 1, 300, 16), "few"),
    ((1, 6, 3, 5, 700, 20), "few"),
    ((2, 2, 1, 9, 40, 5), "few"),
    ((1, 4, 4, 3, 290, 256), "few"),
    ((2, 4, 2, 21, 70, 16), "flash"),
    ((1, 2, 1, 1, 33, 5), "flash"),
    ((1, 36, 36, 1, 150, 128), "flash"),
    ((1, 2, 1, 37, 70, 128), "flash"),
    ((1, 12, 1, 48, 50, 124), "flash"),
    ((2, 4, 2, 50, 130, 16), "tiled"),
    ((1, 2, 2, 37, 70, 6), "split"),
    ((2, 4, 2, 7, 30, 16), "rows"),
]


@pytest.mark.parametrize(("sizes", "kernel"), REACH)
@pytest.mark.parametrize("given", ["before", "lengths", "prompt", "wide"])
def test_attention__keys_in_reach__as_the_formula(
    gpu: Gpu, sizes: tuple[int, int, int, int, int, int], kernel: str, given: str
) -> None:
    B, H, group, M, N, D = sizes
    rng = np.random.default_rng(B + M + N)
    reach = {
        "before": Reach(before=6, after=2, first=N - M),
        "lengths": Reach(before=-1, after=0, lacking=1),
        "prompt": Reach(before=60, after=0, lacking=1),
        "wide": Reach(before=-1, after=3, lacking=0),
    }[given]
    lengths = rng.integers(M, N + 1, B)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((B, H, M, D), *[(B, H // group, N, D)] * 2))
    mask, sink = rng.standard_normal((1, H, M, N)).astype(np.float32), rng.standard_normal(H).astype(np.float32)
    number = np.array([M], np.int32)
    kind = np.int64 if given == "wide" else np.int32
    bound = [q, k, v, mask, (lengths - reach.lacking).astype(kind), number, sink]
    types: list[Any] = [typed(x) for x in bound]
    y: Any = typed(np.zeros((B, H, M, D), np.float32))
    operands = [inp(i, t) for i, t in enumerate(types)]
    by_length, prompt = given != "before", given == "prompt"
    tensors = AttentionTensors(
        operands[0],
        operands[1],
        operands[2],
        out(0, y),
        operands[3],
        operands[4] if by_length else None,
        operands[5] if prompt else None,
        operands[6],
    )

    def view(heads: int, rows: int) -> HeadView:
        return HeadView(0, (heads * rows * D, rows * D, D, 1))

    views = (view(H, M), view(H // group, N), view(H // group, N), view(H, M))
    form = AttentionForm((B, H, M, N, D, D), *views, 0.4, True, group=group, cap=1.5, reach=reach)
    off = frozenset({"attention_few", "attention_tiled"} if kernel == "flash" else {"attention_few"})
    limits = replace(gpu.target.limits, workgroup_bytes=16384 if D > 64 else 32768)
    target = replace(gpu.target, limits=limits, disabled=off if kernel in ("flash", "tiled", "split") else frozenset())
    tile = {"tiled": LARGE, "split": replace(SMALL, splits=2)}.get(kernel)
    if kernel == "rows":
        target = replace(target, vendor="google")
    made = attention.attend(target, form, tensors, tile)
    assert f"attention_{kernel.replace('split', 'tiled')}" in made[0].kernel.name
    assert all(d.kernel.module.workgroup_bytes <= limits.workgroup_bytes for d in made)
    (got,) = gpu.run(made, [carrier(x)[1] for x in bound], types, [y])

    first = np.where(prompt, 0, lengths - M) if by_length else np.full(B, reach.first)
    ends = lengths if by_length else np.full(B, N)
    expected = np.zeros((B, H, M, D))
    for b, h, i in np.ndindex(B, H, M):
        at = first[b] + i
        keys = [
            j
            for j in range(ends[b])
            if (reach.before < 0 or j >= at - reach.before) and (reach.after < 0 or j <= at + reach.after)
        ]
        x = k[b, h // group, keys].astype(np.float64) @ q[b, h, i] * 0.4
        weights = np.exp(1.5 * np.tanh(x / 1.5) + mask[0, h, i, keys])
        expected[b, h, i] = weights @ v[b, h // group, keys] / (weights.sum() + np.exp(sink[h]))
    np.testing.assert_allclose(got, expected, 2e-4, 2e-5)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shared", [False, True])
def test_linear_attention__rules__as_host(gpu: Gpu, rule: str, shared: bool) -> None:
    gated, delta = RULES[rule]
    b, t, h, hq, size_k, size_v = 2, 5, 2, 4, 8, 40
    decay = -np.abs(normal(b, t, h if shared else h * size_k)) if gated else None
    beta = np.abs(normal(b, t, 1 if shared else h)) if delta else None
    past = normal(b, h, size_k, size_v) if shared else None
    inputs = [normal(b, t, hq * size_k), normal(b, t, h * size_k) * 0.3, normal(b, t, h * size_v), past, decay, beta]
    op = LinearAttention(kv_num_heads=h, q_num_heads=hq, update_rule=rule, present=(True, True))
    _same(gpu, op, inputs, 1e-4)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dim", [0, 4])
@pytest.mark.parametrize("flat", [False, True])
def test_rotary_embedding__layouts__as_host(gpu: Gpu, interleaved: int, dim: int, flat: bool) -> None:
    b, h, s, d = 2, 3, 5, 8
    x = normal(b, s, h * d) if flat else normal(b, h, s, d)
    op = RotaryEmbedding(interleaved=interleaved, rotary_embedding_dim=dim, num_heads=h if flat else None)
    half = (dim or d) // 2
    positions = RNG.integers(0, 50, (b, s))
    _same(gpu, op, [x, normal(50, half), normal(50, half), positions])
    _same(gpu, op, [x, normal(b, s, half), normal(b, s, half)])
    half_inputs = [v.astype(np.float16) for v in (x, normal(b, s, half), normal(b, s, half))]
    _same(gpu, op, half_inputs, 2e-3)
