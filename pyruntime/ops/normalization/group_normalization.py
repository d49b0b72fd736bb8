"""InstanceNormalization and GroupNormalization: y = (x - mean) / sqrt(var + epsilon) * scale + bias.

Mean and population variance are over all positions of a group of channels of one image; InstanceNormalization has one
channel per group. Statistics are computed in float32 (float64 inputs: float64) for any stash_type. Source: ONNX
operators InstanceNormalization (6, 22), GroupNormalization (18: scale and bias per group; 21: per channel).
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.rows.groups import Groups, normalize_groups
from pyruntime.ops.base import LATEST, Op, op, refuse_float64
from pyruntime.ops.convolution.sliding import accumulator

__all__ = ["GroupNormalization", "InstanceNormalization"]


class _GroupNormalization(Op):
    """x: [N, C, D1 .. Dn]; scale, bias: [C] or [groups], of GroupNormalization in any shape; floats of one type."""

    flat: ClassVar[bool] = True
    """Whether scale and bias are read flat, as the function that ONNX defines does."""

    epsilon: float
    num_groups: int

    def groups(self, channels: int) -> int:
        """Return the number of groups. Raises InvalidGraph if the channels do not divide evenly."""
        if self.num_groups < 1 or channels % self.num_groups:
            self.fail(f"{channels} channels in groups of equal size", f"num_groups {self.num_groups}")
        return self.num_groups

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> tuple[TensorType, ...]:
        self.floating(x, scale, bias)
        if x.rank < 3:
            self.fail("an input [N, C, D1, ...]", x)
        expected = self.parameters(x.shape[1])
        if any(p.size != expected or (p.rank != 1 and not self.flat) for p in (scale, bias)):
            self.fail(f"scale and bias [{expected}]", f"{scale}, {bias}")
        return (TensorType(x.dtype, x.shape),)

    def parameters(self, channels: int) -> int:
        """Return the number of elements of scale and bias."""
        self.groups(channels)
        return channels

    def evaluate(self, x: Array, scale: Array, bias: Array) -> tuple[Array, ...]:
        channels = x.shape[1]
        if not x.size:
            return (x,)
        rows = x.reshape(x.shape[0], self.groups(channels), -1).astype(accumulator(x.dtype), copy=False)
        mean = rows.mean(axis=2, keepdims=True, dtype=np.float64)
        distance = rows - mean
        variance = np.mean(distance * distance, axis=2, keepdims=True)
        normal = (distance / np.sqrt(variance + self.epsilon)).reshape(x.shape)
        column = (-1, *(1,) * (x.ndim - 2))
        repeats = channels // self.parameters(channels)
        scale, bias = (np.repeat(p.astype(np.float64), repeats).reshape(column) for p in (scale, bias))
        return ((normal * scale + bias).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType, scale: TensorType, bias: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        (y,) = self.infer(x, scale, bias)
        groups = self.groups(x.shape[1])
        affine = inp(1, scale), inp(2, bias)
        inner = math.prod(x.shape[2:])
        per_group = scale.size != x.shape[1]
        form = Groups(x.shape[0] * groups, self.epsilon, 0.0, affine, groups, max(inner, 1), per_group)
        return normalize_groups(target, out(0, y), inp(0, x), form)


@op("InstanceNormalization", opsets=range(6, LATEST + 1))
class InstanceNormalization(_GroupNormalization):
    """Normalizes each channel of each image separately."""

    flat = False

    epsilon: float = 1e-5

    def groups(self, channels: int) -> int:
        return channels


@op("GroupNormalization", opsets=range(21, LATEST + 1))
class GroupNormalization(_GroupNormalization):
    """Groups of C / num_groups channels; scale and bias [C]."""

    epsilon: float = 1e-5
    num_groups: int
    stash_type: int = 1


@op("GroupNormalization", opsets=range(18, 21))
class GroupNormalization18(_GroupNormalization):
    """Groups of C / num_groups channels; scale and bias [num_groups]."""

    epsilon: float = 1e-5
    num_groups: int

    def parameters(self, channels: int) -> int:
        return self.groups(channels)
