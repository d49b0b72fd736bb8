"""DictVectorizer: convert a map to a tensor ordered by a vocabulary. Source: ONNX, ai.onnx.ml.DictVectorizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, MapType, TensorType, ValueType
from pyruntime.ops.base import Op, op
from pyruntime.ops.ml.shared import ALL


@op("DictVectorizer", domain="ai.onnx.ml", opsets=ALL)
class DictVectorizer(Op):
    """y[0, i] = x[vocabulary[i]], or 0 (for strings: "") where x has no such key. y: [1, vocabulary]."""

    int64_vocabulary: tuple[int, ...] | None = None
    string_vocabulary: tuple[str, ...] | None = None

    def _vocabulary(self) -> tuple[Any, ...]:
        return self.string_vocabulary or self.int64_vocabulary or ()

    def infer(self, x: MapType) -> tuple[ValueType, ...]:
        if bool(self.int64_vocabulary) == bool(self.string_vocabulary):
            self.fail("one of int64_vocabulary and string_vocabulary", "both or neither")
        key = DType.STRING if self.string_vocabulary else DType.INT64
        if not isinstance(x, MapType) or x.key is not key or not isinstance(x.element, DType):
            self.fail(f"a map from {key.onnx_name} to tensor elements", x)
        return (TensorType(x.element, (1, len(self._vocabulary()))),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Any, ...]:
        (y,) = self.infer(types[0])  # type: ignore[arg-type]
        assert isinstance(y, TensorType)
        return (self._filled(inputs[0], y.dtype),)

    def evaluate(self, x: Mapping[Any, Any]) -> tuple[Array, ...]:
        text = any(isinstance(value, str) for value in x.values())
        return (self._filled(x, DType.STRING if text else DType.FLOAT),)

    def _filled(self, x: Mapping[Any, Any], dtype: DType) -> Array:
        zero = "" if dtype is DType.STRING else 0
        return np.array([[x.get(word, zero) for word in self._vocabulary()]], dtype.numpy)
