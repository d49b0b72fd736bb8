"""Reshape: change the shape of a tensor. Source: ONNX operator Reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyruntime.ir import Array, TensorType
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.by_attribute import ByAttribute


def resolve(op: Op, shape: tuple[int, ...], wanted: Sequence[int], allowzero: bool) -> tuple[int, ...]:
    """Replace 0 in `wanted` by the input's dimension (unless `allowzero`) and -1 by what remains.

    Raises:
        InvalidGraph: the number of elements does not match, or a dimension is undetermined.
    """
    size, dims = math.prod(shape), list(wanted)
    for d, dim in enumerate(dims):
        if dim == 0 and not allowzero:
            if d >= len(shape):
                op.fail(f"0 only for one of the {len(shape)} input dimensions", list(wanted))
            dims[d] = shape[d]
    if any(d < -1 for d in dims) or dims.count(-1) > 1:
        op.fail("dimensions of at least 0 and at most one -1", list(wanted))
    if -1 in dims:
        rest = math.prod(d for d in dims if d != -1)
        if rest == 0 or size % rest:
            op.fail(f"a shape of {size} elements", f"{list(wanted)} for {list(shape)}")
        dims[dims.index(-1)] = size // rest
    if math.prod(dims) != size:
        op.fail(f"a shape of {size} elements", f"{list(wanted)} for {list(shape)}")
    return tuple(dims)


@op("Reshape", opsets=range(14, LATEST + 1), earlier={range(5, 14): "allowzero"})
class Reshape(Op):
    """x: any shape; shape: int64 [rank of y]."""

    allowzero: int = 0

    def infer(self, x: TensorType, shape: TensorType) -> tuple[TensorType, ...]:
        if shape.rank != 1:
            self.fail("a shape of rank 1", shape)
        return (x.with_shape(*resolve(self, x.shape, shape.ints(), bool(self.allowzero))),)

    def evaluate(self, x: Array, shape: Array) -> tuple[Array, ...]:
        return (x.reshape(resolve(self, x.shape, shape.tolist(), bool(self.allowzero))),)

    def alias(self, x: TensorType, shape: TensorType) -> int | None:
        return 0


@op("Reshape", opsets=range(1, 5))
class ReshapeByAttribute(ByAttribute):
    """x: any shape; the target shape is an attribute."""

    later, moved = Reshape, ("shape",)

    shape: tuple[int, ...] = ()
    consumed_inputs: tuple[int, ...] | None = None
