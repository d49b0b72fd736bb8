"""Squeeze and Unsqueeze: remove or insert dimensions of size 1. Source: ONNX operators Squeeze, Unsqueeze."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir import Array, TensorType
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.by_attribute import ByAttribute


def squeezed(op: Op, shape: tuple[int, ...], axes: Sequence[int] | None) -> tuple[int, ...]:
    """Return `shape` without `axes` (default: all of size 1). Raises InvalidGraph if a size is not 1."""
    if not axes:
        return tuple(d for d in shape if d != 1)
    gone = {op.axis_of(axis, len(shape)) for axis in axes}
    for axis in gone:
        if axis >= len(shape) or shape[axis] != 1:
            op.fail("axes of size 1", f"axis {axis} of {list(shape)}")
    return tuple(d for axis, d in enumerate(shape) if axis not in gone)


def unsqueezed(op: Op, shape: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    """Return `shape` with a 1 at each of `axes`, which index the output shape. Raises InvalidGraph for duplicates."""
    rank = len(shape) + len(axes)
    new = {op.axis_of(axis, rank) for axis in axes}
    if len(new) != len(axes):
        op.fail("distinct axes", list(axes))
    old = iter(shape)
    return tuple(1 if axis in new else next(old) for axis in range(rank))


@op("Squeeze", opsets=range(13, LATEST + 1))
class Squeeze(Op):
    """x: any shape; axes: int64 [n]; absent or empty: all dimensions of size 1."""

    def infer(self, x: TensorType, axes: TensorType | None = None) -> tuple[TensorType, ...]:
        return (x.with_shape(*squeezed(self, x.shape, axes.ints() if axes else None)),)

    def evaluate(self, x: Array, axes: Array | None = None) -> tuple[Array, ...]:
        return (x.reshape(squeezed(self, x.shape, None if axes is None else axes.reshape(-1).tolist())),)

    def alias(self, x: TensorType, axes: TensorType | None = None) -> int | None:
        return 0


@op("Squeeze", opsets=range(1, 13))
class SqueezeByAttribute(ByAttribute):
    """x: any shape; axes: an attribute; absent or empty: all dimensions of size 1."""

    later, moved = Squeeze, ("axes",)

    axes: tuple[int, ...] | None = None


@op("Unsqueeze", opsets=range(13, LATEST + 1))
class Unsqueeze(Op):
    """x: any shape; axes: int64 [n], positions in the output's shape."""

    def infer(self, x: TensorType, axes: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*unsqueezed(self, x.shape, axes.ints())),)

    def evaluate(self, x: Array, axes: Array) -> tuple[Array, ...]:
        return (x.reshape(unsqueezed(self, x.shape, axes.reshape(-1).tolist())),)

    def alias(self, x: TensorType, axes: TensorType) -> int | None:
        return 0


@op("Unsqueeze", opsets=range(1, 13))
class UnsqueezeByAttribute(ByAttribute):
    """x: any shape; axes: an attribute, positions in the output's shape."""

    later, moved = Unsqueeze, ("axes",)

    axes: tuple[int, ...]
