"""Cast and CastLike: convert the element type. Source: ONNX operators Cast, CastLike.

Conversions to floats round to nearest even and overflow to infinity; floats to integers truncate; integers wrap; bool
is x != 0. ONNX leaves floats outside the range of the integer type undefined; `conversions` defines them. 8-bit floats
saturate or overflow as in the ONNX tables; float4 and float6 always saturate. float64 to an 8-bit float or bfloat16
goes through float32, as in onnxruntime. Strings are written like C's "%.8g" or as INF, -INF and NaN, and parsed by
Python's float().
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from pyruntime.errors import RuntimeException
from pyruntime.ir import Array, DType, TensorType, ValueType, int_array, is_dim, is_real, real_of
from pyruntime.ir.encoding import round_to
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out
from pyruntime.kernels.wgsl.storage import rounded
from pyruntime.ops.base import LATEST, Unsupported, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.elementwise.conversions import convert
from pyruntime.ops.elementwise.elementwise import Elementwise, Expression, compute_class

E8M0 = DType.FLOAT8E8M0
ROUND_MODES = {"down": 0, "up": 1, "nearest": 2}

LARGEST_8 = {
    DType.FLOAT8E4M3FN: 448.0,
    DType.FLOAT8E4M3FNUZ: 240.0,
    DType.FLOAT8E5M2: 57344.0,
    DType.FLOAT8E5M2FNUZ: 57344.0,
}

CODE = {
    ("f32", "f32"): "x",
    ("f32", "i32"): "i32_of_f32(x)",
    ("f32", "u32"): "u32_of_f32(x)",
    ("f32", "bool"): "!f32_is_zero(x)",
    ("f32", "i64"): "i64_of_f32(x)",
    ("f32", "u64"): "u64_of_f32(x)",
    ("f32", "f64"): "f64_of_f32(x)",
    ("i32", "f32"): "f32(x)",
    ("i32", "i32"): "x",
    ("i32", "u32"): "bitcast<u32>(x)",
    ("i32", "bool"): "x != 0",
    ("i32", "i64"): "i64_of_i32(x)",
    ("i32", "u64"): "i64_of_i32(x)",
    ("i32", "f64"): "f64_of_i64(i64_of_i32(x))",
    ("u32", "f32"): "f32(x)",
    ("u32", "i32"): "bitcast<i32>(x)",
    ("u32", "u32"): "x",
    ("u32", "bool"): "x != 0u",
    ("u32", "i64"): "u64_of_u32(x)",
    ("u32", "u64"): "u64_of_u32(x)",
    ("u32", "f64"): "f64_of_u64(u64_of_u32(x))",
    ("bool", "f32"): "select(0.0, 1.0, x)",
    ("bool", "i32"): "select(0, 1, x)",
    ("bool", "u32"): "select(0u, 1u, x)",
    ("bool", "bool"): "x",
    ("bool", "i64"): "u64_of_u32(u32(x))",
    ("bool", "u64"): "u64_of_u32(u32(x))",
    ("bool", "f64"): "f64_of_u64(u64_of_u32(u32(x)))",
    ("i64", "f32"): "i64_to_f32(x)",
    ("i64", "i32"): "i64_low(x)",
    ("i64", "u32"): "x.x",
    ("i64", "bool"): "(x.x | x.y) != 0u",
    ("i64", "i64"): "x",
    ("i64", "u64"): "x",
    ("i64", "f64"): "f64_of_i64(x)",
    ("u64", "f32"): "u64_to_f32(x)",
    ("u64", "i32"): "i64_low(x)",
    ("u64", "u32"): "x.x",
    ("u64", "bool"): "(x.x | x.y) != 0u",
    ("u64", "i64"): "x",
    ("u64", "u64"): "x",
    ("u64", "f64"): "f64_of_u64(x)",
    ("f64", "f32"): "f32_of_f64(x)",
    ("f64", "i32"): "i32_of_f64(x)",
    ("f64", "u32"): "u32_of_f64(x)",
    ("f64", "bool"): "!f64_is_zero(x)",
    ("f64", "i64"): "i64_of_f64(x)",
    ("f64", "u64"): "u64_of_f64(x)",
    ("f64", "f64"): "x",
}
"""(compute class of the source, of the result) -> WGSL that converts `x`."""


def _class(dtype: DType) -> str:
    return "f64" if dtype is DType.DOUBLE else compute_class(dtype)


def cast_code(source: DType, to: DType, saturate: bool = True, round_mode: str = "up") -> str:
    """Return WGSL that converts `x` from `source` to the compute type of `to`.

    The value still has to be rounded or wrapped to `to`, as a store does.
    """
    kind, result = _class(source), _class(to)
    if kind in ("f32", "f64") and result == "u32" and to is not DType.UINT32:
        code = f"bitcast<u32>({CODE[kind, 'i32']})"
    elif kind == "f64" and to is DType.FLOAT16:
        code = "f64_narrow(x, true)"
    else:
        code = CODE[kind, result]
    if to in LARGEST_8 and saturate:
        largest = LARGEST_8[to]
        code = f"clip({code}, {-largest}, {largest})"
    if to is E8M0 and source is not E8M0:
        code = f"e8m0_decode(e8m0_round({code}, {ROUND_MODES[round_mode]}u, {str(saturate).lower()}))"
    return code


def _to_e8m0(x: Array, saturate: bool, round_mode: str) -> Array:
    """Round |x| to a power of two; infinity and NaN become NaN. Source: ONNX's to_float8e8m0."""
    body = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0x7FFFFFFF)
    exponent, fraction = (body >> 23).astype(np.int32), body & np.uint32(0x7FFFFF)
    up = {
        "down": np.zeros(x.shape, np.bool_),
        "up": fraction != 0,
        "nearest": (fraction > 0x400000) | ((fraction == 0x400000) & (exponent > 0)),
    }[round_mode]
    if saturate:
        up &= exponent < 254
    code = np.where(exponent == 255, 255, exponent + up)
    return np.where(code == 255, np.float32(np.nan), np.ldexp(np.float32(1), code - 127)).astype(np.float32)


