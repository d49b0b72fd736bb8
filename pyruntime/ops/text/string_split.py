"""StringSplit: split strings at a delimiter. Source: ONNX operator StringSplit."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType, of_element
from pyruntime.ops.base import LATEST, Op, op


@op("StringSplit", opsets=range(20, LATEST + 1))
class StringSplit(Op):
    """y[..., k]: part k of x[...], padded with ""; z: int64, the number of parts, 0 for an empty string.

    Without a delimiter, strings are split at runs of whitespace, like Python's str.split(). At most `maxsplit` splits,
    from the left.
    """

    data_dependent = True
    delimiter: str | None = None
    maxsplit: int | None = None

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        if x.dtype is not DType.STRING:
            self.fail("a string tensor", x)
        y, z = self.evaluate(x.value())
        return of_element(DType.STRING, y), of_element(DType.INT64, z)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        parts = [self._split(text) for text in x.reshape(-1)]
        counts = np.array([len(p) for p in parts], np.int64)
        y = np.full((len(parts), max(counts, default=0)), "", object)
        for row, part in zip(y, parts, strict=True):
            row[: len(part)] = part
        return y.reshape(*x.shape, y.shape[1]), counts.reshape(x.shape)

    def _split(self, text: str) -> list[str]:
        most = -1 if self.maxsplit is None else self.maxsplit
        if self.delimiter:
            return text.split(self.delimiter, most) if text else []
        return text.strip().split(None, most)
