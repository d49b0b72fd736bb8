"""Binary elementwise operators without attributes, as table rows. Source: the ONNX operators of these names.

Integers wrap. Integer division truncates toward zero, and division by zero gives zero. Comparisons with NaN are false.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, is_real
from pyruntime.ops.elementwise.elementwise import BOOL, INTEGERS, NUMBERS, Binary, define

COMPARABLE = NUMBERS | BOOL | {DType.STRING}


def _is_real(x: Array) -> bool:
    """Whether x is the carrier of a float tensor, which is an object array where it holds symbolic sizes."""
    return x.dtype.kind == "f" or (x.dtype == object and any(is_real(v) or isinstance(v, float) for v in x.reshape(-1)))


def _divide(a: Array, b: Array) -> Array:
    if _is_real(a) or _is_real(b):
        return a / b
    quotient: Array
    if object in (a.dtype, b.dtype):  # Dims have floor division only: correct negative inexact quotients
        floored: Array = np.floor_divide(a, b)
        quotient = floored + ((np.less(a, 0) != np.less(b, 0)) & (floored * b != a)).astype(object)
        return quotient
    quotient = (a - np.fmod(a, b)) // b
    return quotient


ROWS = (
    Binary("Add", 7, NUMBERS, np.add, numbers="a + b", wide="i64_add(a, b)"),
    Binary("And", 7, BOOL, np.logical_and, boolean="a && b"),
    Binary("BitwiseAnd", 18, INTEGERS, np.bitwise_and, ints="a & b"),
    Binary("BitwiseOr", 18, INTEGERS, np.bitwise_or, ints="a | b"),
    Binary("BitwiseXor", 18, INTEGERS, np.bitwise_xor, ints="a ^ b"),
    Binary(
        "Div",
        7,
        NUMBERS,
        _divide,
        f32="a / b",
        i32="i32_div(a, b)",
        u32="u32_div(a, b)",
        i64="i64_div(a, b)",
        u64="u64_div(a, b)",
    ),
    Binary(
        "Equal",
        7,
        COMPARABLE,
        np.equal,
        f32="a == b && ordered(a, b)",
        boolean="a == b",
        numbers="a == b",
        wide="i64_eq(a, b)",
        predicate=True,
    ),
    Binary(
        "Greater",
        7,
        NUMBERS,
        np.greater,
        f32="a > b && ordered(a, b)",
        numbers="a > b",
        i64="i64_lt(b, a)",
        u64="u64_lt(b, a)",
        predicate=True,
    ),
    Binary(
        "GreaterOrEqual",
        12,
        NUMBERS,
        np.greater_equal,
        f32="a >= b && ordered(a, b)",
        numbers="a >= b",
        i64="!i64_lt(a, b)",
        u64="!u64_lt(a, b)",
        predicate=True,
    ),
    Binary(
        "Less",
        7,
        NUMBERS,
        np.less,
        f32="a < b && ordered(a, b)",
        numbers="a < b",
        i64="i64_lt(a, b)",
        u64="u64_lt(a, b)",
        predicate=True,
    ),
    Binary(
        "LessOrEqual",
        12,
        NUMBERS,
        np.less_equal,
        f32="a <= b && ordered(a, b)",
        numbers="a <= b",
        i64="!i64_lt(b, a)",
        u64="!u64_lt(b, a)",
        predicate=True,
    ),
    Binary("Mul", 7, NUMBERS, np.multiply, numbers="a * b", wide="i64_mul(a, b)"),
    Binary("Or", 7, BOOL, np.logical_or, boolean="a || b"),
    Binary("Sub", 7, NUMBERS, np.subtract, numbers="a - b", wide="i64_sub(a, b)"),
    Binary("Xor", 7, BOOL, np.logical_xor, boolean="a != b"),
)

globals().update(define(__name__, ROWS))
