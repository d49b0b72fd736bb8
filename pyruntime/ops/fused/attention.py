"""FusedAttention: softmax(cap(scale * q kᵀ) + mask) v over strided views, in one kernel.

Source: Vaswani et al., 2017. `passes/fusion/fuse_attention.py` creates it from MatMul, Softmax and MatMul.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.attention.attention import WIDEST_HEAD, attend
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, HeadView
from pyruntime.ops.base import Unsupported, op
from pyruntime.ops.caches import CacheOp
from pyruntime.ops.operands import optional

__all__ = ["FusedAttention"]


@op("FusedAttention", opsets=range(1, 2), domain="pyruntime")
class FusedAttention(CacheOp):
    """q: [B, H, M, D], k: [B, G, N, D], v: [B, G, N, E], given as views of the inputs; mask broadcasts to [B, H, M, N].

    With `cap` above 0, scores become cap * tanh(score / cap) before the mask is added. `group` consecutive heads of q
    share a head of k and v: H = group · G. The output has shape `y_shape`, and `y_view` is its view [B, H, M, E]. With
    `empty_zero`, a row with all scores -inf gives 0 instead of NaN.
    """

    sizes: tuple[int, int, int, int, int, int]
    q_view: HeadView
    k_view: HeadView
    v_view: HeadView
    y_view: HeadView
    y_shape: tuple[int, ...]
    scale: float = 1.0
    empty_zero: bool = False
    group: int = 1
    cap: float = 0.0

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        return (TensorType(self.same_dtype(q, k, v), self.y_shape),)

    def evaluate(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> tuple[Array, ...]:
        B, H, M, N, D, E = self.sizes
        queries = self.q_view.array(q, (B, H, M, D)).astype(np.float32)
        keys = np.repeat(self.k_view.array(k, (B, H // self.group, N, D)).astype(np.float32), self.group, axis=1)
        scores = np.matmul(queries * np.float32(self.scale), keys.swapaxes(2, 3))
        if self.cap > 0:
            scores = np.tanh(scores / np.float32(self.cap)) * np.float32(self.cap)
        if mask is not None:
            scores = scores + mask.astype(np.float32)
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isneginf(top) & self.empty_zero, 0, top))
        total = weights.sum(axis=-1, keepdims=True)
        weights = np.where((total == 0) & self.empty_zero, 0, weights / total)
        values = np.repeat(self.v_view.array(v, (B, H // self.group, N, E)).astype(np.float32), self.group, axis=1)
        result = np.matmul(weights, values)
        y = np.zeros(self.y_shape, q.dtype)
        steps = tuple(s * y.itemsize for s in self.y_view.strides)
        np.lib.stride_tricks.as_strided(y.reshape(-1)[self.y_view.base :], (B, H, M, E), steps)[...] = result
        return (y,)

    def read_in_place(self, index: int, kind: TensorType, axis: int, rows: Any) -> FusedAttention | None:
        field = {1: "k_view", 2: "v_view"}.get(index)
        view = getattr(self, field).in_capacity(kind.shape, axis, rows) if field else None
        return replace(self, **{field: view}) if field and view else None

    def lower(
        self, target: Target, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        bias = optional(3, mask)
        y = out(0, TensorType(q.dtype, self.y_shape))
        dtype, widest = q.dtype, max(self.sizes[4:])
        if not dtype.is_float or dtype.is_wide or widest > WIDEST_HEAD:
            raise Unsupported(f"heads of {widest} components of {dtype.onnx_name} have no fused kernel")
        views = (self.q_view, self.k_view, self.v_view, self.y_view)
        form = AttentionForm(self.sizes, *views, self.scale, self.empty_zero, self.group, cap=self.cap)
        return attend(target, form, AttentionTensors(inp(0, q), inp(1, k), inp(2, v), y, bias))
