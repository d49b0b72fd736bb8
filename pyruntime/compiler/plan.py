"""The plan: everything an inference does, as data. It can be printed, tested without a GPU and replayed."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from pyruntime.compiler.memory import MemoryReport
from pyruntime.compiler.repeated import Repeated
from pyruntime.errors import RuntimeException
from pyruntime.ir import Constant, Expression, HostTensor, Node, TensorType, ValueType, check_integers, evaluate
from pyruntime.kernels.ir.fallback import without_fallback
from pyruntime.kernels.selection.candidates import Noted

__all__ = [
    "Access",
    "Assignment",
    "Bounded",
    "Command",
    "GpuSegment",
    "HostStep",
    "Kept",
    "Numbers",
    "Patch",
    "Plan",
    "Region",
    "RunRows",
    "Space",
    "Transfer",
    "Unread",
]


class Space(Enum):
    """Which GPU memory a region is in."""

    ARENA = "arena"
    WEIGHTS = "weights"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class Region:
    """`nbytes` at `offset` of arena `index`, of constant `index`, or of external tensor `index`."""

    space: Space
    index: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Access:
    """What a command does with one operand.

    Attributes:
        value: the value it is; `Plan.views` says which values are the same bytes.
        region: index into the command's regions; the operand is its first `nbytes` bytes at most, and goes on in the
            regions after it where it is larger.
        scaled: number in `Plan.expressions` of how many it is, -1 where it is always `nbytes`.
        write: the kernel writes it; other operands are only read.
    """

    value: str
    region: int
    nbytes: int
    write: bool
    scaled: int = -1


@dataclass(frozen=True, slots=True)
class Command:
    """One dispatch with everything resolved but the buffers.

    Attributes:
        shader: index into `Plan.shaders`.
        regions: in binding order; operands that share memory are bound once, and those larger than a binding in parts.
        accesses: one for each operand. inplace: pairs (read, written) of them, as the dispatch states them.
        params: (offset, nbytes) in `Plan.params`, None where the kernel has none.
        grid: workgroups for the sizes seen.
        scaled: for each direction of the grid the number in `Plan.expressions`, -1 where `grid` always holds.
        node: index into `Plan.assignments` of the node it belongs to.
    """

    shader: int
    regions: tuple[Region, ...]
    params: tuple[int, int] | None
    grid: tuple[int, int, int]
    kernel: str
    node: int
    flops: int = 0
    accesses: tuple[Access, ...] = ()
    inplace: tuple[tuple[int, int], ...] = ()
    scaled: tuple[int, ...] = ()

    def region(self, access: Access) -> Region:
        """Where an operand is: all of its parts."""
        whole = self.regions[access.region]
        for part in self.regions[access.region + 1 :]:
            end = whole.offset + whole.nbytes
            if access.nbytes <= whole.nbytes or part != replace(whole, offset=end, nbytes=part.nbytes):
                break
            whole = replace(whole, nbytes=whole.nbytes + part.nbytes)
        return whole


@dataclass(frozen=True, slots=True)
class Transfer:
    """A value that crosses between host and GPU.

    Attributes:
        type: for the sizes seen.
        most: the bytes it can have.
        scaled: for each dimension the number in `Plan.expressions`, -1 where `type` always holds; or empty.
    """

    name: str
    type: TensorType
    region: Region
    most: int
    scaled: tuple[int, ...] = ()

    def sized(self, numbers: Sequence[int]) -> TensorType:
        """The type in a run for which the plan's expressions have these values."""
        return _sized(self.type, self.scaled, numbers)


@dataclass(frozen=True, slots=True)
class RunRows:
    """A number of rows: `offset`, or that of `expression`; plus the elements of an input on the host, where it has one.

    Attributes:
        input: its name, or empty. expression: number in `Plan.expressions`, -1 where `offset` holds.
    """

    input: str
    offset: int
    expression: int = -1

    def numbers(self, elements: Sequence[int], numbers: Sequence[int]) -> list[int]:
        """One for each element of the input, or just one.

        Args:
            numbers: the values of the plan's expressions.
        """
        offset = numbers[self.expression] if self.expression >= 0 else self.offset
        return [e + offset for e in elements] if self.input else [offset]


