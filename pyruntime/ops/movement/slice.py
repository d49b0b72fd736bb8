"""Slice: y[c] = x[start + c * step] along given axes. Source: ONNX operator Slice."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, strided_copy
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.by_attribute import ByAttribute

ENDLESS = (2**31 - 1, 2**63 - 1)

Cut = tuple[int, int, int]
"""(first index, number of elements, step) along one dimension."""


def cut(dim: int, start: int, end: int, step: int) -> Cut:
    """Resolve the slice `start:end:step` of a dimension of `dim` elements.

    For step < 0, ONNX's clamping differs from Python's. An end of INT_MAX means the last element in the direction of
    the step, as in onnxruntime, also for negative steps, where the specification's clamping would give an empty slice.
    """
    if end in ENDLESS:
        end = dim if step > 0 else -dim - 1
    start, end = (v + dim if v < 0 else v for v in (start, end))
    low, high = (0, dim) if step > 0 else (-1, dim - 1)
    start, end = min(max(start, 0), high), min(max(end, low), high)
    count = max(0, -((start - end) // step))
    return (start if count else 0), count, step


def cuts(
    op: Op,
    shape: tuple[int, ...],
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> list[Cut]:
    """Resolve the slices of all dimensions; negative indices count from the end and are clamped.

    Raises:
        InvalidGraph: lengths differ, an axis repeats or does not exist, or a step is 0.
    """
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        op.fail("starts, ends, axes and steps of one length", [len(starts), len(ends), len(axes), len(steps)])
    taken: dict[int, Cut] = {}
    for start, end, given, step in zip(starts, ends, axes, steps, strict=True):
        axis = op.axis_of(given, len(shape))
        if axis in taken or axis >= len(shape):
            op.fail("distinct axes of the input", list(axes))
        if step == 0:
            op.fail("nonzero steps", list(steps))
        taken[axis] = cut(shape[axis], start, end, step)
    return [taken.get(axis, (0, dim, 1)) for axis, dim in enumerate(shape)]


@op("Slice", opsets=range(10, LATEST + 1))
class Slice(Op):
    """x: any shape; starts, ends, axes, steps: int32 or int64 [n]."""

    def cuts(self, x: TensorType, where: Sequence[TensorType | None]) -> list[Cut]:
        """Return the slices of all dimensions, given the types of starts, ends, axes and steps."""
        for t in where:
            if t is not None and (t.rank > 1 or t.dtype not in (DType.INT32, DType.INT64)):
                self.fail("starts, ends, axes and steps of rank 1 in int32 or int64", t)
        return self.numbers(x.shape, [None if t is None else t.ints() for t in where])

    def numbers(self, shape: tuple[int, ...], given: Sequence[Sequence[int] | None]) -> list[Cut]:
        """Return the slices of all dimensions, given the values of starts, ends, axes and steps."""
        starts, ends, axes, steps = (*given, None, None, None, None)[:4]
        if starts is None or ends is None:
            self.fail("starts and ends", "none")
        return cuts(self, shape, starts, ends, axes, steps)

    def infer(
        self,
        x: TensorType,
        starts: TensorType,
        ends: TensorType,
        axes: TensorType | None = None,
        steps: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        return (x.with_shape(*(count for _, count, _ in self.cuts(x, (starts, ends, axes, steps)))),)

    def evaluate(self, x: Array, *where: Array | None) -> tuple[Array, ...]:
        picks = []
        for start, count, step in self.numbers(x.shape, [None if a is None else a.reshape(-1).tolist() for a in where]):
            stop = start + count * step
            picks.append(slice(start, stop if stop >= 0 else None, step) if count else slice(0, 0))
        return (x[tuple(picks)],)

    def alias(self, x: TensorType, *where: TensorType | None) -> int | None:
        taken = zip(self.cuts(x, where), x.shape, strict=True)
        return 0 if all(count == dim and (step > 0 or dim <= 1) for (_, count, step), dim in taken) else None

    def lower(self, target: Target, x: TensorType, *where: TensorType | None) -> tuple[Dispatch, ...]:
        taken, own = self.cuts(x, where), contiguous(x.shape)
        base = sum(start * stride for (start, _, _), stride in zip(taken, own, strict=True))
        strides = [step * stride for (_, _, step), stride in zip(taken, own, strict=True)]
        y = x.with_shape(*(count for _, count, _ in taken))
        return (strided_copy(target, "slice", out(0, y), inp(0, x), base, strides),)


@op("Slice", opsets=range(1, 10))
class SliceByAttribute(ByAttribute):
    """x: any shape; starts, ends and axes are attributes; all steps are 1."""

    later, moved = Slice, ("starts", "ends", "axes")

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    axes: tuple[int, ...] | None = None
