"""Operators and conversions of scalars."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from pyruntime.kernels.wasm.code import const_i32, op
from pyruntime.kernels.wasm.values import (
    BOOL,
    F32,
    FLOAT,
    I32,
    U32,
    Code,
    Const,
    Scalar,
    Value,
    code_of,
    fit,
    scalar_type,
)

__all__ = ["COMPARISONS", "added", "choose", "converted", "negated", "safe_divisor", "scalar"]

COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge"}
_ARITHMETIC = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "%": "rem",
    "&": "and",
    "|": "or",
    "^": "xor",
    "<<": "shl",
    ">>": "shr",
}
_EXACT: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def scalar(sign: str, a: Value, b: Value) -> Const | Code:
    """`a sign b` for scalars of one concrete type. A divisor of integers is one that `safe_divisor` gives."""
    if isinstance(a, Const) and isinstance(b, Const) and (folded := _fold(sign, a, b)) is not None:
        return folded
    kind = scalar_type(a.type)
    if sign in COMPARISONS:
        return _compared(sign, a, b, kind)
    if (known := _operand(sign, a, b)) is not None:
        return known
    if sign == "+" and kind != F32 and (isinstance(a, Const) or isinstance(b, Const)):
        return added(b, int(a.value)) if isinstance(a, Const) else added(a, int(b.value))  # type: ignore[union-attr]
    name = _ARITHMETIC[sign]
    if kind == F32:
        return Code(kind, code_of(a) + code_of(b) + op(f"f32.{name}"))
    if sign in ("/", "%", ">>"):
        name = f"{name}_{'s' if kind == I32 else 'u'}"
    return Code(kind, code_of(a) + code_of(b) + op(f"i32.{name}"))


def _compared(sign: str, a: Value, b: Value, kind: Scalar) -> Code:
    if kind == F32:
        return Code(BOOL, code_of(a) + code_of(b) + op(f"f32.{COMPARISONS[sign]}"))
    if isinstance(b, Const) and b.value == 0 and sign == "==":
        return Code(BOOL, code_of(a) + op("i32.eqz"))
    end = "" if sign in ("==", "!=") else "_s" if kind == I32 else "_u"
    return Code(BOOL, code_of(a) + code_of(b) + op(f"i32.{COMPARISONS[sign]}{end}"))


def _fold(sign: str, a: Const, b: Const) -> Const | None:
    """The result for constants; None where it is left to the run."""
    kind, x, y = a.type, a.value, b.value
    if sign in _EXACT:
        value = _EXACT[sign](x, y)
        if isinstance(value, float) and math.isnan(value):
            return None
        return fit(BOOL if sign in COMPARISONS else kind, value)
    if kind in (F32, FLOAT):
        return fit(kind, x / y) if sign == "/" and y else None
    p, q = int(x), int(y)
    if sign in "/%":
        if not q:
            return fit(kind, p if sign == "/" else 0)
        quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        return fit(kind, quotient if sign == "/" else p - quotient * q)
    if sign in ("<<", ">>"):
        return fit(kind, p << (q & 31) if sign == "<<" else p >> (q & 31))
    return fit(kind, {"&": p & q, "|": p | q, "^": p ^ q}[sign])


def _operand(sign: str, a: Value, b: Value) -> Const | Code | None:
    """The result where it is one of the operands, or 0: x * 1, x + 0, x / 1."""
    kind = scalar_type(a.type)
    if isinstance(b, Const) and isinstance(a, Code):
        if (b.value == 1 and sign in ("*", "/")) or (b.value == 0 and sign == "-" and math.copysign(1, b.value) > 0):
            return a
        if kind != F32:
            if b.value == 0 and sign in ("+", "|", "^", "<<", ">>"):
                return a
            if (b.value == 0 and sign in ("*", "&")) or (b.value == 1 and sign == "%"):
                return fit(kind, 0)
    if isinstance(a, Const) and isinstance(b, Code):
        if a.value == 1 and sign == "*":
            return b
        if kind != F32 and a.value == 0:
            if sign in ("+", "|", "^"):
                return b
            if sign in ("*", "&", "<<", ">>"):
                return fit(kind, 0)
    return None


def added(value: Value, number: int) -> Code:
    """An integer plus a number; sums of several numbers are one addition."""
    assert isinstance(value, Code)
    base, before = value.plus or (value, 0)
    code = base.code + const_i32(before + number) + op("i32.add")
    return Code(base.type, code, base.stable, None, (base, before + number))


def negated(value: Value) -> Const | Code:
    """The number with its sign changed."""
    kind = scalar_type(value.type)
    if isinstance(value, Const):
        return fit(kind, -value.value)
    return Code(F32, code_of(value) + op("f32.neg")) if kind == F32 else scalar("-", Const(kind, 0), value)


def converted(value: Value, kind: Scalar) -> Const | Code:
    """A scalar in another type: constructors such as `u32(x)`."""
    was = scalar_type(value.type)
    if isinstance(value, Const):
        if kind in (I32, U32) and was in (F32, FLOAT):
            low, high = (-(1 << 31), (1 << 31) - 1) if kind == I32 else (0, (1 << 32) - 1)
            return fit(kind, 0 if math.isnan(value.value) else min(max(value.value, low), high))
        return fit(kind, value.value)
    assert isinstance(value, Code)
    if was == kind:
        return value
    if kind == BOOL:
        return scalar("!=", value, Const(was, 0))
    if kind == F32:
        return Code(F32, value.code + op(f"f32.convert_i32_{'s' if was == I32 else 'u'}"))
    if was == F32:
        return Code(kind, value.code + op(f"i32.trunc_sat_f32_{'s' if kind == I32 else 'u'}"))
    plus = None
    if value.plus is not None:
        base = value.plus[0]
        plus = Code(kind, base.code, base.stable, base.load), value.plus[1]
    return Code(kind, value.code, value.stable, value.load, plus)


def choose(no: Value, yes: Value, test: Value) -> Const | Code:
    """One of two values of a concrete type, scalars or wide vectors, by a truth value."""
    made = Code(no.type, code_of(yes) + code_of(no) + code_of(test) + op("select"))
    if not isinstance(test, Const):
        return made
    chosen = yes if test.value else no
    return chosen if isinstance(chosen, Const | Code) else Code(chosen.type, code_of(chosen))


def safe_divisor(a: Value, b: Value) -> Value:
    """What an integer is divided by, so that division by zero, and of -2^31 by -1, give what WGSL says.

    Both are used repeatedly.
    """
    kind = scalar_type(b.type)
    if isinstance(b, Const):
        if b.value == 0:
            return fit(kind, 1)
        if b.value != -1 or kind == U32:
            return b
    wrong = code_of(b) + op("i32.eqz")
    if kind == I32:
        least = code_of(a) + const_i32(1 << 31) + op("i32.eq") + code_of(b) + const_i32(-1) + op("i32.eq")
        wrong += least + op("i32.and") + op("i32.or")
    return Code(kind, const_i32(1) + code_of(b) + wrong + op("select"))