@dataclass(frozen=True, slots=True)
class Kept:
    """An output that is left in the memory of an input that the run brings.

    Attributes:
        type, scaled: as a Transfer has them; the rows along `axis` are the first of those in memory.
        input: the external tensor whose memory it is.
        axis: -1 where the memory holds no more than the tensor.
        capacity: number in `Plan.sizes` of the rows that the memory has.
        given, given_scaled: type of the input with the rows that count.
        first, end: where rows of the input are written over: they begin at the least of `first`, and those before the
            most of `end` count then.
    """

    name: str
    type: TensorType
    input: str
    scaled: tuple[int, ...] = ()
    axis: int = -1
    capacity: int = -1
    given: TensorType | None = None
    given_scaled: tuple[int, ...] = ()
    first: RunRows | None = None
    end: RunRows | None = None

    def sized(self, numbers: Sequence[int]) -> TensorType:
        """The type in a run for which the plan's expressions have these values."""
        return _sized(self.type, self.scaled, numbers)


def _sized(seen: TensorType, scaled: Sequence[int], numbers: Sequence[int]) -> TensorType:
    if not scaled:
        return seen
    return TensorType(seen.dtype, tuple([numbers[n] if n >= 0 else d for n, d in zip(scaled, seen.shape, strict=True)]))


@dataclass(frozen=True, slots=True)
class Numbers:
    """A small integer tensor whose elements follow from the sizes: written before the segment runs.

    Attributes:
        elements: for the sizes seen. expressions: for each the number in `Plan.expressions`, -1 where it always holds.
    """

    transfer: Transfer
    elements: tuple[int, ...]
    expressions: tuple[int, ...]

    def raw(self, numbers: Sequence[int]) -> bytes:
        """raw_data in a run for which the plan's expressions have these values."""
        pairs = zip(self.elements, self.expressions, strict=True)
        width = self.transfer.type.dtype.bits // 8
        mask = (1 << (8 * width)) - 1
        return b"".join(((numbers[n] if n >= 0 else e) & mask).to_bytes(width, "little") for e, n in pairs)


@dataclass(frozen=True, slots=True)
class Patch:
    """A number in `Plan.params` that follows from sizes.

    Attributes:
        kind: 'u32' (modulo 2^32), 'i32' or 'f32'. expression: number in `Plan.expressions`.
    """

    offset: int
    kind: str
    expression: int


@dataclass(frozen=True, slots=True)
class Unread:
    """An input whose bytes no step reads; its shape may matter, and has to be what it was.

    Attributes:
        scaled: as `Transfer.scaled`.
    """

    name: str
    type: TensorType
    scaled: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounded:
    """Integers that an input on the host has to be, as kernels clamp others.

    Attributes:
        input: its name; empty where no run is right.
        least, most: for the sizes seen. expressions: numbers of both in `Plan.expressions`, -1 where they always hold.
        texts: what the error says before the range, between it and the integer, and after its index.
        every: first and distance of the elements that it is about.
    """

    input: str
    least: int
    most: int
    expressions: tuple[int, int]
    texts: tuple[str, str, str]
    every: tuple[int, int] = (0, 1)

    def check(self, values: Mapping[str, object], numbers: Sequence[int]) -> None:
        """Raise RuntimeException where the input is in `values` and not what it has to be.

        Args:
            numbers: the values of the plan's expressions.
        """
        if not self.input:
            raise RuntimeException(self.texts[0])
        value = values.get(self.input)
        if isinstance(value, HostTensor):
            ends = zip((self.least, self.most), self.expressions, strict=True)
            least, most = (numbers[n] if n >= 0 else end for end, n in ends)
            check_integers(value.array(), least, most, self.texts, self.every)


