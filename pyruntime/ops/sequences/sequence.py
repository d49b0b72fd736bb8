"""Sequences: lists of tensors on the host. Source: ONNX operators Sequence*, SplitToSequence, ConcatFromSequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, DType, SequenceType, TensorType, ValueType, of_element
from pyruntime.ops.base import LATEST, Op, op


def _position(op: Op, position: Array | None, default: int, most: int, length: int) -> int:
    """Return the non-negative index of a position. Raises RuntimeException outside [-length, most]."""
    index = default if position is None else int(position.reshape(()))
    if not -length <= index <= most:
        raise errors.RuntimeException(
            f"{op.op_type}: expected a position in [{-length}, {most}] of a sequence of {length}, got {index}"
        )
    return index + length if index < 0 else index


@op("SequenceConstruct", opsets=range(11, LATEST + 1))
class SequenceConstruct(Op):
    """Makes a sequence of the inputs, all of one type."""

    def infer(self, *xs: TensorType) -> tuple[ValueType, ...]:
        if not xs:
            self.fail("at least one input", "none")
        return (SequenceType(self.same_dtype(*xs)),)

    def evaluate(self, *xs: Array) -> tuple[list[Array], ...]:
        return (list(xs),)


@op("SequenceEmpty", opsets=range(11, LATEST + 1))
class SequenceEmpty(Op):
    """Makes an empty sequence. dtype: a TensorProto code, default float."""

    dtype: int | None = None

    def infer(self) -> tuple[ValueType, ...]:
        return (SequenceType(DType.FLOAT if self.dtype is None else DType.from_code(self.dtype)),)

    def evaluate(self) -> tuple[list[Array], ...]:
        return ([],)


@op("SequenceLength", opsets=range(11, LATEST + 1))
class SequenceLength(Op):
    """Number of elements, as an int64 scalar."""

    def infer(self, xs: SequenceType) -> tuple[ValueType, ...]:
        return (TensorType(DType.INT64, ()),)

    def evaluate(self, xs: list[Any]) -> tuple[Array, ...]:
        return (np.array(len(xs), np.int64),)


@op("SequenceAt", opsets=range(11, LATEST + 1))
class SequenceAt(Op):
    """xs[position]; a negative position counts from the end."""

    data_dependent = True

    def infer(self, xs: SequenceType, position: TensorType) -> tuple[ValueType, ...]:
        items = xs.value()
        at = _position(self, position.value(), 0, len(items) - 1, len(items))
        return (of_element(xs.element, items[at]),)

    def evaluate(self, xs: list[Any], position: Array) -> tuple[Any, ...]:
        return (xs[_position(self, position, 0, len(xs) - 1, len(xs))],)


@op("SequenceInsert", opsets=range(11, LATEST + 1))
class SequenceInsert(Op):
    """Inserts `tensor` before `position`, by default at the end."""

    def infer(self, xs: SequenceType, tensor: TensorType, position: TensorType | None = None) -> tuple[ValueType, ...]:
        if xs.element is not tensor.dtype:
            self.fail(f"a tensor of the element type of {xs}", tensor)
        return (SequenceType(xs.element),)

    def evaluate(self, xs: list[Any], tensor: Array, position: Array | None = None) -> tuple[list[Any], ...]:
        at = _position(self, position, len(xs), len(xs), len(xs))
        return ([*xs[:at], tensor, *xs[at:]],)


@op("SequenceErase", opsets=range(11, LATEST + 1))
class SequenceErase(Op):
    """Removes the element at `position`, by default the last."""

    def infer(self, xs: SequenceType, position: TensorType | None = None) -> tuple[ValueType, ...]:
        return (SequenceType(xs.element),)

    def evaluate(self, xs: list[Any], position: Array | None = None) -> tuple[list[Any], ...]:
        at = _position(self, position, len(xs) - 1, len(xs) - 1, len(xs))
        return ([*xs[:at], *xs[at + 1 :]],)


@op("SplitToSequence", opsets=range(11, LATEST + 1))
class SplitToSequence(Op):
    """Splits x along `axis` into a sequence.

    split: a scalar is the size of the parts (the last may be smaller), any other tensor lists the sizes. Default: parts
    of size 1, without the axis if `keepdims` is 0 (`keepdims` has no effect otherwise).
    """

    axis: int = 0
    keepdims: int = 1

    def infer(self, x: TensorType, split: TensorType | None = None) -> tuple[ValueType, ...]:
        if x.rank == 0:
            self.fail("a tensor of rank 1 or more", x)
        self.axis_of(self.axis, x.rank)
        return (SequenceType(x.dtype),)

    def evaluate(self, x: Array, split: Array | None = None) -> tuple[list[Array], ...]:
        axis = self.axis_of(self.axis, x.ndim)
        length = x.shape[axis]
        if split is None and not self.keepdims:
            return (list(np.moveaxis(x, axis, 0)),)
        ends = np.arange(1, length + 1) if split is None else self._ends(split, length)
        parts = np.split(x, ends, axis)
        return (parts[: len(ends)],)

    def _ends(self, split: Array, length: int) -> Array:
        """Return the end of each part. Raises RuntimeException if the sizes do not add up to the axis."""
        if split.ndim == 0:
            size = int(split)
            if size <= 0:
                raise errors.RuntimeException(f"{self.op_type}: expected split to be positive, got {size}")
            return np.minimum(np.arange(size, length + size, size), length)
        if (split < 0).any() or int(split.sum()) != length:
            raise errors.RuntimeException(
                f"{self.op_type}: expected sizes that add up to {length}, got {split.tolist()}"
            )
        return np.cumsum(split)  # of any rank, flat


@op("ConcatFromSequence", opsets=range(11, LATEST + 1))
class ConcatFromSequence(Op):
    """Concatenates the elements along `axis`, or stacks them along a new axis if `new_axis` is 1."""

    data_dependent = True
    axis: int
    new_axis: int = 0

    def infer(self, xs: SequenceType) -> tuple[ValueType, ...]:
        items = xs.value()
        if not isinstance(xs.element, DType) or not items:
            self.fail("a sequence of at least one tensor", f"{xs} of {len(items)}")
        shapes = [x.shape for x in items]
        axis = self.axis_of(self.axis, len(shapes[0]) + self.new_axis)
        kept = {s if self.new_axis else (*s[:axis], -1, *s[axis + 1 :]) for s in shapes}
        if len(kept) != 1 or len({len(s) for s in shapes}) != 1:
            self.fail(f"tensors that differ along axis {axis} only", [list(s) for s in shapes])
        middle = len(shapes) if self.new_axis else sum(s[axis] for s in shapes)
        first = shapes[0]
        return (TensorType(xs.element, (*first[:axis], middle, *first[axis + (not self.new_axis) :])),)

    def evaluate(self, xs: list[Array]) -> tuple[Array, ...]:
        return ((np.stack if self.new_axis else np.concatenate)(xs, axis=self.axis),)
