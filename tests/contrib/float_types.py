"""Cases in the other float types that onnxruntime's schemas allow, held against the same case in float32.

onnxruntime's CPU has kernels of few of these types. So inputs are rounded to the type, the oracle of the case computes
in float32 from what they then are, and its outputs are rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from onnxruntime.capi import onnxruntime_pybind11_state

from pyruntime.ir import Array
from tests.contrib.case import Case, expected, op_of
from tests.harness import typed

__all__ = ["TYPES", "in_type"]

TYPES: dict[str, Any] = {
    "tensor(float16)": np.dtype(np.float16),
    "tensor(bfloat16)": np.dtype(ml_dtypes.bfloat16),
    "tensor(double)": np.dtype(np.float64),
}

SHARE = {"tensor(float16)": 4e-3, "tensor(bfloat16)": 3e-2, "tensor(double)": 1e-4}
"""Of an element, and of the largest one of its tensor, that results may differ: operands and results are rounded; for
double, the oracle is float32."""


@lru_cache(maxsize=1)
def _schemas() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for schema in onnxruntime_pybind11_state.get_all_operator_schema():
        if schema.domain == "com.microsoft" or schema.name == "SimplifiedLayerNormalization":
            found.setdefault(schema.name, schema)
    return found


def _letters(formal: Sequence[Any], count: int) -> Iterator[str]:
    for i in range(count):
        yield formal[min(i, len(formal) - 1)].typeStr


def in_type(case: Case, name: str) -> Case | None:
    """`case` with its float32 tensors of the type `name` where the schema allows it; None where it does nowhere."""
    schema, dtype = _schemas()[case.op_type], TYPES[name]
    allowed = {p.type_param_str: set(p.allowed_type_strs) for p in schema.type_constraints}
    letters = list(_letters(schema.inputs, len(case.inputs)))
    pairs = [(t, x.dtype) for t, x in zip(letters, case.inputs, strict=True) if x is not None]
    changed = {t for t, _ in pairs if name in allowed.get(t, ()) and all(d == np.float32 for u, d in pairs if u == t)}
    if not changed:
        return None
    present = {t for t, _ in pairs}
    inputs: list[Array | None] = []
    for letter, x in zip(letters, case.inputs, strict=True):
        if x is not None and letter in changed:
            x[...] = x.astype(dtype).astype(np.float32)  # oracles may hold the same array
            inputs.append(x.astype(dtype))
        else:
            inputs.append(x)
    wanted = expected(case)
    made = replace(case, inputs=inputs)
    inferred: tuple[Any, ...] = op_of(made).infer(*map(typed, inputs))
    rounded = []
    for letter, y, own in zip(_letters(schema.outputs, len(wanted)), wanted, inferred, strict=False):
        if letter in present:
            with np.errstate(over="ignore"):
                rounded.append(y.astype(dtype) if letter in changed and y.dtype == np.float32 else y)
        else:  # no input says the type
            rounded.append(y.astype(TYPES.get(own.dtype.type_string, y.dtype)))
    if any(np.isinf(y.astype(np.float32)).any() for y in rounded if y.dtype == dtype):
        return None  # too large for the type
    share = SHARE[name]
    largest = max((float(np.abs(y).max()) for y in wanted if y.dtype == np.float32 and y.size), default=1.0)
    return replace(
        made,
        reference=lambda *_: tuple(rounded),
        tolerance=(share, share * max(largest, 1e-3)),
        host=case.host or name == "tensor(double)",
    )
