"""Dispatches: what `Op.lower` returns and plans are made of; and the device they are made for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pyruntime.ir import Constant, DType, TensorType, positive
from pyruntime.kernels.ir.costs import H200, SWIFTSHADER, Rates

if TYPE_CHECKING:
    from pyruntime.kernels.ir.kernel import Kernel

__all__ = [
    "NO_WINNERS",
    "WORKGROUP",
    "Dispatch",
    "Limits",
    "NodeFacts",
    "Operand",
    "PartialResults",
    "Role",
    "Target",
    "Winners",
    "constant",
    "inp",
    "numbered",
    "out",
    "scratch",
]

WORKGROUP = 64
"""Invocations a workgroup of the generated kernels; every device offers at least 256."""

LEAST_WORKGROUP = 16
"""Fewest invocations a workgroup that units are kept busy by: fewer cost more than they even out."""

SOFTWARE_VENDOR = "google"
"""`adapter.info.vendor` of SwiftShader."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device offers; the defaults are WebGPU's guaranteed minimum. Bytes unless said otherwise."""

    storage_buffers: int = 8
    binding_bytes: int = 128 << 20
    buffer_bytes: int = 256 << 20
    uniform_bytes: int = 64 << 10
    workgroups: int = 65535
    invocations: int = 256
    workgroup_x: int = 256
    workgroup_bytes: int = 16384


class Winners(Mapping[tuple[str, str], str]):
    """Candidates that won a measurement: names by family and problem (`kernels.selection.candidates`). Hashable."""

    __slots__ = ("_hash", "_names")

    def __init__(self, names: Mapping[tuple[str, str], str] | None = None) -> None:
        self._names = dict(names or {})
        self._hash = hash(frozenset(self._names.items()))

    def __getitem__(self, key: tuple[str, str]) -> str:
        return self._names[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __hash__(self) -> int:
        return self._hash


NO_WINNERS = Winners()
"""Nothing was measured."""


SHADER_F16 = "shader-f16"
"""WebGPU's feature of devices that compute with 16-bit floats."""

SUBGROUP_SIZE = "subgroup_size_"
"""Begins the name of what a device is known by whose subgroups all have the size that follows."""

SOFTWARE_ADAPTER = "software_adapter"
"""What a device is known by that is a processor and of no vendor: `GPUAdapterInfo.isFallbackAdapter`."""


class Chooser(Protocol):
    """What decides which of the kernels that a family ranked runs (`kernels.selection.candidates.Choices`)."""

    def take(self, family: Any, problem: Any, choice: Any) -> str:
        """The name of the candidate to run."""
        ...


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the kernels of a node depend on besides the device and the node's operands.

    Attributes:
        norm_follows: the rows of what is lowered are normalised next, which the last of its dispatches may do.
        long_epilogue: the epilogue of each result is long: kernels of many results an invocation have it once, in a
            loop, and not once for each, which drivers take long to compile. No kernel is chosen by it.
        choices: records what is chosen, and prefers kernels that the plan has; None: the cheapest are chosen.
    """

    norm_follows: bool = False
    long_epilogue: bool = False
    choices: Chooser | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The device kernels are generated for, and the node that they are generated for.

    Attributes:
        features: WebGPU feature names the device has ('subgroups', 'shader-f16', 'timestamp-query'), `SUBGROUP_SIZE`
            with the size where all subgroups have the same, `SOFTWARE_ADAPTER`, and those of WGSL
            ('packed_4x8_integer_dot_product').
        vendor: adapter.info.vendor, lower case ('nvidia', 'google', 'apple', ...).
        disabled: names of passes and kernel variants switched off by session config entries.
        rates: what was measured on the device; None: what is known of its kind.
        winners: kernels that were measured to be the best for a problem on the device.
        node: facts of the node. Two targets are equal where their devices are.
    """

    limits: Limits = field(default_factory=Limits)
    features: frozenset[str] = frozenset()
    vendor: str = ""
    disabled: frozenset[str] = frozenset()
    rates: Rates | None = None
    winners: Winners = NO_WINNERS
    node: NodeFacts = field(default=NodeFacts(), compare=False)

    def for_node(self, **facts: Any) -> Target:
        """The target with these facts of the node."""
        return replace(self, node=replace(self.node, **facts))

    @property
    def speed(self) -> Rates:
        """The rates kernels are chosen by. A processor that is to run the kernels of GPUs counts as a GPU."""
        if self.is_processor:
            return (self.rates or SWIFTSHADER) if self.is_software else H200
        return self.rates or H200

    @property
    def is_processor(self) -> bool:
        """True for a software adapter: SwiftShader, Mesa's lavapipe."""
        return self.vendor == SOFTWARE_VENDOR or SOFTWARE_ADAPTER in self.features

    @property
    def is_software(self) -> bool:
        """True where it runs kernels of its own: workgroup memory and barriers cost it more than they save."""
        return self.is_processor and self.allows("software")

    @property
    def subgroup_size(self) -> int:
        """Invocations in a row that can exchange numbers by shuffles; 0 where that is not known."""
        sizes = [f.removeprefix(SUBGROUP_SIZE) for f in self.features if f.startswith(SUBGROUP_SIZE)]
        return int(sizes[0]) if sizes and "subgroups" in self.features else 0

    @property
    def subgroup(self) -> int:
        """`subgroup_size` for kernels; 0 where shuffles are switched off. Costs ask for the size: what is chosen, and
        with it the order of sums, is the same with the switch on and off."""
        return self.subgroup_size if self.allows("subgroup_sums") else 0

    @property
    def has_f16(self) -> bool:
        """True for a GPU whose WGSL has `enable f16`."""
        return SHADER_F16 in self.features and not self.is_software

    def allows(self, variant: str) -> bool:
        """True unless the kernel variant (`kernels.variants`) was switched off."""
        return variant not in self.disabled

    def grid(self, invocations: int, workgroup: int = WORKGROUP) -> tuple[int, int, int]:
        """Workgroups that cover `invocations`, folded into y (then z) where x would exceed the limit.

        The shader finds its number with `global_index(gid, nwg)` of `lib/index.wgsl`.
        """
        return self.fold(positive(-(-invocations // workgroup)))

    def few(self, invocations: int) -> int:
        """Invocations a workgroup where a unit runs one workgroup after another: fewer where units would wait."""
        size = WORKGROUP
        while size > LEAST_WORKGROUP and invocations < 8 * self.speed.units * size:
            size //= 2
        return size

    def fold(self, groups: int) -> tuple[int, int, int]:
        """`groups` workgroups as (x, y, z) within the limit; x·y·z >= groups: shaders check the surplus."""
        most = self.limits.workgroups
        if groups <= most:
            return groups, 1, 1
        rows = -(-groups // most)
        if rows <= most:
            return -(-groups // rows), rows, 1
        planes = -(-rows // most)
        return most, -(-rows // planes), planes


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
class PartialResults:
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
        """Shares of the keys."""
        return self.parts.type.shape[0]


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
    """

    kernel: Kernel
    operands: tuple[Operand, ...]
    grid: tuple[int, int, int]
    params: bytes = b""
    inplace: Pairs = ()
    flops: int = 0
    partials: PartialResults | None = field(default=None, compare=False)

    @property
    def reads(self) -> tuple[Operand, ...]:
        """Operands the kernel only reads."""
        return tuple(o for o, b in zip(self.operands, self.kernel.bindings, strict=True) if not b.write)

    @property
    def writes(self) -> tuple[Operand, ...]:
        """Operands the kernel writes."""
        return tuple(o for o, b in zip(self.operands, self.kernel.bindings, strict=True) if b.write)

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
