"""CastMap: convert a map to a tensor. Source: ONNX operator ai.onnx.ml.CastMap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, DType, MapType, ValueType, of_element
from pyruntime.ops.base import Op, op
from pyruntime.ops.ml.shared import ALL

_TYPES = {"TO_FLOAT": DType.FLOAT, "TO_STRING": DType.STRING, "TO_INT64": DType.INT64}


@op("CastMap", domain="ai.onnx.ml", opsets=ALL)
class CastMap(Op):
    """x: map with int64 keys. y: DENSE: [1, len(x)], in ascending key order; SPARSE: [1, max_map], y[0, key] = value.

    Raises:
        RuntimeException: with SPARSE, a key is outside [0, max_map), or a string is not a number.
    """

    data_dependent = True
    cast_to: Annotated[str, "TO_FLOAT", "TO_STRING", "TO_INT64"] = "TO_FLOAT"
    map_form: Annotated[str, "DENSE", "SPARSE"] = "DENSE"
    max_map: int = 1

    def infer(self, x: MapType) -> tuple[ValueType, ...]:
        if not isinstance(x, MapType) or x.key is not DType.INT64:
            self.fail("a map with int64 keys", x)
        return (of_element(_TYPES[self.cast_to], self.evaluate(x.value())[0]),)

    def evaluate(self, x: Mapping[int, Any]) -> tuple[Array, ...]:
        keys = sorted(x)
        places = keys if self.map_form == "SPARSE" else list(range(len(keys)))
        size = self.max_map if self.map_form == "SPARSE" else len(keys)
        if any(not 0 <= place < size for place in places):
            raise errors.RuntimeException(f"{self.op_type}: expected keys in [0, {size}), got {keys}")
        dtype = _TYPES[self.cast_to]
        y = np.full((1, size), "" if dtype is DType.STRING else 0, dtype.numpy)
        for key, place in zip(keys, places, strict=True):
            y[0, place] = self._cast(x[key])
        return (y,)

    def _cast(self, value: Any) -> Any:
        if self.cast_to == "TO_STRING":
            return value if isinstance(value, str) else f"{value:f}"
        try:
            number = float(value)
        except ValueError as error:
            raise errors.RuntimeException(f"{self.op_type}: expected a number, got {value!r}") from error
        return int(number) if self.cast_to == "TO_INT64" else number
