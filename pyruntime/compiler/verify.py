"""What every plan must keep to, proved from its data: no command destroys what is still needed.

Memory is followed command by command: which value each byte of arenas, weights and external tensors holds. A command

- reads a value only where all of that value's bytes are, from the first to the last, and nothing wrote over them;
- writes no byte that it also reads, but for operands that its dispatch lists in `inplace`, which are the very same
  bytes of elements of the same width; every operand that reads there has to be listed;
- writes no weights, no tensor that stays on the GPU but the value it is to hold, and no byte twice;
- takes a value in the size that others took it in: another size is another tensor;
- stays within what it binds, and binds what is there, in the second iteration of a loop as in the first;
- binds as `read` only constants and tensors that no command writes, and then all constants so: they share buffers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pyruntime.compiler.memory import round_up
from pyruntime.compiler.plan import Command, HostStep, Plan, Region, Space
from pyruntime.compiler.repeated import order_of
from pyruntime.errors import Defect
from pyruntime.kernels.wgsl.module import Module

__all__ = ["PlanError", "checked", "complaints", "verify"]

_UNIT = 16
"""Bytes that kernels move at once: what is left of the last unit belongs to the value before it."""


class PlanError(Defect):
    """A plan would compute wrong numbers: a defect of the planner or of a kernel's statement, not of the model."""


def checked() -> bool:
    """True where every plan is verified as it is made: environment variable PYRUNTIME_VERIFY, as tests set it."""
    return os.environ.get("PYRUNTIME_VERIFY", "0") not in ("", "0")


def verify(plan: Plan) -> None:
    """Raises PlanError with all that is wrong with `plan`."""
    found = list(complaints(plan))
    if found:
        raise PlanError("the plan is wrong, please report it with the model:\n" + "\n".join(found))


def complaints(plan: Plan) -> Iterator[str]:
    """What is wrong with `plan`, a line each."""
    memory = _Memory(plan)
    number = 0
    for step in plan.steps:
        if isinstance(step, HostStep):
            continue
        for transfer in step.uploads:
            memory.write(transfer.name, transfer.region, transfer.most)
        for made in step.numbers:
            memory.write(made.transfer.name, made.transfer.region, made.transfer.most)
        for at in order_of(len(step.commands), step.repeated, lambda _: 2):
            command = step.commands[at]
            where = f"command {number + at}, {command.kernel} of '{plan.assignments[command.node].name}'"
            yield from (f"{where}: {text}" for text in _command(command, memory))
        number += len(step.commands)
        for transfer in step.downloads:
            lost = memory.missing(transfer.name, transfer.region, transfer.most)
            if lost:
                yield f"download of '{transfer.name}': {lost}"


