"""Names of element types, in ONNX and in JavaScript."""

from __future__ import annotations

import pytest

from pyruntime.ir import DType


@pytest.mark.parametrize("dtype", DType)
def test_names__there_and_back__are_the_type(dtype: DType) -> None:
    assert DType.from_name(dtype.onnx_name) is dtype
    assert DType.from_js_name(dtype.js_name) is dtype


def test_js_name__of_floats__has_their_bits() -> None:
    floats = (DType.FLOAT16, DType.FLOAT, DType.DOUBLE)
    assert [dtype.js_name for dtype in floats] == ["float16", "float32", "float64"]


def test_from_js_name__unknown__is_a_key_error() -> None:
    with pytest.raises(KeyError):
        DType.from_js_name("float128")
