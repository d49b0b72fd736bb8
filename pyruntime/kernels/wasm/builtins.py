"""WGSL's built-in functions in WebAssembly, for scalars and for vectors of four floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from pyruntime.kernels.wasm.code import op
from pyruntime.kernels.wasm.expressions import Expressions
from pyruntime.kernels.wasm.operators import choose, converted, negated, scalar
from pyruntime.kernels.wasm.values import (
    BOOL,
    F32,
    I32,
    U32,
    Code,
    Const,
    Parts,
    Scalar,
    Value,
    Vector,
    code_of,
    fit,
    is_const,
    is_wide,
    scalar_type,
)

__all__ = ["BUILTINS", "LIBRARY", "Builtin"]

Builtin: TypeAlias = Callable[[Expressions, Sequence[Value]], Value]

LIBRARY: Mapping[str, str] = MappingProxyType(
    {
        "exp": "fn exp_of(x: f32) -> f32 { return exponential(x); }",
        "exp2": "fn exp2_of(x: f32) -> f32 { let a = clamp(x, -250.0, 250.0); let n = round(a);"
        " return select(scale_by_power(exponential((a - n) * 0.6931472), i32(n)), x, is_nan(x)); }",
        "log": "fn log_of(x: f32) -> f32 { return natural_log(x); }",
        "pow": "fn pow_of(x: f32, y: f32) -> f32 { return power(x, y); }",
        "ldexp": "fn ldexp_of(x: f32, n: i32) -> f32 { return scale_by_power(x, n); }",
        "unpack2x16float": "fn unpack2x16float_of(x: u32) -> vec2<f32> {"
        " return vec2<f32>(f16_decode(x & 0xffffu), f16_decode(x >> 16u)); }",
        "pack2x16float": "fn pack2x16float_of(x: vec2<f32>) -> u32 {"
        " return f16_encode(x.x) | (f16_encode(x.y) << 16u); }",
    }
)
"""Functions that have no instructions, as WGSL over functions of `shaders/lib/`."""


def _lanewise(function: Callable[..., Value]) -> Builtin:
    """A function of scalars of one type for vectors, too."""

    def call(compiler: Expressions, given: Sequence[Value]) -> Value:
        same = [compiler.concrete(v) for v in compiler.unify(given)]
        if isinstance(same[0].type, Scalar):
            return function(*map(compiler.bind, same))
        lanes = [function(*map(compiler.bind, some)) for some in zip(*map(compiler.parts, same), strict=True)]
        return Parts(Vector(len(lanes), scalar_type(lanes[0].type)), tuple(lanes))

    return call


def _extreme(name: str) -> Builtin:
    """`min` or `max`."""
    sign = "<" if name == "min" else ">"

    def one(a: Value, b: Value) -> Value:
        if isinstance(a, Const) and isinstance(b, Const):
            return fit(a.type, (min if name == "min" else max)(a.value, b.value))
        return choose(a, b, scalar(sign, b, a))

    def call(compiler: Expressions, given: Sequence[Value]) -> Value:
        a, b = compiler.unify(given)
        if is_wide(a.type) and not (is_const(a) and is_const(b)):
            return Code(a.type, code_of(a) + code_of(b) + op(f"f32x4.p{name}"))
        return _lanewise(one)(compiler, (a, b))

    return call


def _rounding(name: str) -> Builtin:
    """`floor` and others that have an instruction for floats."""

    def one(x: Value) -> Value:
        return Code(F32, code_of(x) + op(f"f32.{name}"))

    def call(compiler: Expressions, given: Sequence[Value]) -> Value:
        x = compiler.concrete(given[0])
        if is_wide(x.type):
            return Code(x.type, code_of(x) + op(f"f32x4.{name}"))
        return _lanewise(one)(compiler, (x,))

    return call


def _absolute(compiler: Expressions, given: Sequence[Value]) -> Value:
    if scalar_type(given[0].type) == F32:
        return _rounding("abs")(compiler, given)
    return _lanewise(lambda x: x if x.type == U32 else choose(x, negated(x), scalar("<", x, Const(I32, 0))))(
        compiler, given
    )


def _sign(x: Value) -> Value:
    kind = scalar_type(x.type)
    nothing = fit(kind, 0)
    least = choose(x, fit(kind, -1), scalar("<", x, nothing))
    return choose(least, fit(kind, 1), scalar(">", x, nothing))


def _clamp(compiler: Expressions, given: Sequence[Value]) -> Value:
    x, low, high = compiler.unify(given)
    return BUILTINS["min"](compiler, (BUILTINS["max"](compiler, (x, low)), high))


def _fma(compiler: Expressions, given: Sequence[Value]) -> Value:
    a, b, c = compiler.unify(given)
    return compiler.binary("+", compiler.binary("*", a, b), c)


def _mix(compiler: Expressions, given: Sequence[Value]) -> Value:
    a, b, part = map(compiler.bind, compiler.unify(given))
    rest = compiler.binary("-", Const(F32, 1.0), part)
    return compiler.binary("+", compiler.binary("*", a, rest), compiler.binary("*", b, part))


def _inverse_sqrt(compiler: Expressions, given: Sequence[Value]) -> Value:
    return compiler.binary("/", Const(F32, 1.0), BUILTINS["sqrt"](compiler, given))


def _dot(compiler: Expressions, given: Sequence[Value]) -> Value:
    a, b = compiler.unify(given)
    total, *rest = compiler.parts(compiler.bind(compiler.binary("*", a, b)))
    for part in rest:
        total = scalar("+", total, part)
    return total


def _all_or_any(name: str) -> Builtin:
    def call(compiler: Expressions, given: Sequence[Value]) -> Value:
        value = given[0]
        if isinstance(value.type, Scalar):
            return value
        if isinstance(value, Code):
            return Code(BOOL, value.code + op("v128.any_true" if name == "any" else "i32x4.all_true"))
        made, *rest = compiler.parts(value)
        for part in rest:
            made = scalar("|" if name == "any" else "&", made, part)
        return made

    return call


def _bits(name: str) -> Builtin:
    return _lanewise(lambda x: Code(x.type, code_of(x) + op(f"i32.{name}")))


def _first_bit(x: Value, number: Code) -> Value:
    """The number of a bit; -1 where there is none."""
    kind = scalar_type(x.type)
    return choose(fit(kind, -1), number, scalar("!=", x, fit(kind, 0)))


def _trailing(x: Value) -> Value:
    return _first_bit(x, Code(x.type, code_of(x) + op("i32.ctz")))


def _leading(x: Value) -> Value:
    kind = scalar_type(x.type)
    if kind == I32:  # of negative numbers the first 0
        x = scalar("^", x, scalar(">>", x, Const(I32, 31)))
    zeros = Code(kind, code_of(x) + op("i32.clz"))
    return _first_bit(x, Code(kind, code_of(scalar("-", fit(kind, 31), zeros))))


def _extract(compiler: Expressions, given: Sequence[Value]) -> Value:
    """`extractBits(e, offset, count)`, for fields within a word."""
    offset, count = (compiler.bind(converted(v, U32)) for v in given[1:])

    def one(e: Value) -> Value:
        kind = scalar_type(e.type)
        above = scalar("-", scalar("-", Const(U32, 32), count), offset)
        moved = scalar("<<", e, converted(above, kind))
        made = scalar(">>", moved, converted(scalar("-", Const(U32, 32), count), kind))
        return (
            made
            if isinstance(count, Const) and count.value
            else choose(made, fit(kind, 0), scalar("==", count, Const(U32, 0)))
        )

    return _lanewise(one)(compiler, given[:1])


BUILTINS: dict[str, Builtin] = {
    **{name: _extreme(name) for name in ("min", "max")},
    **{name: _rounding(name) for name in ("floor", "ceil", "trunc", "sqrt")},
    **{name: _all_or_any(name) for name in ("any", "all")},
    "round": _rounding("nearest"),
    "abs": _absolute,
    "sign": _lanewise(_sign),
    "clamp": _clamp,
    "fma": _fma,
    "mix": _mix,
    "dot": _dot,
    "inverseSqrt": _inverse_sqrt,
    "select": lambda compiler, given: compiler.select(*given),
    "countLeadingZeros": _bits("clz"),
    "countTrailingZeros": _bits("ctz"),
    "countOneBits": _bits("popcnt"),
    "firstTrailingBit": _lanewise(_trailing),
    "firstLeadingBit": _lanewise(_leading),
    "extractBits": _extract,
}
"""Functions by name. Of a NaN `min` and `max` give either operand, as WGSL allows."""
