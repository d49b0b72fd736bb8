"""ONNX element types: codes, sizes, NumPy carriers and GPU types.

A tensor on the GPU is its ONNX `raw_data`: little endian, row-major, padded to a 32-bit word.
Source: onnx.proto3, message TensorProto, enum DataType.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DType"]


class DType(Enum):
    """An ONNX tensor element type.

    The value is `(code, bits, carrier, compute)`: TensorProto's code; bits of an element in raw_data; the NumPy dtype
    that `Op.evaluate` gets; the WGSL type that kernels compute in (`""`: not on the GPU).
    """

    FLOAT = (1, 32, "float32", "f32")
    UINT8 = (2, 8, "uint8", "u32")
    INT8 = (3, 8, "int8", "i32")
    UINT16 = (4, 16, "uint16", "u32")
    INT16 = (5, 16, "int16", "i32")
    INT32 = (6, 32, "int32", "i32")
    INT64 = (7, 64, "int64", "vec2<u32>")
    STRING = (8, 0, "object", "")
    BOOL = (9, 8, "bool", "bool")
    FLOAT16 = (10, 16, "float16", "f32")
    DOUBLE = (11, 64, "float64", "vec2<u32>")
    UINT32 = (12, 32, "uint32", "u32")
    UINT64 = (13, 64, "uint64", "vec2<u32>")
    COMPLEX64 = (14, 64, "complex64", "")
    COMPLEX128 = (15, 128, "complex128", "")
    BFLOAT16 = (16, 16, "float32", "f32")
    FLOAT8E4M3FN = (17, 8, "float32", "f32")
    FLOAT8E4M3FNUZ = (18, 8, "float32", "f32")
    FLOAT8E5M2 = (19, 8, "float32", "f32")
    FLOAT8E5M2FNUZ = (20, 8, "float32", "f32")
    UINT4 = (21, 4, "uint8", "u32")
    INT4 = (22, 4, "int8", "i32")
    FLOAT4E2M1 = (23, 4, "float32", "f32")
    FLOAT8E8M0 = (24, 8, "float32", "f32")
    UINT2 = (25, 2, "uint8", "u32")
    INT2 = (26, 2, "int8", "i32")
    FLOAT6E2M3 = (27, 6, "float32", "")
    FLOAT6E3M2 = (28, 6, "float32", "")

    def __init__(self, code: int, bits: int, carrier: str, compute: str) -> None:
        self.code = code
        self.bits = bits
        self.carrier = carrier
        self.compute = compute

    def __repr__(self) -> str:
        return f"DType.{self.name}"

    # Members are singletons. Enum's own hash is a Python function, too slow for the thousands of lookups while
    # planning.
    __hash__ = object.__hash__

    @property
    def onnx_name(self) -> str:
        """The name inside `tensor(...)`: 'float', 'int64', 'bfloat16'."""
        return self.name.lower()

    @property
    def js_name(self) -> str:
        """The name in onnxruntime-web: 'float32', 'int64', 'bfloat16'."""
        name = self.onnx_name
        return _JS_NAMES.get(name, name)

    @property
    def type_string(self) -> str:
        """The name in onnxruntime's Python API, such as 'tensor(float)'."""
        return f"tensor({self.onnx_name})"

    @property
    def is_float(self) -> bool:
        """True for real floating-point types, down to 4 bits."""
        return self in _FLOATS

    @property
    def is_signed(self) -> bool:
        """True for signed integers."""
        return self in _SIGNED

    @property
    def is_integer(self) -> bool:
        """True for integers of 2 to 64 bits, without bool."""
        return self in _SIGNED or self in _UNSIGNED

    @property
    def is_wide(self) -> bool:
        """True for types whose elements take two words on the GPU (int64, uint64, float64)."""
        return self.bits == 64 and self.compute != ""

    @property
    def exact_carrier(self) -> bool:
        """True where the NumPy carrier is this very type, so that no conversion is needed."""
        return self not in _ENCODED

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest number of an integer type."""
        beyond = 1 << (self.bits - self.is_signed)
        return -beyond if self.is_signed else 0, beyond - 1

    @property
    def array_name(self) -> str:
        """The name of its NumPy type, or of the one of ml_dtypes where NumPy has none."""
        return _NUMPY_NAMES[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that `Op.evaluate` gets for this type."""
        import numpy

        return numpy.dtype(self.carrier)

    def nbytes(self, elements: int) -> int:
        """Return the bytes of raw_data for this many elements. Types below 8 bits are packed."""
        return (elements * self.bits + 7) // 8

    @staticmethod
    def from_code(code: int) -> DType:
        """Return the type with this TensorProto code. Raises KeyError for codes that ONNX does not define."""
        return _BY_CODE[code]

    @staticmethod
    def from_name(name: str) -> DType:
        """Return the type with this name in `tensor(name)`. Raises KeyError."""
        return DType[name.upper()]

    @staticmethod
    def from_js_name(name: str) -> DType:
        """Return the type with this name in onnxruntime-web. Raises KeyError."""
        return DType.from_name(_FROM_JS_NAMES.get(name, name))

    @staticmethod
    def from_numpy(dtype: np.dtype[Any]) -> DType:
        """Return the ONNX type of a NumPy dtype (types of ml_dtypes by name). Raises KeyError."""
        if dtype.kind in "OUST":
            return DType.STRING
        return _BY_NUMPY[dtype.name]


# Names of types in onnxruntime-web that differ from ONNX's.
_JS_NAMES = {"float": "float32", "double": "float64"}
_FROM_JS_NAMES = {js: onnx for onnx, js in _JS_NAMES.items()}
_FLOATS = frozenset(d for d in DType if d.name.startswith(("FLOAT", "BFLOAT", "DOUBLE")))
_SIGNED = frozenset((DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.INT4, DType.INT2))
_UNSIGNED = frozenset((DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64, DType.UINT4, DType.UINT2))
_ENCODED = frozenset(
    d for d in DType if (d.bits < 8 and d is not DType.STRING) or d.name.startswith(("FLOAT8", "BFLOAT"))
)
_BY_CODE = {d.code: d for d in DType}
_BY_NUMPY = {
    **{d.carrier: d for d in DType if d.exact_carrier and d is not DType.STRING},
    "bfloat16": DType.BFLOAT16,
    "float8_e4m3fn": DType.FLOAT8E4M3FN,
    "float8_e4m3fnuz": DType.FLOAT8E4M3FNUZ,
    "float8_e5m2": DType.FLOAT8E5M2,
    "float8_e5m2fnuz": DType.FLOAT8E5M2FNUZ,
    "float8_e8m0fnu": DType.FLOAT8E8M0,
    "float4_e2m1fn": DType.FLOAT4E2M1,
    "float6_e2m3fn": DType.FLOAT6E2M3,
    "float6_e3m2fn": DType.FLOAT6E3M2,
    "int4": DType.INT4,
    "uint4": DType.UINT4,
    "int2": DType.INT2,
    "uint2": DType.UINT2,
}
_NUMPY_NAMES: dict[DType, str] = {d: name for name, d in _BY_NUMPY.items()}
