"""StringNormalizer: remove stop words and change case. Source: ONNX operator StringNormalizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType, of_element
from pyruntime.ops.base import LATEST, Op, op

_CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@op("StringNormalizer", opsets=range(10, LATEST + 1))
class StringNormalizer(Op):
    """x: strings [C] or [1, C]; y: the strings that are not stop words, with changed case; [""] if none is left.

    `locale` has no effect; case conversion follows Unicode.
    """

    data_dependent = True
    case_change_action: Annotated[str, "NONE", "LOWER", "UPPER"] = "NONE"
    is_case_sensitive: int = 0
    locale: str | None = None
    stopwords: tuple[str, ...] | None = None

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        if x.dtype is not DType.STRING or x.rank not in (1, 2) or (x.rank == 2 and x.shape[0] != 1):
            self.fail("a string tensor of shape [C] or [1, C]", x)
        return (of_element(DType.STRING, self.evaluate(x.value())[0]),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        key = str if self.is_case_sensitive else str.lower
        stopped = {key(word) for word in self.stopwords or ()}
        change = _CASES[self.case_change_action]
        kept = [change(word) for word in x.reshape(-1) if key(word) not in stopped] or [""]
        y = np.array(kept, object)
        return (y.reshape(1, -1) if x.ndim == 2 else y,)
