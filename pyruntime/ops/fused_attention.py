"""FusedAttention: softmax(scale * q kᵀ + mask) v over strided views, as one kernel. Made by passes, not by models.

Source: Vaswani et al., 2017; the kernel is `shaders/attention_flash.wgsl`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, params_of, template
from pyruntime.kernels.indexing import broadcast_strides
from pyruntime.ops.base import Op, Unsupported, op

__all__ = ["FusedAttention", "HeadView"]

WIDEST_HEAD = 128
"""Components of a head the kernel keeps in registers."""


@dataclass(frozen=True, slots=True)
class HeadView:
    """Where component (batch, head, position, component) of a tensor is: `base` and strides, in elements."""

    base: int
    strides: tuple[int, int, int, int]

    def array(self, x: Array, shape: tuple[int, ...]) -> Array:
        """The view of `x` with this shape."""
        flat = np.ascontiguousarray(x).reshape(-1)[self.base :]
        steps = tuple(s * flat.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False)

    @property
    def is_quads(self) -> bool:
        """True where components are contiguous and everything else lies at multiples of four."""
        return self.strides[3] == 1 and all(s % 4 == 0 for s in (self.base, *self.strides[:3]))


@op("FusedAttention", opsets=range(1, 2), domain="pyruntime")
class FusedAttention(Op):
    """q: [B, H, M, D], k: [B, H, N, D], v: [B, H, N, E] as views of the inputs; mask broadcasts to [B, H, M, N].

    The output has shape `y_shape`, of which `y_view` is the view [B, H, M, E]. With `empty_zero`, rows whose every key
    is masked by -infinity are 0 instead of NaN.
    """

    sizes: tuple[int, int, int, int, int, int]
    q_view: HeadView
    k_view: HeadView
    v_view: HeadView
    y_view: HeadView
    y_shape: tuple[int, ...]
    scale: float = 1.0
    empty_zero: bool = False

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        return (TensorType(self.same_dtype(q, k, v), self.y_shape),)

    def evaluate(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> tuple[Array, ...]:
        B, H, M, N, D, E = self.sizes
        queries = self.q_view.array(q, (B, H, M, D)).astype(np.float32)
        keys = self.k_view.array(k, (B, H, N, D)).astype(np.float32)
        scores = np.matmul(queries * np.float32(self.scale), keys.swapaxes(2, 3))
        if mask is not None:
            scores = scores + mask.astype(np.float32)
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isneginf(top) & self.empty_zero, 0, top))
        total = weights.sum(axis=-1, keepdims=True)
        weights = np.where((total == 0) & self.empty_zero, 0, weights / total)
        result = np.matmul(weights, self.v_view.array(v, (B, H, N, E)).astype(np.float32))
        y = np.zeros(self.y_shape, q.dtype)
        steps = tuple(s * y.itemsize for s in self.y_view.strides)
        np.lib.stride_tricks.as_strided(y.reshape(-1)[self.y_view.base :], (B, H, M, E), steps)[...] = result
        return (y,)

    def lower(
        self, target: Target, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        B, H, M, N, D, E = self.sizes
        if not q.dtype.is_float or q.dtype.is_wide or max(D, E) > WIDEST_HEAD:
            raise Unsupported(f"heads of {max(D, E)} components of {q.dtype.onnx_name} have no fused kernel")
        views = (self.q_view, self.k_view, self.v_view, self.y_view)
        quads = all(v.is_quads for v in views) and D % 4 == 0 and E % 4 == 0
        rows, split = (1, 64) if M == 1 else (4, 16) if M * H * B < 512 else (16, 4)
        keys = 64
        if target.is_software:
            rows, split, keys = 64, 1, 8
        while keys > split and keys * (max(D, E) + 7) * 4 + 1024 > target.limits.workgroup_bytes:
            keys //= 2
        kernel = template(
            "attention_flash",
            {"q": q.dtype, "k": k.dtype, "v": v.dtype, "y": q.dtype, **({"mask": mask.dtype} if mask else {})},
            DIM=D,
            DIM_V=E,
            ROWS=rows,
            SPLIT=split,
            KEYS=keys,
            **{
                name: 1
                for name, on in (
                    ("VEC", quads),
                    ("MASK", mask),
                    ("EMPTY_ZERO", self.empty_zero),
                    ("DIRECT", target.is_software),
                    ("UNROLL", not target.is_software),
                )
                if on
            },
        )
        tiles = math.ceil(M / rows)
        params = params_of(
            kernel,
            q_strides=self.q_view.strides,
            k_strides=self.k_view.strides,
            v_strides=self.v_view.strides,
            y_strides=self.y_view.strides,
            mask_strides=broadcast_strides(mask.shape, (B, H, M, N)) if mask else (),
            bases=[v.base for v in views],
            queries=M,
            keys=N,
            heads=H,
            tiles=tiles,
            jobs=tiles * B * H,
            scale=self.scale,
        )
        operands = [
            inp(0, q),
            inp(1, k),
            inp(2, v),
            *([inp(3, mask)] if mask else []),
            out(0, TensorType(q.dtype, self.y_shape)),
        ]
        flops = 2 * B * H * M * N * (D + E)
        return (Dispatch(kernel, tuple(operands), target.fold(tiles * B * H), params, flops=flops),)
