"""Variables while a kernel is compiled: where they are, how they are read and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from pyruntime.kernels.wasm import syntax as ast
from pyruntime.kernels.wasm.code import F32 as WASM_F32
from pyruntime.kernels.wasm.code import I32 as WASM_I32
from pyruntime.kernels.wasm.code import V128, Body, const_i32, fill, get, lane, memory, op
from pyruntime.kernels.wasm.operators import added, choose, converted, scalar
from pyruntime.kernels.wasm.values import (
    BOOL,
    F32,
    FLOAT,
    I32,
    INT,
    SCALARS,
    U32,
    Array,
    Code,
    Composite,
    Const,
    Lane,
    Local,
    Memory,
    Parts,
    Place,
    Scalar,
    Struct,
    Type,
    Unsupported,
    Value,
    Vector,
    code_of,
    consecutive,
    decoded,
    element_of,
    fit,
    is_const,
    is_wide,
    layout,
    mask_code,
    offsets,
    parts_of,
    scalar_type,
    stable,
    stride,
)

__all__ = ["RESERVED", "NeedsMemory", "Places"]

RESERVED = 1 << 16
"""Bytes at the start of memory that hold nothing. An index i + n becomes an address of i and an offset of n, and i
alone may be below 0 by so much.
"""

MOST_VARIABLES = 64
"""Elements of an array whose elements are variables of the function; a longer one is in memory."""

_Bound: TypeAlias = Value | Place


class NeedsMemory(Exception):
    """The array of this name has an index that only a run knows: it has to be in memory."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Places:
    """The variables of a function, and the values that names stand for.

    Attributes:
        in_memory: names of arrays that are in memory.
        scratch: the end of the memory that variables have.
        scopes: what names stand for, the innermost last; the first one is the module's.
    """

    def __init__(self, source: ast.Source, in_memory: set[str], scratch: int) -> None:
        self.source = source
        self.body = Body()
        self.in_memory = in_memory
        self.scratch = scratch
        self.scopes: list[dict[str, _Bound]] = [{}]

    def expr(self, e: ast.Expr) -> Value:
        """The value of an expression."""
        raise NotImplementedError

    def type(self, given: ast.TypeName) -> Type:
        """The type of this name."""
        name = given.name
        if name in SCALARS:
            return SCALARS[name]
        if name in self.source.aliases:
            return self.type(self.source.aliases[name])
        if name in self.source.structs:
            return Struct(name, tuple((n, self.type(t)) for n, t in self.source.structs[name]))
        arguments = [a for a in given.arguments if isinstance(a, ast.TypeName)]
        if name == "atomic":
            return self.type(arguments[0])
        if name[:3] == "vec" and len(name) in (4, 5):
            short = {"f": F32, "i": I32, "u": U32}
            return Vector(int(name[3]), short[name[4]] if len(name) == 5 else scalar_type(self.type(arguments[0])))
        if name != "array":
            raise Unsupported(f"the WGSL type {name}")
        count: Value = Const(U32, 0)
        if len(given.arguments) > 1:
            length = given.arguments[1]
            count = self.expr(ast.Name(length.name) if isinstance(length, ast.TypeName) else length)
        if not isinstance(count, Const):
            raise Unsupported("an array whose length is not constant")
        return Array(self.type(arguments[0]), int(count.value))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names declared within end with it."""
        self.scopes.append({})
        yield
        self.scopes.pop()

    def find(self, name: str) -> _Bound:
        """What a name stands for."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name not in self.source.constants:
            raise Unsupported(f"the WGSL name {name}")
        kind, value = self.source.constants[name]
        inner, self.scopes = self.scopes, self.scopes[:1]
        made = self.expr(value)
        self.scopes = inner
        self.scopes[0][name] = self.as_type(made, self.type(kind)) if kind is not None else made
        return self.scopes[0][name]

    def local(self, kind: Type) -> Local:
        """A new variable of the function."""
        return Local(kind, self.body.local(V128 if is_wide(kind) else WASM_F32 if kind == F32 else WASM_I32))

    def variable(self, kind: Type, name: str) -> Place:
        """A place for a variable of WGSL."""
        if isinstance(kind, Scalar) or is_wide(kind):
            return self.local(kind)
        if isinstance(kind, Array) and kind.count > MOST_VARIABLES:
            self.in_memory.add(name)
        if name in self.in_memory and not isinstance(kind, Vector):
            made = Memory(kind, Const(U32, 0), -(-self.scratch // 16) * 16)
            self.scratch = made.offset + layout(kind)[0]
            return made
        return Composite(kind, tuple(self.variable(part, name) for part in parts_of(kind)), name)

    def bind(self, value: Value) -> Value:
        """The value for repeated and later use."""
        if isinstance(value, Const) or (isinstance(value, Code) and value.stable):
            return value
        if isinstance(value, Parts):
            first = value.parts[0] if value.parts else None
            is_floats = is_wide(value.type) and scalar_type(value.type) == F32
            if is_floats and (consecutive(value.parts) or all(part is first for part in value.parts)):
                return self.bind(Code(value.type, code_of(value)))
            return Parts(value.type, tuple(map(self.bind, value.parts)))
        if value.plus is not None:
            return added(self.bind(value.plus[0]), value.plus[1])
        place = self.local(value.type)
        self.body.set(place.number, value.code)
        return stable(value.type, place.number)

    # Places

    def place(self, e: ast.Expr) -> Place | None:
        """The variable, or the part of one, that an expression names; None where it is a value."""
        if isinstance(e, ast.Name):
            found = self.find(e.name)
            return found if isinstance(found, Local | Composite | Memory | Lane) else None
        if isinstance(e, ast.Member):
            base = self.place(e.base)
            if base is None:
                return None
            if isinstance(base.type, Struct):
                return self.part(base, base.type.index(e.name))
            return self.part(base, component(e.name)) if len(e.name) == 1 else None
        if isinstance(e, ast.Index):
            if (flat := self._ungrouped(e)) is not None:
                return self._element(*flat)
            base = self.place(e.base)
            return None if base is None else self._element(base, self.expr(e.index))
        return None

    def _ungrouped(self, e: ast.Index) -> tuple[Memory, Value] | None:
        """For `x[i >> 2u][i & 3u]` the array of vectors as one of numbers, and i."""
        inner, low = e.base, e.index
        if not (isinstance(inner, ast.Index) and isinstance(low, ast.Binary) and isinstance(inner.index, ast.Binary)):
            return None
        high = inner.index
        signs = (high.sign, high.right, low.sign, low.right)
        if signs != (">>", ast.Literal(2, "u"), "&", ast.Literal(3, "u")) or high.left != low.left:
            return None
        base = self.place(inner.base)
        group = element_of(base.type) if isinstance(base, Memory) else None
        if not isinstance(base, Memory) or not isinstance(group, Vector) or group.size != 4:
            return None
        flat = Memory(Array(group.element, 0), base.address, base.offset, base.fixed)
        return flat, self.expr(low.left)

    def part(self, base: Place, number: int) -> Place:
        """A part of a vector, array or struct."""
        if isinstance(base, Composite):
            return base.parts[number]
        kinds = parts_of(base.type)
        kind = kinds[number] if kinds else element_of(base.type)
        if isinstance(base, Memory):
            at = offsets(base.type)[number] if kinds else number * stride(base.type)  # type: ignore[arg-type]
            return Memory(kind, base.address, base.offset + at, base.fixed)
        if not isinstance(base, Local):
            raise Unsupported("a part of a component")
        return Lane(kind, base, Const(U32, number))

    def _element(self, base: Place, index: Value) -> Place:
        kind = element_of(base.type)
        if isinstance(index, Const):
            return self.part(base, int(index.value))
        if isinstance(base, Memory):
            return self._at(base, kind, index)
        if isinstance(base.type, Array) and isinstance(base, Composite):
            raise NeedsMemory(base.name)
        bound = self.bind(index)
        if not isinstance(base, Local | Composite) or not isinstance(bound, Code):
            raise Unsupported("an index into a component")
        return Lane(kind, base, bound)

    def _at(self, base: Memory, kind: Type, index: Value) -> Memory:
        """An element of memory. A number that is added to the index becomes a part of the instruction."""
        assert isinstance(index, Code)
        assert isinstance(base.type, Array | Vector)
        step = stride(base.type)
        rest, more = index.plus or (index, 0)
        rest = converted(rest, U32)  # type: ignore[assignment]
        scaled = scalar("*", rest, Const(U32, step))
        if step & (step - 1) == 0:
            scaled = scalar("<<", rest, Const(U32, step.bit_length() - 1))
        address = scalar("+", base.address, scaled)
        if 0 < more * step <= RESERVED and base.fixed is None:
            return Memory(kind, scalar("+", address, Const(U32, base.offset)), more * step)
        return Memory(kind, scalar("+", address, fit(U32, more * step)), base.offset, base.fixed)

    # Reading and writing

    def load(self, place: Place) -> Value:
        """The value of a variable."""
        kind = place.type
        if isinstance(place, Local):
            return Code(kind, get(place.number))
        if isinstance(place, Composite):
            return Parts(kind, tuple(map(self.load, place.parts)))
        if isinstance(place, Lane):
            return self.component(self.load(place.base), place.lane)
        if isinstance(kind, Scalar):
            return self._load_scalar(place, kind)
        if is_wide(kind) and scalar_type(kind) == F32 and place.fixed is None:
            address, offset = _flat(place)
            return Code(kind, address + memory("v128.load", offset))
        place = self.bound(place)
        return Parts(kind, tuple(self.load(self.part(place, k)) for k in range(len(parts_of(kind)))))

    def _load_scalar(self, place: Memory, kind: Scalar) -> Value:
        if place.fixed is not None:
            if not isinstance(place.address, Const):
                raise Unsupported("parameters at an index that only a run knows")
            at = int(place.address.value) + place.offset
            return decoded(kind, place.fixed[at : at + 4])
        address, offset = _flat(place)
        name = "f32.load" if kind == F32 else "i32.load"
        return Code(kind, address + memory(name, offset), load=(address, offset))

    def bound(self, place: Memory) -> Memory:
        """The place with an address for repeated use."""
        address = self.bind(place.address)
        assert isinstance(address, Const | Code)
        return Memory(place.type, address, place.offset, place.fixed)

    def store(self, place: Place, value: Value) -> None:
        """Emit the assignment of `value` to the variable or memory at `place`."""
        kind = place.type
        value = self.as_type(value, kind)
        if isinstance(place, Local):
            self.body.set(place.number, code_of(value))
        elif isinstance(place, Composite):
            for part, own in zip(place.parts, self.parts(self.bind(value)), strict=True):
                self.store(part, own)
        elif isinstance(place, Lane):
            self._store_lane(place, value)
        elif isinstance(kind, Scalar):
            address, offset = _flat(place)
            self.body.code += address + code_of(value) + memory("f32.store" if kind == F32 else "i32.store", offset)
        elif is_wide(kind) and scalar_type(kind) == F32 and (is_const(value) or not isinstance(value, Parts)):
            address, offset = _flat(place)
            self.body.code += address + code_of(value) + memory("v128.store", offset)
        elif isinstance(kind, Array) and _is_zero(value):
            address, offset = _flat(place)
            self.body.code += fill(address + const_i32(offset) + op("i32.add"), layout(kind)[0])
        else:
            place = self.bound(place)
            for k, own in enumerate(self.parts(self.bind(value))):
                self.store(self.part(place, k), own)

    def _store_lane(self, place: Lane, value: Value) -> None:
        if isinstance(place.lane, Const) and isinstance(place.base, Local):
            name, code = ("f32x4", code_of(value)) if place.type == F32 else ("i32x4", mask_code(value))
            replace = lane(f"{name}.replace_lane", int(place.lane.value))
            self.body.set(place.base.number, get(place.base.number) + code + replace)
            return
        value = self.bind(value)
        for k in range(len(parts_of(place.base.type))):
            self.body.code += code_of(scalar("==", converted(place.lane, U32), Const(U32, k)))
            self.body.open("if")
            self.store(self.part(place.base, k), value)
            self.body.close()

    # Parts of values

    def parts(self, value: Value) -> Sequence[Value]:
        """The parts of a vector, array or struct."""
        if isinstance(value, Parts):
            return value.parts
        bound = self.bind(value)
        if not isinstance(bound, Code):
            raise Unsupported(f"parts of {value.type}")
        if scalar_type(bound.type) == F32:
            return [Code(F32, bound.code + lane("f32x4.extract_lane", k), stable=True) for k in range(4)]
        bit = const_i32(1) + op("i32.and")
        return [Code(BOOL, bound.code + lane("i32x4.extract_lane", k) + bit, stable=True) for k in range(4)]

    def component(self, value: Value, index: Value) -> Value:
        """An element of a vector or array, at an index that a run may bring."""
        lanes = [self.bind(part) for part in self.parts(value)] if not isinstance(index, Const) else self.parts(value)
        if isinstance(index, Const):
            return lanes[int(index.value)]
        number = converted(self.bind(index), U32)
        made = self.concrete(lanes[-1])
        for k in range(len(lanes) - 2, -1, -1):
            made = choose(made, self.concrete(lanes[k]), scalar("==", number, Const(U32, k)))
        return made

    def as_type(self, value: Value, kind: Type) -> Value:
        """The value where a type is declared: literals take it."""
        if value.type == kind:
            return value
        if isinstance(kind, Scalar) and isinstance(value, Const) and value.type in (INT, FLOAT):
            return fit(kind, value.value)
        if isinstance(kind, Vector) and isinstance(value, Parts):
            return Parts(kind, tuple(self.as_type(part, kind.element) for part in value.parts))
        raise Unsupported(f"a value of {value.type} in the place of {kind}")

    def concrete(self, value: Value) -> Value:
        """The value with literals as i32 and f32."""
        kind = value.type
        if not isinstance(kind, Scalar | Vector) or scalar_type(kind) not in (INT, FLOAT):
            return value
        element = I32 if scalar_type(kind) == INT else F32
        return self.as_type(value, Vector(kind.size, element) if isinstance(kind, Vector) else element)


def component(letter: str) -> int:
    """The number of a vector's component."""
    return "xyzw".find(letter) if letter in "xyzw" else "rgba".index(letter)


def _flat(place: Memory) -> tuple[bytes, int]:
    if isinstance(place.address, Const):
        return const_i32(0), place.offset + int(place.address.value)
    return place.address.code, place.offset


def _is_zero(value: Value) -> bool:
    return (
        value.value == 0 if isinstance(value, Const) else isinstance(value, Parts) and all(map(_is_zero, value.parts))
    )