def _command(command: Command, memory: _Memory) -> Iterator[str]:
    accesses = command.accesses
    yield from _bound(command, memory)
    for access in accesses:
        region = command.region(access)
        if access.nbytes > region.nbytes or region.offset + region.nbytes > memory.size(region):
            yield f"'{access.value}' takes {access.nbytes} bytes, more than {region} has"
    for i, written in enumerate(accesses):
        if not written.write:
            continue
        region = command.region(written)
        if region.space is Space.WEIGHTS:
            yield f"writes weights ('{written.value}')"
        if region.space is Space.EXTERNAL and memory.tensor(region) != memory.root(written.value):
            yield f"writes '{written.value}' into the memory of '{memory.tensor(region)}', which others hold"
        for j, other in enumerate(accesses):
            if j != i and _overlap(region, command.region(other)):
                yield from _shared(command, j, i)
    for access in accesses:
        first = memory.sizes.setdefault(access.value, access.nbytes)
        if -(-access.nbytes // _UNIT) != -(-first // _UNIT):
            yield f"'{access.value}' is a tensor of {first} bytes and one of {access.nbytes}"
        if not access.write:
            lost = memory.missing(access.value, command.region(access), access.nbytes)
            if lost:
                yield f"reads '{access.value}': {lost}"
    for access in accesses:
        if access.write:
            memory.write(access.value, command.region(access), access.nbytes)


def _bound(command: Command, memory: _Memory) -> Iterator[str]:
    """What is wrong with the bindings that the shader declares."""
    declared = memory.declared(command)
    if len(declared) != len(command.regions):
        yield f"binds {len(command.regions)} regions, and its shader declares {len(declared)}"
        return
    ways = set()
    for region, access in zip(command.regions, declared, strict=True):
        if region.space is Space.WEIGHTS:
            ways.add(access)
        if access == "read" and region.space is not Space.WEIGHTS and not memory.is_only_read(region):
            yield f"binds {region} as read, which commands write"
    if len(ways) > 1:
        yield "binds constants as read and as read_write"


def _shared(command: Command, other: int, written: int) -> Iterator[str]:
    """What is wrong with operands `other` and `written` having bytes in common."""
    a, b = command.accesses[other], command.accesses[written]
    if a.write:
        yield f"writes '{a.value}' and '{b.value}' to the same bytes"
    elif (other, written) not in command.inplace:
        yield f"overwrites '{a.value}' with '{b.value}' while other invocations read it"
    elif command.region(a) != command.region(b) or a.nbytes != b.nbytes:
        yield f"'{a.value}' and '{b.value}' overlap without being the same bytes"


def _overlap(a: Region, b: Region) -> bool:
    same = a.space is b.space and a.index == b.index
    return same and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


class _Memory:
    """Which value every byte of the GPU's memory holds."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._spans: dict[tuple[Space, int], list[tuple[int, int, str]]] = {}
        self.sizes: dict[str, int] = {}
        """Bytes of the values met so far."""
        self._written = {
            c.region(a).index
            for c in plan.commands
            for a in c.accesses
            if a.write and c.region(a).space is Space.EXTERNAL
        }
        written = {access.value for command in plan.commands for access in command.accesses if access.write}
        for transfer in plan.external:
            if transfer.name not in written:
                self.write(transfer.name, transfer.region, transfer.most)

    def size(self, region: Region) -> int:
        """Bytes of the buffer that `region` is in."""
        match region.space:
            case Space.ARENA:
                return self._plan.arenas[region.index]
            case Space.WEIGHTS:
                return round_up(self._plan.constants[region.index].nbytes)
            case Space.EXTERNAL:
                return max(t.region.nbytes for t in self._plan.external if t.region.index == region.index)

    def declared(self, command: Command) -> list[str]:
        """How the shader of a command accesses each storage binding."""
        resources = Module.of(self._plan.shaders[command.shader]).resources
        return [r.access for r in resources if r.space == "storage"]

    def is_only_read(self, region: Region) -> bool:
        """Whether a region is of a tensor that no command writes."""
        return region.space is Space.EXTERNAL and region.index not in self._written

    def root(self, value: str) -> str:
        """Return the value that `value` is a view of; itself if it is none."""
        return self._plan.root(value)

    def tensor(self, region: Region) -> str:
        """Return the name of the value that is stored in an external region."""
        return next(t.name for t in self._plan.external if t.region.index == region.index)

    def write(self, value: str, region: Region, nbytes: int) -> None:
        """The first bytes of `region` are those of `value` now."""
        if not nbytes:
            return
        start, end = region.offset, region.offset + -(-nbytes // _UNIT) * _UNIT
        kept: list[tuple[int, int, str]] = [(start, end, self._plan.root(value))]
        for low, high, held in self._spans.get((region.space, region.index), ()):
            kept += [(a, b, held) for a, b in ((low, min(high, start)), (max(low, end), high)) if a < b]
        self._spans[region.space, region.index] = sorted(kept)

    def missing(self, value: str, region: Region, nbytes: int) -> str:
        """Why the first bytes of `region` do not hold `value`; nothing where they do."""
        if region.space is Space.WEIGHTS or not nbytes:
            return ""
        root, at, end = self._plan.root(value), region.offset, region.offset + nbytes
        for low, high, held in self._spans.get((region.space, region.index), ()):
            if high <= at or low >= end:
                continue
            if low > at:
                break
            if held != root:
                return f"its bytes hold '{held}'"
            at = high
        return "" if at >= end else "nothing wrote it"
