"""WebAssembly's binary format: instructions and modules. Source: WebAssembly specification 3.0, section 5."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

__all__ = [
    "F32",
    "I32",
    "V128",
    "Body",
    "const_f32",
    "const_i32",
    "const_v128",
    "lane",
    "memory",
    "module",
    "op",
]

I32, F32, V128 = 0x7F, 0x7D, 0x7B
_EMPTY = 0x40

_OPS = {
    "unreachable": 0x00, "else": 0x05, "end": 0x0B, "return": 0x0F, "drop": 0x1A, "select": 0x1B,
    "i32.eqz": 0x45, "i32.eq": 0x46, "i32.ne": 0x47, "i32.lt_s": 0x48, "i32.lt_u": 0x49, "i32.gt_s": 0x4A,
    "i32.gt_u": 0x4B, "i32.le_s": 0x4C, "i32.le_u": 0x4D, "i32.ge_s": 0x4E, "i32.ge_u": 0x4F,
    "f32.eq": 0x5B, "f32.ne": 0x5C, "f32.lt": 0x5D, "f32.gt": 0x5E, "f32.le": 0x5F, "f32.ge": 0x60,
    "i32.clz": 0x67, "i32.ctz": 0x68, "i32.popcnt": 0x69, "i32.add": 0x6A, "i32.sub": 0x6B, "i32.mul": 0x6C,
    "i32.div_s": 0x6D, "i32.div_u": 0x6E, "i32.rem_s": 0x6F, "i32.rem_u": 0x70, "i32.and": 0x71, "i32.or": 0x72,
    "i32.xor": 0x73, "i32.shl": 0x74, "i32.shr_s": 0x75, "i32.shr_u": 0x76,
    "f32.abs": 0x8B, "f32.neg": 0x8C, "f32.ceil": 0x8D, "f32.floor": 0x8E, "f32.trunc": 0x8F, "f32.nearest": 0x90,
    "f32.sqrt": 0x91, "f32.add": 0x92, "f32.sub": 0x93, "f32.mul": 0x94, "f32.div": 0x95, "f32.min": 0x96,
    "f32.max": 0x97, "f32.copysign": 0x98, "f32.convert_i32_s": 0xB2, "f32.convert_i32_u": 0xB3,
    "i32.reinterpret_f32": 0xBC, "f32.reinterpret_i32": 0xBE,
}  # fmt: skip
_SATURATING = {"i32.trunc_sat_f32_s": 0, "i32.trunc_sat_f32_u": 1}
_SIMD = {
    "f32x4.splat": 19, "i32x4.splat": 17, "f32x4.eq": 65, "f32x4.ne": 66, "f32x4.lt": 67, "f32x4.gt": 68,
    "f32x4.le": 69, "f32x4.ge": 70, "v128.not": 77, "v128.and": 78, "v128.or": 80, "v128.xor": 81,
    "v128.bitselect": 82, "v128.any_true": 83, "i32x4.all_true": 163, "f32x4.ceil": 103, "f32x4.floor": 104,
    "f32x4.trunc": 105, "f32x4.nearest": 106, "f32x4.abs": 224, "f32x4.neg": 225, "f32x4.sqrt": 227,
    "f32x4.add": 228, "f32x4.sub": 229, "f32x4.mul": 230, "f32x4.div": 231, "f32x4.pmin": 234, "f32x4.pmax": 235,
}  # fmt: skip
_LANES = {"i32x4.extract_lane": 27, "i32x4.replace_lane": 28, "f32x4.extract_lane": 31, "f32x4.replace_lane": 32}
_MEMORY = {"i32.load": (0x28,), "f32.load": (0x2A,), "i32.store": (0x36,), "f32.store": (0x38,)}
_WIDE = {"v128.load": 0, "v128.load32_splat": 9, "v128.store": 11, "v128.load32_zero": 92, "v128.load32_lane": 86}


def _unsigned(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _signed(value: int) -> bytes:
    made = bytearray()
    while not -64 <= value < 64:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value & 0x7F)
    return bytes(made)


def op(name: str) -> bytes:
    """An instruction without immediates."""
    if name in _OPS:
        return bytes((_OPS[name],))
    if name in _SATURATING:
        return bytes((0xFC, _SATURATING[name]))
    return b"\xfd" + _unsigned(_SIMD[name])


def lane(name: str, number: int) -> bytes:
    """An instruction on one lane of a vector."""
    return b"\xfd" + _unsigned(_LANES[name]) + bytes((number,))


def memory(name: str, offset: int, number: int = -1) -> bytes:
    """A load or store at the address on the stack plus `offset`; `number` is the lane of `v128.load32_lane`."""
    code = bytes(_MEMORY[name]) if name in _MEMORY else b"\xfd" + _unsigned(_WIDE[name])
    return code + b"\x02" + _unsigned(offset) + (bytes((number,)) if number >= 0 else b"")


def const_i32(value: int) -> bytes:
    """Encode i32.const: `value` modulo 2^32."""
    value &= 0xFFFFFFFF
    return b"\x41" + _signed(value - (1 << 32) if value >> 31 else value)


def const_f32(value: bytes) -> bytes:
    """Encode f32.const. `value`: the four bytes of the number, little-endian."""
    return b"\x43" + value


def const_v128(value: bytes) -> bytes:
    """Encode v128.const. `value`: the sixteen bytes of the vector."""
    return b"\xfd\x0c" + value


def choice(test: bytes, yes: bytes, no: bytes) -> bytes:
    """An integer that is computed in one of two ways."""
    return test + b"\x04\x7f" + yes + op("else") + no + op("end")


def fill(address: bytes, size: int) -> bytes:
    """Set bytes from an address on to 0."""
    return address + const_i32(0) + const_i32(size) + b"\xfc\x0b\x00"


def get(number: int) -> bytes:
    """The value of a local variable."""
    return b"\x20" + _unsigned(number)


class Body:
    """The code of one function while it is written: instructions, local variables, nesting of blocks."""

    def __init__(self) -> None:
        self.code = bytearray()
        self.depth = 0
        self._locals = list[int]()

    def local(self, kind: int) -> int:
        """A new local variable."""
        self._locals.append(kind)
        return len(self._locals) - 1

    def set(self, number: int, code: bytes) -> None:
        """Assign to a local variable."""
        self.code += code + b"\x21" + _unsigned(number)

    def open(self, word: str) -> int:
        """Open a 'block', 'loop' or 'if'; returns its label."""
        self.code += bytes(({"block": 0x02, "loop": 0x03, "if": 0x04}[word], _EMPTY))
        self.depth += 1
        return self.depth

    def close(self) -> None:
        """Close the block opened last."""
        self.code += op("end")
        self.depth -= 1

    def branch(self, label: int, condition: bytes = b"") -> None:
        """Go to the end of a block, or to the start of a loop; with a condition where it is not 0."""
        self.code += condition + (b"\x0d" if condition else b"\x0c") + _unsigned(self.depth - label)

    @contextmanager
    def apart(self) -> Iterator[bytearray]:
        """Write into other code, as within one more block."""
        made, own = bytearray(), self.code
        self.code = made
        self.depth += 1
        yield made
        self.code = own
        self.depth -= 1

    def finished(self) -> bytes:
        """Return the body of the function in the binary format: local variables, then instructions."""
        runs = [(len(list(same)), kind) for kind, same in groupby(self._locals)]
        head = _unsigned(len(runs)) + b"".join(_unsigned(n) + bytes((kind,)) for n, kind in runs)
        made = head + bytes(self.code) + op("end")
        return _unsigned(len(made)) + made


def module(groups: Sequence[tuple[str, Sequence[bytes], Sequence[int]]], pages: int) -> bytes:
    """A module that imports `env.memory`.

    Args:
        groups: functions without parameters or results that are exported: name, bodies of functions that are their own,
            and the numbers of those in the order in which they are called.
        pages: the least size of the memory, in 64 KiB.
    """
    bodies = [body for _, own, _ in groups for body in own]
    callers, first = list[bytes](), 0
    for _, own, order in groups:
        made = b"\x00" + b"".join(b"\x10" + _unsigned(first + number) for number in order) + op("end")
        callers.append(_unsigned(len(made)) + made)
        first += len(own)
    exports = [
        _unsigned(len(name)) + name.encode() + b"\x00" + _unsigned(len(bodies) + number)
        for number, (name, _, _) in enumerate(groups)
    ]
    sections = (
        (1, [b"\x60\x00\x00"]),
        (2, [b"\x03env\x06memory\x02\x00" + _unsigned(pages)]),
        (3, [b"\x00"] * (len(bodies) + len(callers))),
        (7, exports),
        (10, [*bodies, *callers]),
    )
    made = b"\x00asm" + struct.pack("<I", 1)
    for number, items in sections:
        body = _unsigned(len(items)) + b"".join(items)
        made += bytes((number,)) + _unsigned(len(body)) + body
    return made
