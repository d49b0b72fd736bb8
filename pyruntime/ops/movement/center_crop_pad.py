"""CenterCropPad: crop or zero-pad x to a size, around its center. Source: ONNX operator CenterCropPad.

An odd difference crops, or pads, one more element at the end.
"""

from __future__ import annotations

from pyruntime.ir import TensorType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("CenterCropPad", opsets=range(18, LATEST + 1))
class CenterCropPad(Decomposed):
    """x: any shape; shape: int32 or int64 [number of axes], the target sizes."""

    axes: tuple[int, ...] | None = None

    def expand(self, body: Expansion, x: TensorType, shape: TensorType) -> tuple[TensorType | None, ...]:
        wanted = shape.ints()
        axes = [self.axis_of(axis, x.rank) for axis in (range(x.rank) if self.axes is None else self.axes)]
        if len(axes) != len(wanted) or len(set(axes)) != len(axes) or any(size < 0 for size in wanted):
            self.fail("a size of at least 0 for each of distinct axes", f"{list(wanted)} for {axes}")
        more = [size - x.shape[axis] for axis, size in zip(axes, wanted, strict=True)]
        begins = [n // 2 if n >= 0 else -(-n // 2) for n in more]
        ends = [n - begin for n, begin in zip(more, begins, strict=True)]
        return (body("Pad", x, body.ints(*begins, *ends), None, body.ints(*axes)),)
