"""Dispatches: what `Op.lower` returns and plans are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from pyruntime.ir import Constant, DType, TensorType

if TYPE_CHECKING:
    from pyruntime.kernels.ir.kernel import Kernel

__all__ = ["Dispatch", "Operand", "Partials", "Repetition", "Role", "constant", "inp", "numbered", "out", "scratch"]


class Role(Enum):
    """Where an operand of a dispatch comes from."""

    INPUT = "in"
    OUTPUT = "out"
    SCRATCH = "scratch"
    CONSTANT = "const"

    __hash__ = object.__hash__  # without a call of Python's


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor a dispatch binds: the node's input or output number, scratch memory, or a constant of its own.

    Only `scratch` and `constant` make scratch memory and constants: their `index` tells one from another, within a node
    as in nodes that several operators were joined to.
    """

    role: Role
    index: int
    type: TensorType
    data: Constant | None = field(default=None, compare=False)


def inp(index: int, type: TensorType) -> Operand:
    """The node's input `index`."""
    return Operand(Role.INPUT, index, type)


def out(index: int, type: TensorType) -> Operand:
    """The node's output `index`."""
    return Operand(Role.OUTPUT, index, type)


_fresh = count()


def scratch(dtype: DType, *shape: int) -> Operand:
    """Memory that lives from its first to its last use within the node's dispatches. Each call gives another tensor."""
    return Operand(Role.SCRATCH, next(_fresh), TensorType(dtype, shape))


def constant(data: Constant) -> Operand:
    """A constant made by `lower` (an index table, packed weights). Each call gives another one."""
    return Operand(Role.CONSTANT, next(_fresh), data.type, data)


def numbered(dispatches: Sequence[Dispatch]) -> tuple[Dispatch, ...]:
    """The same dispatches of a node, its scratch tensors and own constants numbered from 0 as they appear."""
    numbers: dict[Role, dict[int, int]] = {Role.SCRATCH: {}, Role.CONSTANT: {}}

    def named(operand: Operand) -> Operand:
        own = numbers.get(operand.role)
        return operand if own is None else replace(operand, index=own.setdefault(operand.index, len(own)))

    return tuple(
        replace(d, operands=tuple(map(named, d.operands))) if any(o.role in numbers for o in d.operands) else d
        for d in dispatches
    )


@dataclass(frozen=True, slots=True)
class Partials:
    """Partial results of an attention over shares of the keys, which its last dispatch or its consumer reduces.

    y[b, i, h * E + e] = sum over s of exp(top[s] - T) * parts[s, b, h, i, e] / sum over s of exp(top[s] - T) * sum[s],
    with T = max top. A sum of 0 says that a share has no results.

    Attributes:
        parts: float32 [splits, batch, heads, queries, E].
        stats: float32 [splits, batch * heads * queries, 2]: top and sum.
        empty_zero: rows of which all sums are 0 are 0 instead of NaN.
    """

    parts: Operand
    stats: Operand
    empty_zero: bool

    @property
    def splits(self) -> int:
        """Number of parts that the keys are split into."""
        return self.parts.type.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """What consecutive dispatches have in common that run `times` times, one sequence after the other.

    Attributes:
        times: an int or a Dim.
    """

    times: Any


Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""(read, written): positions of operands."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One kernel applied to operands.

    Attributes:
        operands: in the order of `kernel.bindings`.
        grid: workgroups in x, y, z.
        params: the packed uniform struct, `b""` where the kernel has none.
        inplace: positions (read, written) of operands that may be the same memory: what an invocation has not itself
            read, before it writes there, it does not depend on. Either it reads of `read` only the elements it then
            writes, or all its workgroup reads meet at a barrier before the first write, and no other workgroup reads
            there. Memory that a dispatch reads through another operand too is shared only where all of them are listed.
        flops: floating-point operations, for profiles; 0 where they were not counted.
        partials: what the kernel reduces, where its result is that and nothing else.
        loops: what it is repeated by, the outermost first.
    """

    kernel: Kernel
    operands: tuple[Operand, ...]
    grid: tuple[int, int, int]
    params: bytes = b""
    inplace: Pairs = ()
    flops: int = 0
    partials: Partials | None = field(default=None, compare=False)
    loops: tuple[Repetition, ...] = ()

    @property
    def reads(self) -> tuple[Operand, ...]:
        """Operands the kernel only reads."""
        return tuple(o for o, b in zip(self.operands, self.kernel.bindings, strict=True) if not b.write)

    @property
    def writes(self) -> tuple[Operand, ...]:
        """Operands the kernel writes."""
        return tuple(o for o, b in zip(self.operands, self.kernel.bindings, strict=True) if b.write)

    @property
    def bound(self) -> int:
        """Storage buffers that are bound: one for each operand, or for each part of it."""
        found = zip(self.operands, self.kernel.bindings, strict=True)
        return sum({(o.role, o.index): b.parts for o, b in found}.values())

    def with_operand(self, role: Role, index: int, other: Operand) -> Dispatch:
        """The dispatch with `other` in the place of the operand of this role and number."""
        operands = tuple(other if (o.role, o.index) == (role, index) else o for o in self.operands)
        return replace(self, operands=operands)

    def with_reads(self, at: int, operands: Sequence[Operand]) -> tuple[tuple[Operand, ...], Pairs]:
        """Operands and `inplace` with further operands inserted before position `at`."""

        def moved(position: int) -> int:
            return position if position < at else position + len(operands)

        pairs: Pairs = tuple((moved(read), moved(written)) for read, written in self.inplace)
        return (*self.operands[:at], *operands, *self.operands[at:]), pairs

    def called(self, name: str) -> Dispatch:
        """The dispatch with its kernel called `name` in profiles."""
        return replace(self, kernel=replace(self.kernel, name=name))

    @property
    def is_empty(self) -> bool:
        """True where every written tensor has no elements: nothing to do."""
        return all(math.prod(o.type.shape) == 0 for o in self.writes)
