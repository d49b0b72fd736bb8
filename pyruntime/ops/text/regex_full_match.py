"""RegexFullMatch: whether a whole string matches a pattern. Source: ONNX operator RegexFullMatch."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.text.re2 import compiled


@op("RegexFullMatch", opsets=range(20, LATEST + 1))
class RegexFullMatch(Op):
    """pattern: RE2 syntax. y: bool, of x's shape."""

    pattern: str | None = None

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype is not DType.STRING:
            self.fail("a string tensor", x)
        if self.pattern is None:
            self.fail("the attribute `pattern`", "none")
        compiled(self.pattern)
        return (TensorType(DType.BOOL, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        pattern = compiled(self.pattern or "")
        found = [pattern.fullmatch(text) for text in x.reshape(-1)]
        return (np.array(found, bool).reshape(x.shape),)
