"""A device that runs plans as WebAssembly, in Node: for native tests of kernels and of whole models."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from pyruntime.compiler.repeated import Repeated, order_of
from pyruntime.device.base import AdapterInfo, Bound, Ledger, Measured, Raw, Read, Slice, Slot, Write
from pyruntime.errors import EngineError
from pyruntime.kernels.wasm import RESERVED, Dispatch, Unsupported, compile_dispatch, module
from pyruntime.session import environment
from pyruntime.target.named import read_target

__all__ = ["WasmDevice", "on_wasm"]

PAGE = 1 << 16

SCRATCH = 1 << 20
"""Bytes for arrays of kernels."""


class Host:
    """Node, with one memory and modules over it."""

    def __init__(self) -> None:
        command = ["node", str(Path(__file__).with_name("wasm_host.mjs"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._numbers = count(1)

    def _ask(self, what: str, data: bytes = b"", **fields: object) -> bytes:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        to.write(json.dumps({"what": what, "n": len(data), **fields}).encode() + b"\n" + data)
        to.flush()
        answer = json.loads(back.readline())
        made = back.read(answer["n"])
        if answer["error"]:
            raise EngineError(answer["error"])
        return made

    def grow(self, end: int) -> None:
        """Grow the memory to an address, and a page more: kernels may read past a buffer."""
        self._ask("grow", pages=end // PAGE + 2)

    def write(self, at: int, data: Raw, offset: int, nbytes: int) -> None:
        """Write a part of `data`."""
        raw = data[offset : offset + nbytes] if isinstance(data, bytes | memoryview) else data.read(offset, nbytes)
        self._ask("write", bytes(raw), at=at)

    def read(self, at: int, nbytes: int) -> bytes:
        """Return a copy of what is there."""
        return self._ask("read", at=at, count=nbytes)

    def load(self, code: bytes) -> int:
        """Instantiate a module; returns its number."""
        number = next(self._numbers)
        self._ask("load", code, number=number)
        return number

    def run(self, number: int, names: Sequence[str]) -> None:
        """Call functions that a module exports."""
        self._ask("run", number=number, names=list(names))

    def drop(self, number: int) -> None:
        """Forget a module."""
        self._ask("drop", number=number)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass(slots=True)
class _Recording:
    """Commands, and the modules they were compiled to: by counts of workgroups and bytes of parameters."""

    commands: list[Bound]
    repeated: list[Repeated]
    modules: dict[object, int] = field(default_factory=dict)


class WasmDevice:
    """A `Device`: a recording is compiled into a module when it is first run, as it has addresses and sizes."""

    def __init__(self) -> None:
        self.info = AdapterInfo("", "", "wasm", "WebAssembly")
        self.target = read_target("wasm")
        self.ledger = Ledger()
        self.lost: str | None = None
        self.gpu_device = None
        self.turn = None
        self.replays = 0
        self._host = Host()
        self._end = RESERVED + SCRATCH
        self._spare: dict[int, list[int]] = {}
        self._at: dict[int, int] = {}
        self._numbers = count(1)
        self._recordings: dict[int, _Recording] = {}

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        """See `Device.allocate`."""
        made = list[int]()
        for size in sizes:
            number, taken = next(self._numbers), _taken(size)
            if spare := self._spare.get(taken):
                self._at[number] = spare.pop()
            else:
                self._at[number], self._end = self._end, self._end + taken
            self.ledger.add(number, size, label)
            made.append(number)
        self._host.grow(self._end)
        return made

    def free(self, buffers: Sequence[int]) -> None:
        """See `Device.free`."""
        for buffer in buffers:
            size = self.ledger.live.get(buffer)
            if size is not None and self.ledger.remove(buffer):
                self._spare.setdefault(_taken(size), []).append(self._at.pop(buffer))

    def _address(self, part: Slice) -> int:
        return self._at[part.buffer] + part.offset

    def write(self, target: Slice, data: Raw, offset: int = 0) -> None:
        """See `Device.write`."""
        self._host.write(self._address(target), data, offset, target.nbytes)

    async def upload(self, writes: Sequence[Write]) -> None:
        """See `Device.upload`."""
        for write in writes:
            self.write(write.target, write.data, write.offset)

    def copy(self, pairs: Sequence[tuple[Slice, Slice]]) -> None:
        """See `Device.copy`."""
        for source, target in pairs:
            data = self._host.read(self._address(source), source.nbytes)
            self._host.write(self._address(target), data, 0, len(data))

    def ask(self, source: str) -> None:
        """A module is compiled when it is first run, as it has addresses and sizes."""

    async def compile(self, sources: Sequence[str]) -> None:
        """See `ask`."""

    async def wait_for_pipelines(self) -> None:
        """There are none."""

    def record(self, commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        """See `Device.record`."""
        number = next(self._numbers)
        self._recordings[number] = _Recording(list(commands), list(repeated))
        return number

    def bind(self, recording: int, buffers: Sequence[int]) -> int:
        """See `Device.bind`."""

        def filled(part: Slice) -> Slice:
            if not isinstance(part, Slot):
                return part
            buffer = buffers[part.buffer]
            return Slice(buffer, part.offset, min(part.nbytes, self.ledger.live[buffer] - part.offset))

        known = self._recordings[recording]
        commands = [replace(c, storage=tuple(map(filled, c.storage))) for c in known.commands]
        return self.record(commands, known.repeated)

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        """See `Device.submit`."""
        await self.upload(writes)
        number, order = self._module(recording, numbers)
        self._host.run(number, [str(command) for command in order])
        return self._answers(reads)

    async def measure(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> Measured:
        """See `Device.measure`; it measures nothing."""
        answers = await self.submit(recording, writes, reads, numbers)
        return Measured(answers, [(0, 0)] * len(self._module(recording, numbers)[1]), "host")

    def _answers(self, reads: Sequence[Read]) -> list[Raw]:
        return [self._host.read(self._address(r.source), r.source.nbytes) for r in reads]

    def _module(self, recording: int, numbers: Sequence[int]) -> tuple[int, list[int]]:
        """The module of a run, and the numbers of its dispatches in order."""
        known = self._recordings[recording]
        order = order_of(len(known.commands), known.repeated, lambda repeated: repeated.trips(numbers))
        grids = [_grid(command, numbers) for command in known.commands]
        params = [self._params(command) for command in known.commands]
        key = tuple(grids), tuple(params)
        if key not in known.modules:
            known.modules[key] = self._compiled(known.commands, grids, params)
        return known.modules[key], order

    def _params(self, command: Bound) -> bytes:
        part = command.uniform
        return self._host.read(self._address(part), part.nbytes) if part is not None else b""

    def _compiled(
        self, commands: Sequence[Bound], grids: Sequence[tuple[int, int, int]], params: Sequence[bytes]
    ) -> int:
        groups = list[tuple[str, list[bytes], list[int]]]()
        for number, (command, grid, raw) in enumerate(zip(commands, grids, params, strict=True)):
            buffers = [self._address(part) for part in command.storage]
            if 0 in grid:
                groups.append((str(number), [], []))
                continue
            try:
                made = compile_dispatch(Dispatch(command.source, buffers, raw, grid, RESERVED))
            except Unsupported as error:
                raise EngineError(f"{command.label} has no WebAssembly: {error}\n{command.source}") from None
            assert made.end <= RESERVED + SCRATCH
            groups.append((str(number), [made.body], [0]))
        return self._host.load(module(groups, 1))

    def drop(self, recording: int) -> None:
        """See `Device.drop`."""
        known = self._recordings.pop(recording, None)
        for number in known.modules.values() if known is not None else ():
            self._host.drop(number)

    def close(self) -> None:
        """See `Device.close`."""
        self.free(list(self.ledger.live))
        self._host.close()


def _grid(command: Bound, numbers: Sequence[int]) -> tuple[int, int, int]:
    if not command.scaled:
        return command.grid
    x, y, z = (numbers[n] if n >= 0 else own for n, own in zip(command.scaled, command.grid, strict=True))
    return x, y, z


def _taken(nbytes: int) -> int:
    return max(1, -(-nbytes // 256)) * 256


@contextmanager
def on_wasm() -> Iterator[WasmDevice]:
    """Sessions opened inside run as WebAssembly; the test is skipped where there is no Node."""
    if shutil.which("node") is None:
        pytest.skip("needs Node")
    device = WasmDevice()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "_missing_adapter", lambda *asked: None)
        patch.setattr(environment, "_held", {None: device})
        yield device
    device.close()
