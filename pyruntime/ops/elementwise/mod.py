"""Mod: remainder of floored (fmod = 0) or truncated (fmod = 1) division. Source: ONNX operator Mod."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from pyruntime.ir import Array, DType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.elementwise.elementwise import NUMBERS, Elementwise, Expression, compute_class

FLOORED = {
    "f32": "remainder_floored(a, b)",
    "i32": "i32_mod(a, b)",
    "u32": "u32_mod(a, b)",
    "i64": "i64_mod(a, b)",
    "u64": "u64_mod(a, b)",
}
TRUNCATED = FLOORED | {"f32": "remainder_truncated(a, b)", "i32": "i32_fmod(a, b)", "i64": "i64_fmod(a, b)"}


@op("Mod", opsets=range(10, LATEST + 1))
class Mod(Elementwise):
    """y = a - floor(a / b) b, with the sign of b; with fmod = 1, y = a - trunc(a / b) b, with the sign of a.

    Exact for floats too. The remainder by 0 is 0 for integers and NaN for floats.
    """

    names = ("a", "b")
    dtypes = NUMBERS

    fmod: Annotated[int, 0, 1] = 0

    def compute(self, a: Array, b: Array) -> Array:
        result: Array = np.fmod(a, b) if self.fmod else np.mod(a, b)
        return result

    def expression(self, *dtypes: DType | None) -> Expression | None:
        code = (TRUNCATED if self.fmod else FLOORED).get(compute_class(dtypes[0]) if dtypes[0] else "")
        return Expression(code, self.names) if code else None
