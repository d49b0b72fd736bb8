"""WGSL of the reductions of the Reduce operators, by name and element type; None if the GPU would not be exact."""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.ir import DType
from pyruntime.kernels.rows.reduce import Fold

__all__ = ["FOLDS"]

_STATE = {"f32": DType.FLOAT, "i32": DType.INT32, "u32": DType.UINT32}
_SIGN_BIT = "0x80000000u"


def _scalar(name: str, dtype: DType, initial: str, prepare: str, combine: str, finish: str = "a") -> Fold:
    """Return a reduction whose accumulator has the compute type."""
    return Fold(name, dtype.compute, initial, prepare, combine, finish, state=_STATE[dtype.compute])


def _wide(name: str, prepare: str, finish: str, initial: str = "vec2<u32>(0u, 0u)", combine: str = "") -> Fold:
    """Return a reduction whose accumulator is a 64-bit integer."""
    return Fold(name, "vec2<u32>", initial, prepare, combine or "return i64_add(a, b);", finish, state=DType.UINT64)


def _widened(dtype: DType) -> str:
    """Return WGSL that extends the integer `x` to 64 bits."""
    if dtype.is_wide:
        return "x"
    return "i64_of_i32(x)" if dtype.is_signed else "u64_of_u32(x)"


def _narrowed(dtype: DType, value: str) -> str:
    """Return WGSL that truncates the 64-bit `value` to the type's width."""
    if dtype.is_wide:
        return value
    return f"bitcast<i32>({value}.x)" if dtype.is_signed else f"{value}.x"


def _zero(dtype: DType) -> str:
    return {"f32": "0.0", "i32": "0i", "u32": "0u"}[dtype.compute]


def _sum(dtype: DType) -> Fold:
    if dtype.is_wide:
        return _wide("reduce_sum", "x", "a")
    return _scalar("reduce_sum", dtype, _zero(dtype), "x", "a + b")


def _mean(dtype: DType) -> Fold:
    if dtype.is_float:
        # Explicit NaN, because compilers may fold a constant 0 / 0 to any value.
        empty = "if (n == 0u) { return f32_bits(0x7fc00000u, n); }"
        return _scalar("reduce_mean", dtype, "0.0", "x", "a + b", f"{empty} return a / f32(n);")
    mean = "i64_mean(a, n)" if dtype.is_signed else "u64_mean(a, n)"
    return _wide("reduce_mean", _widened(dtype), f"let m = {mean}; return {_narrowed(dtype, 'm')};")


def _least(dtype: DType, greatest: bool) -> str:
    """Return WGSL of the smallest value of a type, or the largest."""
    if dtype.compute == "f32":
        return f"f32_bits({'0x7f800000u' if greatest else '0xff800000u'}, params.count)"
    if dtype.is_wide:
        low, high = ("0xffffffffu", "0xffffffffu") if greatest else ("0u", "0u")
        if dtype.is_signed:
            high = "0x7fffffffu" if greatest else _SIGN_BIT
        return f"vec2<u32>({low}, {high})"
    if dtype.is_signed:
        most = dtype.limits[1]
        return f"{most}i" if greatest else f"(-{most}i - 1i)"
    return f"{dtype.limits[greatest]}u"


def _extreme(largest: bool) -> Callable[[DType], Fold]:
    name = "reduce_max" if largest else "reduce_min"

    def fold(dtype: DType) -> Fold:
        if dtype is DType.BOOL:  # stored as u32: naga miscompiles bool in workgroup memory on NVIDIA GPUs
            neutral, combine = ("0u", "a | b") if largest else ("1u", "a & b")
            return Fold(name, "u32", neutral, "u32(x)", combine, "a != 0u", state=DType.UINT32)
        initial = _least(dtype, not largest)
        if dtype.is_wide:
            less = "i64_lt" if dtype.is_signed else "u64_lt"
            test = f"{less}(a, b)" if largest else f"{less}(b, a)"
            return _wide(name, "x", "a", initial, f"if ({test}) {{ return b; }} return a;")
        function = ("max" if largest else "min") if dtype.is_integer else ("nan_max" if largest else "nan_min")
        return _scalar(name, dtype, initial, "x", f"{function}(a, b)")

    return fold


def _prod(dtype: DType) -> Fold:
    if dtype.is_wide:
        return _wide("reduce_prod", "x", "a", "vec2<u32>(1u, 0u)", "return i64_mul(a, b);")
    one = {"f32": "1.0", "i32": "1i", "u32": "1u"}[dtype.compute]
    return _scalar("reduce_prod", dtype, one, "x", "a * b")


def _l1(dtype: DType) -> Fold:
    if dtype.is_wide:
        return _wide("reduce_l1", "i64_abs(x)" if dtype.is_signed else "x", "a")
    return _scalar("reduce_l1", dtype, _zero(dtype), "abs(x)", "a + b")


def _square(dtype: DType) -> str:
    """Return WGSL of the square of the integer `x` in 64 bits."""
    if dtype.is_wide:
        return "i64_mul(x, x)"
    return "u32_mul_wide(u32(abs(x)), u32(abs(x)))" if dtype.is_signed else "u32_mul_wide(x, x)"


def _l2(dtype: DType) -> Fold:
    if dtype.is_float:
        return _scalar("reduce_l2", dtype, "0.0", "x * x", "a + b", "sqrt(a)")
    return _wide("reduce_l2", _square(dtype), f"let r = u64_of_u32(u64_sqrt(a)); return {_narrowed(dtype, 'r')};")


def _sum_square(dtype: DType) -> Fold:
    if dtype.is_wide:
        return _wide("reduce_sum_square", "i64_mul(x, x)", "a")
    return _scalar("reduce_sum_square", dtype, _zero(dtype), "x * x", "a + b")


def _log_sum(dtype: DType) -> Fold | None:
    # In f32, the logarithm of an integer just below exp(k) rounds up to k.
    if dtype.is_integer:
        return None
    return _scalar("reduce_log_sum", dtype, "0.0", "x", "a + b", "log_of(a, n)")


def _log_sum_exp(dtype: DType) -> Fold | None:
    if dtype.is_integer:
        return None
    return Fold(
        "reduce_log_sum_exp",
        "vec2<f32>",
        "vec2<f32>(-3.4028234663852886e38, 0.0)",
        "vec2<f32>(x, 1.0)",
        "lse_combine(a, b)",
        "if (a.y == 0.0) { return f32_bits(0xff800000u, n); } return a.x + log(a.y);",
        state=DType.UINT64,
        save="bitcast<vec2<u32>>(a)",
        restore="bitcast<vec2<f32>>(x)",
    )


FOLDS: dict[str, Callable[[DType], Fold | None]] = {
    "Sum": _sum,
    "Mean": _mean,
    "Max": _extreme(True),
    "Min": _extreme(False),
    "Prod": _prod,
    "L1": _l1,
    "L2": _l2,
    "LogSum": _log_sum,
    "LogSumExp": _log_sum_exp,
    "SumSquare": _sum_square,
}
