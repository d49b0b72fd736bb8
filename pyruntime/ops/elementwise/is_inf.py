"""IsInf: test for infinity, optionally of one sign. Source: ONNX operator IsInf."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.elementwise.elementwise import FLOATS, FLOATS_8, Elementwise, classes


@op("IsInf", opsets=range(10, LATEST + 1))
class IsInf(Elementwise):
    """y = (detect_positive and x = inf) or (detect_negative and x = -inf)"""

    dtypes = FLOATS | FLOATS_8
    predicate = True
    scalars = ("detect_negative", "detect_positive")
    wgsl = classes(f32="is_inf(x) && select(detect_positive, detect_negative, is_negative(x)) != 0")

    detect_negative: int = 1
    detect_positive: int = 1

    def compute(self, x: Array) -> Array:
        positive, negative = np.isposinf(x), np.isneginf(x)
        return positive & bool(self.detect_positive) | negative & bool(self.detect_negative)