def _to_string(x: Array) -> Array:
    def text(value: object) -> str:
        if isinstance(value, float):
            word = f"{value:.8g}"
            return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(word, word)
        return str(int(value))  # type: ignore[call-overload]

    flat = [text(v) for v in x.reshape(-1).tolist()]
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(x.shape)


def _from_string(x: Array, dtype: DType) -> Array:
    def integer(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            return int(float(text))

    try:
        if dtype.is_integer:
            wrapped = [integer(str(v)) & (1 << 64) - 1 for v in x.reshape(-1)]
            return np.array(wrapped, np.uint64).reshape(x.shape)
        return np.array([float(v) for v in x.reshape(-1)], np.float64).reshape(x.shape)
    except (ValueError, OverflowError) as error:
        raise RuntimeException(f"Cast: a string is not a number of type {dtype.onnx_name}: {error}") from None


def _of_sizes(x: Array, to: DType) -> Array:
    """Cast an array of symbolic sizes.

    Integers, float32 and float64 remain symbolic; other types get the current values.
    """
    flat = x.reshape(-1)
    if to.is_integer:
        return int_array([v.whole() if is_real(v) else v for v in flat]).reshape(x.shape)
    if to not in (DType.FLOAT, DType.DOUBLE):
        return cast(x.astype(np.float32 if any(map(is_real, flat)) else np.int64), to)
    made = np.empty(len(flat), object)
    made[:] = [v if is_real(v) else real_of(v) for v in flat]
    return made.reshape(x.shape)


def cast(x: Array, to: DType, saturate: bool = True, round_mode: str = "up") -> Array:
    """Convert `x` to the carrier dtype of `to`, rounded to values that `to` represents."""
    if x.dtype == object and any(is_dim(v) or is_real(v) for v in x.reshape(-1)):
        return _of_sizes(x, to)
    if to is DType.STRING:
        return x if x.dtype == object else _to_string(x)
    if x.dtype == object:
        x = _from_string(x, to)
    with np.errstate(all="ignore"):
        if to is DType.BOOL:
            return np.asarray(x != 0)
        if to is E8M0:
            return _to_e8m0(x, saturate, round_mode)
        if to in LARGEST_8 or to.bits < 8 or to is DType.BFLOAT16:
            return round_to(convert(x, to.numpy), to, saturate)
        return convert(x, to.numpy)


@op("Cast", opsets=range(24, LATEST + 1), earlier={range(19, 24): "round_mode", range(6, 19): "round_mode saturate"})
class Cast(Elementwise):
    """y = x in the element type with TensorProto code `to`. `round_mode` applies to float8e8m0 only."""

    to: int
    saturate: int = 1
    round_mode: Annotated[str, "down", "up", "nearest"] = "up"

    @property
    def dtype(self) -> DType:
        """Element type of y. Raises InvalidGraph for an unknown code."""
        try:
            return DType.from_code(self.to)
        except KeyError:
            self.fail("'to' to be the code of an ONNX type", self.to)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        for dtype in (x.dtype, self.dtype):
            if dtype in (DType.COMPLEX64, DType.COMPLEX128):
                self.fail("a real type, bool or string", dtype.type_string)
        return (TensorType(self.dtype, x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (cast(x, self.dtype, bool(self.saturate), self.round_mode),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Array, ...]:
        same = isinstance(types[0], TensorType) and types[0].dtype is self.dtype
        return (inputs[0],) if same else self.evaluate(*inputs)

    def alias(self, x: TensorType) -> int | None:
        source, to = x.dtype, self.dtype
        whole = source.is_integer or source is DType.BOOL
        return 0 if source is to or (whole and to.is_integer and source.bits == to.bits) else None

    def expression(self, *dtypes: DType | None) -> Expression | None:
        source, to = dtypes[0], self.dtype
        if not source or not source.compute or not to.compute:
            return None
        code = cast_code(source, to, bool(self.saturate), self.round_mode)
        # Inside a fused chain too, a cast must round.
        return Expression(rounded(to, code), ("x",))

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        source, to = x.dtype, self.dtype
        if not source.compute or not to.compute:
            raise Unsupported(f"{(to if source.compute else source).onnx_name} tensors live on the host")
        (y,) = self.infer(x)
        code = cast_code(source, to, bool(self.saturate), self.round_mode)
        return (elementwise(target, "cast", {"x": inp(0, x)}, out(0, y), code),)


@op(
    "CastLike",
    opsets=range(24, LATEST + 1),
    earlier={range(19, 24): "round_mode", range(15, 19): "round_mode saturate"},
)
class CastLike(Decomposed):
    """y = x in the element type of `like`. `round_mode` applies to float8e8m0 only."""

    saturate: int = 1
    round_mode: Annotated[str, "down", "up", "nearest"] = "up"

    def expand(self, body: Expansion, x: TensorType, like: TensorType) -> tuple[TensorType | None, ...]:
        return (body("Cast", x, to=like.dtype.code, saturate=self.saturate, round_mode=self.round_mode),)
