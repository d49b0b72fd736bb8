"""The kernel that reduces attention's shares of the keys, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, HeadView
from pyruntime.kernels.attention.few_queries import merge, merge_lanes
from pyruntime.kernels.ir.dispatch import inp, out
from tests.desktop import DesktopGpu


@pytest.mark.parametrize(("splits", "lanes"), [(2, 1), (5, 1), (6, 2), (16, 4), (41, 16), (64, 16), (512, 16)])
def test_merge_lanes__splits__five_for_each_up_to_sixteen(splits: int, lanes: int) -> None:
    assert merge_lanes(splits) == lanes


@pytest.mark.parametrize("empty_zero", [False, True])
@pytest.mark.parametrize("has_sink", [False, True])
@pytest.mark.parametrize(("splits", "size"), [(2, 64), (7, 36), (16, 8), (50, 30), (100, 64)])
def test_merge__shares_of_any_size__one_softmax(
    splits: int, size: int, has_sink: bool, empty_zero: bool, desktop_gpu: None
) -> None:
    batch, heads, queries = 2, 3, 5
    rng = np.random.default_rng(splits)
    parts = rng.standard_normal((splits, batch, heads, queries, size)).astype(np.float32)
    stats = rng.uniform(0.5, 4, (splits, batch, heads, queries, 2)).astype(np.float32)
    stats[..., 0] = 30 * rng.standard_normal(stats.shape[:-1])
    empty = rng.random(stats.shape[:-1]) < 0.3
    empty[:, 1, 2, 4] = True
    parts[empty], stats[empty] = np.nan, (7e4, 0)
    sink = rng.standard_normal(heads).astype(np.float32)

    tops = np.where(empty, -np.inf, stats[..., 0].astype(np.float64))
    most = np.maximum(tops.max(0), sink[:, None] if has_sink else -3e38)
    weights = np.exp(tops - most)
    total = (weights * stats[..., 1]).sum(0) + (np.exp(sink[:, None] - most) if has_sink else 0)
    summed = np.where(empty[..., None], 0, weights[..., None] * parts).sum(0)
    with np.errstate(invalid="ignore"):
        wanted = np.where(total[..., None] == 0, 0.0 if empty_zero else np.nan, summed / total[..., None])

    types = [TensorType(DType.FLOAT, x.shape) for x in (parts, stats, sink)]
    y = TensorType(DType.FLOAT, (batch, heads, queries, size))
    part, kept, given = (inp(i, kind) for i, kind in enumerate(types))
    view = HeadView.dense(heads, queries, size)
    form = AttentionForm((batch, heads, queries, 1000, size, size), view, view, view, view, 1.0, empty_zero)
    tensors = AttentionTensors(part, part, part, out(0, y), sink=given if has_sink else None)
    gpu = DesktopGpu()
    (made,) = gpu.run([merge(gpu.target, form, part, kept, tensors, splits)], [parts, stats, sink], types, [y])
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
