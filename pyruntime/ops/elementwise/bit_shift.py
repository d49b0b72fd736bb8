"""BitShift: y = a << b or a >> b. Source: ONNX operator BitShift."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from pyruntime.ir import Array, DType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.elementwise.elementwise import INTEGERS, Elementwise, Expression, compute_class

LEFT = {
    "i32": "bitcast<i32>(u32_shl(bitcast<u32>(a), bitcast<u32>(b)))",
    "u32": "u32_shl(a, b)",
    "i64": "u64_shl(a, u64_shift_count(b))",
    "u64": "u64_shl(a, u64_shift_count(b))",
}
RIGHT = {
    "i32": "i32_shr(a, bitcast<u32>(b))",
    "u32": "u32_shr(a, b)",
    "i64": "i64_shr(a, u64_shift_count(b))",
    "u64": "u64_shr(a, u64_shift_count(b))",
}


@op("BitShift", opsets=range(11, LATEST + 1))
class BitShift(Elementwise):
    """y = a shifted by b bits; a right shift repeats the sign bit.

    A count that is negative or at least the bit width shifts out all bits: y is 0, or -1 for a right shift of negative
    a.
    """

    names = ("a", "b")
    dtypes = INTEGERS

    direction: Annotated[str, "LEFT", "RIGHT"]

    def compute(self, a: Array, b: Array) -> Array:
        width = 8 * a.dtype.itemsize
        out = (b < 0) | (b >= width)
        count = np.where(out, width - 1, b).astype(a.dtype)
        if self.direction == "LEFT":
            return np.where(out, 0, np.left_shift(a, count))
        return np.where(out & (a >= 0), 0, np.right_shift(a, count))

    def expression(self, *dtypes: DType | None) -> Expression | None:
        code = (LEFT if self.direction == "LEFT" else RIGHT).get(compute_class(dtypes[0]) if dtypes[0] else "")
        return Expression(code, self.names) if code else None
