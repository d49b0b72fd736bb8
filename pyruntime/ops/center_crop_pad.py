"""CenterCropPad: the middle of x where it is too long, zeros around it where it is too short. Source: ONNX operator.

Of an odd number of surplus elements the end loses one more; of an odd number of missing ones it gains one more.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.pad import Side, pad_array, pad_copy


@op("CenterCropPad", opsets=range(18, LATEST + 1))
class CenterCropPad(Op):
    """x: any shape; shape: int32 or int64 [number of axes], the sizes wanted."""

    axes: tuple[int, ...] | None = None

    def sides(self, shape: tuple[int, ...], wanted: Sequence[int]) -> list[Side]:
        """The sides. Raises InvalidGraph where sizes and axes do not fit."""
        rank = len(shape)
        axes = range(rank) if self.axes is None else [self.axis_of(axis, rank) for axis in self.axes]
        if len(axes) != len(wanted) or len(set(axes)) != len(axes) or any(size < 0 for size in wanted):
            self.fail("a size of at least 0 for each of the axes, which differ", f"{list(wanted)} for {list(axes)}")
        sizes = dict(zip(axes, wanted, strict=True))
        sides = []
        for axis, dim in enumerate(shape):
            more = sizes.get(axis, dim) - dim
            begin = more // 2 if more >= 0 else -(-more // 2)
            sides.append(Side.of(dim, begin, more - begin))
        return sides

    def infer(self, x: TensorType, shape: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(*(side.size for side in self.sides(x.shape, shape.ints()))),)

    def evaluate(self, x: Array, shape: Array) -> tuple[Array, ...]:
        return (pad_array(x, self.sides(x.shape, shape.reshape(-1).tolist()), "constant", None),)

    def alias(self, x: TensorType, shape: TensorType) -> int | None:
        return 0 if all(side.is_whole for side in self.sides(x.shape, shape.ints())) else None

    def lower(self, target: Target, x: TensorType, shape: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x, shape)
        sides = self.sides(x.shape, shape.ints())
        return (pad_copy(target, out(0, y), inp(0, x), sides, "constant", bytes(16)),)
