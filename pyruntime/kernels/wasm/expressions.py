"""Expressions of WGSL as values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyruntime.kernels.wasm import syntax as ast
from pyruntime.kernels.wasm.code import choice, const_i32, memory, op
from pyruntime.kernels.wasm.operators import COMPARISONS, choose, converted, negated, safe_divisor, scalar
from pyruntime.kernels.wasm.places import Places, component
from pyruntime.kernels.wasm.values import (
    BOOL,
    F32,
    FLOAT,
    I32,
    INT,
    U32,
    Array,
    Code,
    Const,
    Parts,
    Scalar,
    Struct,
    Type,
    Value,
    Vector,
    code_of,
    decoded,
    fit,
    is_const,
    is_wide,
    parts_of,
    raw,
    scalar_type,
    zero,
)

__all__ = ["Expressions"]

_LITERALS = {"u": U32, "i": I32, "f": F32, "bool": BOOL}
_WIDE = {"+": "f32x4.add", "-": "f32x4.sub", "*": "f32x4.mul", "/": "f32x4.div"}
_MASKS = {"&": "v128.and", "|": "v128.or", "!=": "v128.xor"}


class Expressions(Places):
    """Values of expressions."""

    def call(self, e: ast.Call) -> Value:
        """The result of a call."""
        raise NotImplementedError

    def expr(self, e: ast.Expr) -> Value:
        """The value of an expression."""
        if isinstance(e, ast.Literal):
            return fit(_LITERALS.get(e.kind) or (FLOAT if isinstance(e.value, float) else INT), e.value)
        if isinstance(e, ast.Name | ast.Member | ast.Index):
            place = self.place(e)
            return self.load(place) if place is not None else self._part(e)
        if isinstance(e, ast.Unary):
            return self._unary(e)
        if isinstance(e, ast.Binary):
            if e.sign in ("&&", "||"):
                return self._shortcut(e)
            return self.binary(e.sign, self.expr(e.left), self.expr(e.right))
        return self.call(e)

    def _part(self, e: ast.Name | ast.Member | ast.Index) -> Value:
        """What a name stands for, or a part of a value."""
        if isinstance(e, ast.Name):
            found = self.find(e.name)
            assert isinstance(found, Const | Code | Parts)
            return found
        base = self.expr(e.base)
        if isinstance(e, ast.Index):
            return self.component(base, self.expr(e.index))
        lanes = self.parts(base)
        if isinstance(base.type, Struct):
            return lanes[base.type.index(e.name)]
        chosen = [lanes[component(letter)] for letter in e.name]
        return chosen[0] if len(chosen) == 1 else Parts(Vector(len(chosen), scalar_type(base.type)), tuple(chosen))

    def _unary(self, e: ast.Unary) -> Value:
        value = self.expr(e.operand)
        kind = scalar_type(value.type)
        if e.sign == "~":
            return self.binary("^", value, Const(INT, -1) if kind in (I32, INT) else Const(U32, 0xFFFFFFFF))
        if isinstance(value, Code) and is_wide(value.type):
            return Code(value.type, value.code + op("f32x4.neg" if e.sign == "-" else "v128.not"))
        if isinstance(value.type, Scalar):
            return negated(value) if e.sign == "-" else scalar("==", value, Const(BOOL, 0))
        lanes = [negated(v) if e.sign == "-" else scalar("==", v, Const(BOOL, 0)) for v in self.parts(value)]
        return Parts(value.type, tuple(lanes))

    def _shortcut(self, e: ast.Binary) -> Value:
        """`&&` and `||`: what is right of them is computed where it decides."""
        left, both = self.expr(e.left), e.sign == "&&"
        if isinstance(left, Const):
            return self.expr(e.right) if bool(left.value) == both else left
        bound = self.bind(left)
        with self.body.apart() as statements:
            right = self.expr(e.right)
        if not statements:
            if isinstance(right, Const):
                return bound if bool(right.value) == both else right
            yes, no = (code_of(right), const_i32(0)) if both else (const_i32(1), code_of(right))
            return Code(BOOL, choice(code_of(bound), yes, no))
        place = self.local(BOOL)
        self.body.set(place.number, code_of(bound))
        self.body.code += code_of(bound) if both else code_of(bound) + op("i32.eqz")
        self.body.open("if")
        self.body.code += statements
        self.body.set(place.number, code_of(right))
        self.body.close()
        return self.load(place)

    def binary(self, sign: str, a: Value, b: Value) -> Value:
        """`a sign b`."""
        a, b = self._shift(a, b) if sign in ("<<", ">>") else self.unify((a, b))
        if isinstance(a.type, Scalar):
            return self._scalar(sign, a, b)
        if is_wide(a.type) and not (is_const(a) and is_const(b)):
            made = self._wide(sign, a, b)
            if made is not None:
                return made
        lanes = [self._scalar(sign, x, y) for x, y in zip(self.parts(a), self.parts(b), strict=True)]
        return Parts(Vector(len(lanes), scalar_type(lanes[0].type)), tuple(lanes))

    def _scalar(self, sign: str, a: Value, b: Value) -> Value:
        if sign in ("/", "%") and a.type in (I32, U32) and not (isinstance(a, Const) and isinstance(b, Const)):
            b = self.bind(b)
            a = a if isinstance(b, Const) else self.bind(a)
            b = safe_divisor(a, b)
        if sign == "%" and a.type == F32:
            a, b = self.bind(a), self.bind(b)
            whole = Code(F32, code_of(scalar("/", a, b)) + op("f32.trunc"))
            return scalar("-", a, scalar("*", b, whole))
        return scalar(sign, a, b)

    def _shift(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Both as integers of the type that is shifted."""
        kind = scalar_type(a.type)
        if isinstance(a.type, Scalar):
            return a, converted(b, kind)
        number = b if isinstance(b.type, Vector) else self.splat(b, len(self.parts(a)))
        return a, Parts(a.type, tuple(converted(part, kind) for part in self.parts(number)))

    def _wide(self, sign: str, a: Value, b: Value) -> Value | None:
        """Four floats, or masks, at once; None where it is done one by one."""
        if scalar_type(a.type) == BOOL:
            if sign not in _MASKS or (isinstance(a, Parts) and isinstance(b, Parts)):
                return None
            return Code(a.type, code_of(a) + code_of(b) + op(_MASKS[sign]))
        if sign in COMPARISONS:
            return Code(Vector(4, BOOL), code_of(a) + code_of(b) + op(f"f32x4.{COMPARISONS[sign]}"))
        if sign not in _WIDE:
            return None
        if isinstance(b, Parts) and all(isinstance(p, Const) and _is_neutral(sign, p) for p in b.parts):
            return a
        return Code(a.type, code_of(a) + code_of(b) + op(_WIDE[sign]))

    def splat(self, value: Value, size: int) -> Value:
        """A vector of equal components."""
        repeated = isinstance(value, Code) and value.load is not None and size == 4
        value = value if repeated else self.bind(value)
        return Parts(Vector(size, scalar_type(value.type)), (value,) * size)

    def unify(self, values: Sequence[Value]) -> list[Value]:
        """Operands of one type: literals take that of the others, scalars become vectors."""
        elements = [scalar_type(v.type) for v in values]
        known = [e for e in elements if e not in (INT, FLOAT)]
        element = known[0] if known else FLOAT if FLOAT in elements else INT
        sizes = [v.type.size for v in values if isinstance(v.type, Vector)]
        made = []
        for value in values:
            if isinstance(value.type, Vector):
                made.append(self.as_type(value, Vector(value.type.size, element)))
            else:
                own = self.as_type(value, element)
                made.append(self.splat(own, sizes[0]) if sizes else own)
        return made

    def select(self, no: Value, yes: Value, test: Value) -> Value:
        """The built-in function `select`."""
        no, yes = map(self.concrete, self.unify((no, yes)))
        if isinstance(test.type, Scalar):
            both = isinstance(no, Parts) and isinstance(yes, Parts)
            if isinstance(no.type, Scalar) or (is_wide(no.type) and not both):
                return choose(no, yes, test)
            test = self.bind(test)
            lanes = [choose(n, y, test) for n, y in zip(self.parts(no), self.parts(yes), strict=True)]
            return Parts(no.type, tuple(lanes))
        if is_wide(no.type) and not is_const(test):
            return Code(no.type, code_of(yes) + code_of(no) + code_of(test) + op("v128.bitselect"))
        given = zip(self.parts(no), self.parts(yes), self.parts(test), strict=True)
        return Parts(no.type, tuple(choose(*some) for some in given))

    def bitcast(self, kind: Type, value: Value) -> Value:
        """The value whose bits are read as another type."""
        if isinstance(kind, Vector):
            return Parts(kind, tuple(self.bitcast(kind.element, part) for part in self.parts(value)))
        target, was = scalar_type(kind), scalar_type(value.type)
        if was == target:
            return value
        if isinstance(value, Const):
            return decoded(target, raw(value))
        assert isinstance(value, Code)
        if F32 not in (target, was):
            return converted(value, target)
        word = "f32" if target == F32 else "i32"
        if value.load is not None:
            address, offset = value.load
            return Code(target, address + memory(f"{word}.load", offset), load=value.load)
        return Code(target, value.code + op(f"{word}.reinterpret_{'i32' if target == F32 else 'f32'}"))

    def construct(self, callee: ast.TypeName, given: Sequence[Value]) -> Value:
        """A constructor or conversion: `vec4<f32>(a, b, c, d)`, `u32(x)`, `Quad(...)`."""
        kind = self._constructed(callee, given)
        if not given:
            return zero(kind)
        if isinstance(kind, Scalar):
            return converted(given[0], kind)
        if isinstance(kind, Vector):
            if len(given) == 1 and given[0].type == kind:
                return given[0]
            lanes = [part for v in given for part in (self.parts(v) if isinstance(v.type, Vector) else (v,))]
            made = [converted(part, kind.element) for part in lanes]
            return self.splat(made[0], kind.size) if len(made) == 1 else Parts(kind, tuple(made))
        return Parts(kind, tuple(self.as_type(v, t) for v, t in zip(given, parts_of(kind), strict=True)))

    def _constructed(self, callee: ast.TypeName, given: Sequence[Value]) -> Type:
        name = callee.name
        if callee.arguments or not name.startswith(("vec", "array")) or len(name) > 4 + (name == "array"):
            return self.type(callee)
        first = self.concrete(given[0]).type
        return Array(first, len(given)) if name == "array" else Vector(int(name[3]), scalar_type(first))


def _is_neutral(sign: str, value: Const) -> bool:
    """Whether x `sign` value is x for all floats x."""
    if sign == "-":
        return value.value == 0 and math.copysign(1, value.value) > 0
    return value.value == 1 and sign in ("*", "/")