@dataclass(slots=True)
class GpuSegment:
    """Uploads, dispatches in one pass, downloads; `numbers` are uploads that follow from sizes.

    Attributes:
        repeated: commands that run several times; see `order_of`.
    """

    uploads: list[Transfer] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    downloads: list[Transfer] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HostStep:
    """A node evaluated with NumPy."""

    node: Node
    inputs: tuple[ValueType | None, ...]
    outputs: tuple[ValueType, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a node runs and why.

    Attributes:
        op_type: the operator, or those that the node fuses: 'Conv + Relu'.
        placement: 'gpu', 'host', or 'none' for nodes that cost nothing (views, folded values).
        outputs: types of what it makes; empty for nodes that do not run.
        choices: what kernels were chosen for. A plan that was written to a file has none.
    """

    name: str
    op_type: str
    domain: str
    placement: str
    reason: str
    kernels: tuple[str, ...] = ()
    outputs: tuple[ValueType, ...] = ()
    choices: tuple[Noted, ...] = ()


@dataclass(slots=True)
class Plan:
    """One stage of a model for one signature of input shapes.

    Attributes:
        steps: GPU segments and host steps in order.
        shaders: distinct WGSL sources.
        constants: constants the commands bind; `Region.index` of WEIGHTS regions counts them.
        arenas: bytes of each activation arena.
        params: packed uniform structs of all commands.
        host_values: outputs that are known without running anything.
        external: tensors that stay on the GPU between stages; `Region.index` of EXTERNAL regions counts them.
        views: values that are the bytes of another one, and which.
        sizes: names of the sizes that a run brings; empty for a plan of one signature.
        expressions: over these; what the run puts into `patches`, grids and shapes.
        kept: outputs in the memory of inputs.
        unread: inputs on the host that no step reads.
        bounds: integers that inputs on the host have to be.
    """

    steps: list[GpuSegment | HostStep]
    shaders: list[str]
    constants: list[Constant]
    arenas: list[int]
    params: bytes
    memory: MemoryReport
    assignments: list[Assignment]
    host_values: dict[str, tuple[ValueType, object]]
    external: list[Transfer] = field(default_factory=list)
    views: dict[str, str] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    expressions: list[Expression] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    bounds: list[Bounded] = field(default_factory=list)

    def allocated(self, there: Collection[str]) -> int:
        """Bytes it takes besides weights; external tensors in `there` exist already."""
        return sum(self.arenas) + len(self.params) + sum(t.region.nbytes for t in self.external if t.name not in there)

    def numbers(self, sizes: Sequence[int]) -> list[int]:
        """The values of the expressions for these sizes."""
        return [evaluate(e, sizes) for e in self.expressions]

    def patched(self, numbers: Sequence[int]) -> bytes:
        """The parameters of a run for which the expressions have these values."""
        data = bytearray(self.params)
        for patch in self.patches:
            value = numbers[patch.expression]
            code, value = ("<I", value & 0xFFFFFFFF) if patch.kind == "u32" else (f"<{patch.kind[0]}", value)
            struct.pack_into(code, data, patch.offset, value)
        return bytes(data)

    def without_fallback(self) -> Plan:
        """The plan without fallback kernels (`kernels.ir.fallback`), as plans of much work are."""
        texts = [*map(without_fallback, self.shaders)]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        if len(numbers) == len(texts):
            return replace(self, shaders=texts)
        # Some differed in their fallback kernels alone.
        steps = [
            replace(step, commands=[replace(c, shader=numbers[texts[c.shader]]) for c in step.commands])
            if isinstance(step, GpuSegment)
            else step
            for step in self.steps
        ]
        return replace(self, steps=steps, shaders=list(numbers))

    def root(self, value: str) -> str:
        """Return the value that `value` is a view of; itself if it is none."""
        while value in self.views:
            value = self.views[value]
        return value

    @property
    def commands(self) -> list[Command]:
        """All dispatches in order."""
        return [c for s in self.steps if isinstance(s, GpuSegment) for c in s.commands]

    @property
    def only_segment(self) -> GpuSegment | None:
        """The GPU segment that is all of the plan; None where there are other steps."""
        return self.steps[0] if len(self.steps) == 1 and isinstance(self.steps[0], GpuSegment) else None

    @property
    def host_steps(self) -> list[HostStep]:
        """All nodes that run on NumPy."""
        return [s for s in self.steps if isinstance(s, HostStep)]
