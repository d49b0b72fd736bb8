"""A device without a GPU, for tests: it records every call, and readbacks return zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from pyruntime.compiler.repeated import Repeated, order_of
from pyruntime.device.base import AdapterInfo, Bound, Ledger, Measured, Raw, Read, Slice, Slot, Write
from pyruntime.kernels import Target
from pyruntime.kernels.wgsl.module import Module

__all__ = ["NullDevice"]


class NullDevice:
    """A `Device` that checks and records calls.

    Attributes:
        calls: (method, arguments) in order.
        replays: always 0: only Python queues runs here.
    """

    def __init__(self, target: Target | None = None) -> None:
        self.info = AdapterInfo("null", "", "", "no GPU: records commands")
        self.target = target or Target()
        self.ledger = Ledger()
        self.lost: str | None = None
        self.gpu_device = None
        self.turn = None
        self.calls: list[tuple[str, object]] = []
        self.replays = 0
        self.recordings: dict[int, list[Bound]] = {}
        self.repeated: dict[int, list[Repeated]] = {}
        self._numbers = count(1)
        self._compiled: set[str] = set()

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        made = [next(self._numbers) for _ in sizes]
        for buffer, size in zip(made, sizes, strict=True):
            self.ledger.add(buffer, size, label)
            self.calls.append(("allocate", (label, size)))
        return made

    def free(self, buffers: Sequence[int]) -> None:
        for buffer in buffers:
            self.ledger.remove(buffer)

    def write(self, target: Slice, data: Raw, offset: int = 0) -> None:
        self._inside(target)
        self.calls.append(("write", target))

    async def upload(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self.write(write.target, write.data, write.offset)

    def copy(self, pairs: Sequence[tuple[Slice, Slice]]) -> None:
        for source, target in pairs:
            self._inside(source)
            self._inside(target)
            self.calls.append(("copy", (source, target)))

    def ask(self, source: str) -> None:
        self.ledger.pipelines += source not in self._compiled
        self._compiled.add(source)

    async def compile(self, sources: Sequence[str]) -> None:
        for source in sources:
            self.ask(source)

    async def wait_for_pipelines(self) -> None:
        pass

    def record(self, commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        for command in commands:
            for part in command.storage:
                if not isinstance(part, Slot):
                    self._inside(part)
            _one_way(command)
        number = next(self._numbers)
        self.recordings[number], self.repeated[number] = list(commands), list(repeated)
        return number

    def bind(self, recording: int, buffers: Sequence[int]) -> int:
        def filled(part: Slice) -> Slice:
            if not isinstance(part, Slot):
                return part
            buffer = buffers[part.buffer]
            return Slice(buffer, part.offset, min(part.nbytes, self.ledger.live[buffer] - part.offset))

        made = [replace(c, storage=tuple(map(filled, c.storage))) for c in self.recordings[recording]]
        for command in made:
            _one_way(command)
        number = next(self._numbers)
        self.recordings[number], self.repeated[number] = made, self.repeated[recording]
        return number

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        for part in (*(w.target for w in writes), *(r.source for r in reads)):
            self._inside(part)
        self.calls.append(("submit", (recording, len(writes), len(reads))))
        return [bytes(r.source.nbytes) for r in reads]

    async def measure(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> Measured:
        answers = await self.submit(recording, writes, reads, numbers)
        order = order_of(len(self.recordings[recording]), self.repeated[recording], lambda r: r.trips(numbers))
        return Measured(answers, [(0, 0)] * len(order), "host")

    def drop(self, recording: int) -> None:
        self.recordings.pop(recording, None)
        self.repeated.pop(recording, None)

    def close(self) -> None:
        self.ledger.live.clear()

    def _inside(self, part: Slice) -> None:
        """Raise IndexError if a slice is outside of a live buffer."""
        if part.offset + part.nbytes > self.ledger.live.get(part.buffer, -1):
            raise IndexError(f"{part} is outside its buffer of {self.ledger.live.get(part.buffer)} bytes")


def _one_way(command: Bound) -> None:
    """Raise ValueError if a shader binds a buffer both as `read` and as `read_write`, which WebGPU refuses."""
    declared = [r for r in Module.of(command.source).resources if r.space == "storage"]
    both = [(part.buffer, isinstance(part, Slot)) for part in command.storage]
    read = {key for key, r in zip(both, declared, strict=False) if r.access == "read"}
    written = {key for key, r in zip(both, declared, strict=False) if r.access == "read_write"}
    if read & written:
        raise ValueError(f"{command.label} binds a buffer as read and as read_write")
