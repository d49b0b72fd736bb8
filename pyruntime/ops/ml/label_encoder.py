"""LabelEncoder: map elements by a dictionary. Source: ONNX operator ai.onnx.ml.LabelEncoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pyruntime.ir import Array, Constant, DType, Floats, Ints, TensorType, are_open
from pyruntime.ops.base import Op, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.ml.shared import ALL


@op(
    "LabelEncoder",
    opsets=range(4, ALL.stop),
    domain="ai.onnx.ml",
    earlier={range(2, 4): "keys_tensor values_tensor default_tensor"},
)
class LabelEncoder(Op):
    """y = values[i] where x = keys[i], else the default. Of equal keys the last one counts; NaN equals NaN.

    One `keys_*` and one `values_*` attribute is given; x has the type of the keys, y that of the values.
    """

    keys_floats: Floats | None = None
    keys_int64s: Ints | None = None
    keys_strings: tuple[str, ...] | None = None
    keys_tensor: Constant | None = None
    values_floats: Floats | None = None
    values_int64s: Ints | None = None
    values_strings: tuple[str, ...] | None = None
    values_tensor: Constant | None = None
    default_float: float = -0.0
    default_int64: int = -1
    default_string: str = "_Unused"
    default_tensor: Constant | None = None

    def _given(self, what: str) -> tuple[DType, Array]:
        """Return type and data of the keys or the values. Raises InvalidGraph unless exactly one attribute is given."""
        found: list[tuple[DType, Array]] = []
        for suffix, dtype in (("floats", DType.FLOAT), ("int64s", DType.INT64), ("strings", DType.STRING)):
            listed = getattr(self, f"{what}_{suffix}")
            if listed:
                found.append((dtype, np.array(listed, dtype.numpy)))
        tensor: Constant | None = getattr(self, f"{what}_tensor")
        if tensor is not None:
            found.append((tensor.type.dtype, tensor.numpy().reshape(-1)))
        if len(found) != 1:
            self.fail(f"one of the attributes {what}_*", len(found))
        return found[0]

    def _default(self, dtype: DType) -> Any:
        tensor = self.default_tensor
        if tensor is not None:
            if tensor.type.dtype is not dtype or tensor.type.size != 1:
                self.fail(f"default_tensor {dtype.onnx_name}[1]", tensor.type)
            return tensor.numpy().reshape(-1)[0]
        if dtype is DType.STRING:
            return self.default_string
        if dtype in (DType.FLOAT, DType.DOUBLE):
            return self.default_float
        return self.default_int64

    @cached_property
    def _table(self) -> tuple[Array, Array, DType, Array, DType]:
        """(distinct keys, index of each, key type, values followed by the default, value type)."""
        (key_type, keys), (value_type, values) = self._given("keys"), self._given("values")
        if len(keys) != len(values):
            self.fail(f"{len(keys)} values, one for each key", len(values))
        outputs = np.empty(len(values) + 1, values.dtype)
        outputs[:-1], outputs[-1] = values, self._default(value_type)
        # Of equal keys the last counts. NaN is one key and sorts last.
        different, first = np.unique(keys[::-1], return_index=True)
        return different, len(keys) - 1 - first, key_type, outputs, value_type

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        _, _, key_type, _, value_type = self._table
        if x.dtype is not key_type:
            self.fail(f"a tensor of the keys' type, {key_type.type_string}", x)
        return (TensorType(value_type, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        keys, places, _, outputs, _ = self._table
        x = x.astype(np.int64) if are_open(x) else x
        at = np.minimum(np.searchsorted(keys, x.reshape(-1)), len(keys) - 1)
        found = keys[at] == x.reshape(-1)
        if x.dtype.kind == "f":
            found |= np.isnan(keys[at]) & np.isnan(x.reshape(-1))
        return (outputs[np.where(found, places[at], len(outputs) - 1)].reshape(x.shape),)


@op("LabelEncoder", domain="ai.onnx.ml", opsets=range(1, 2))
class LabelEncoderClasses(Decomposed):
    """Maps strings to their index in `classes_strings`, or indices to strings."""

    classes_strings: tuple[str, ...] | None = None
    default_int64: int = -1
    default_string: str = "_Unused"

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        texts = self.classes_strings or ()
        return translated(self, body, x, texts, range(len(texts)))


def translated(
    op: Any, body: Expansion, x: TensorType, texts: Sequence[str], numbers: Sequence[int]
) -> tuple[TensorType | None, ...]:
    """Map strings of x to `numbers` by their index in `texts`, or integers of x to strings; others to op's default."""
    given: Any = {"keys_int64s": tuple(numbers), "values_strings": texts, "default_string": op.default_string}
    if x.dtype is DType.STRING:
        given = {"keys_strings": texts, "values_int64s": tuple(numbers), "default_int64": op.default_int64}
    elif x.dtype is not DType.INT64:
        op.fail("strings or int64", x)
    return body.apply(LabelEncoder(**given), x)
