"""WebGPU under CPython. Calls block, and release the interpreter's lock meanwhile; nothing is awaited.

With wgpu-native, a submit that fails validation ends the process. So everything that validation can refuse is created
by calls that report errors (bind groups, pipelines, command encoders), and each submit first checks for what remains:
destroyed buffers and a lost device.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any
from weakref import WeakSet

from pyruntime.compiler.repeated import Repeated
from pyruntime.device.base import AdapterInfo, Bound, Ledger, Measured, Raw, Read, Slice, Write
from pyruntime.device.blocking import Turn, let_others
from pyruntime.device.desktop.adapters import Adapter
from pyruntime.device.desktop.ended_loops import NBYTES, EndedLoops
from pyruntime.device.desktop.implementations import GpuObject, Implementation
from pyruntime.device.desktop.long_runs import FIRST_RATE, SOFTWARE_RATE, Pace
from pyruntime.device.desktop.memory import PIECE, Readback, Staging, pieces
from pyruntime.device.desktop.pipelines import Pipelines
from pyruntime.device.desktop.recordings import Ready, Recording, submits_of
from pyruntime.device.desktop.targets import LIMITS, target_of
from pyruntime.device.desktop.timing import spans_of
from pyruntime.errors import DeviceLost, EngineError, EPFail, OutOfMemory
from pyruntime.ops.interpreter import current

__all__ = ["DesktopDevice"]

CHECKS = "PYRUNTIME_SHADER_CHECKS"
"""Environment variable: '1' keeps bounds checks and loop guards in generated kernels too, as in custom ones."""

_devices: WeakSet[DesktopDevice] = WeakSet()

_LOSS = re.compile(r"\bdevice\W+(is )?lost", re.I)
"""Matches the messages of both implementations about a lost device."""

_numbers = count(1)
"""Numbers for buffers and recordings, unique over all devices."""


class DesktopDevice:
    """A `Device` on a GPUDevice of the wgpu-py API.

    Attributes:
        adapter: the adapter that the device was opened on.
        turn: the lock that threads hold while they use the device.
        replays: always 0: only Python queues runs here.
    """

    def __init__(self, implementation: Implementation, adapter: Adapter, found: GpuObject) -> None:
        """Open a device with all limits and useful features of an adapter. Raises EPFail: the adapter refuses."""
        wanted = {name: found.limits[name] for name in LIMITS.values()}
        try:
            self.gpu_device: GpuObject = implementation.request_device(found, wanted)
        except RuntimeError as error:
            raise EPFail(f"the adapter {adapter} refused a device: {error}") from None
        self.adapter = adapter
        self.info = AdapterInfo(
            adapter.vendor, adapter.architecture, adapter.device, adapter.description, adapter.kind == "software"
        )
        self.turn = Turn()
        self.ledger = Ledger(staging=lambda: self._staging.nbytes)
        self.lost: str | None = None
        self.replays = 0
        self._implementation = implementation
        self._buffers: dict[int, GpuObject] = {}
        self._recordings: dict[int, Recording] = {}
        self._staging = Staging(implementation, self.gpu_device)
        self._pace = Pace(SOFTWARE_RATE if adapter.kind == "software" else FIRST_RATE)
        self._ended = EndedLoops.of(implementation, adapter, self.gpu_device, next(_numbers))
        if self._ended is not None:
            self._buffers[self._ended.place.buffer] = self._ended.buffer
        checks = os.environ.get(CHECKS) == "1"
        self._pipelines = Pipelines(implementation, self.gpu_device, self.ledger, checks, self._ended)
        usage = implementation.api.BufferUsage
        self._usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST | usage.UNIFORM
        reserved = 1 if self._ended is not None else 0
        self.target = target_of(implementation, adapter, found, self.gpu_device, reserved)
        _devices.add(self)

    def _check(self) -> None:
        """Raise DeviceLost if the device was lost."""
        if self.lost is None:
            self.lost = self._implementation.why_gone(self.gpu_device)
        if self.lost is not None:
            raise DeviceLost(
                f"the GPU device was lost ({self.lost}), and the tensors on it; run the models that made them again"
            )

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        """Turn the implementation's exceptions into DeviceLost or EngineError, with `what` before the message."""
        try:
            yield
        except (DeviceLost, EngineError):
            raise
        except self._implementation.errors as error:
            text = str(error)
            if _LOSS.search(text):
                self.lost = self.lost or "while it was in use"
            self._check()
            raise EngineError(f"{what}: {text.strip()}") from None

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        """See `Device.allocate`."""
        with self.turn:
            self._check()
            held, made = self.ledger.total, list[int]()
            for size in sizes:
                try:
                    with self._reported(label):
                        buffer = self.gpu_device.create_buffer(
                            label=label, size=max(16, (size + 3) & ~3), usage=self._usage
                        )
                except EngineError as error:
                    self.free(made)
                    if isinstance(error, DeviceLost):
                        raise
                    raise OutOfMemory(
                        f"the device refused {sum(sizes):,} bytes for {label} ({held:,} bytes were in use): {error}; "
                        "use smaller inputs, release other sessions, or the CPUExecutionProvider"
                    ) from None
                made.append(number := next(_numbers))
                self._buffers[number] = buffer
                self.ledger.add(number, size, label)
            return made

    def free(self, buffers: Sequence[int]) -> None:
        """See `Device.free`."""
        with self.turn:
            for number in buffers:
                buffer = self._buffers.pop(number, None)
                if buffer is not None:
                    buffer.destroy()
                    self.ledger.remove(number)

    def gpu_buffer(self, number: int) -> GpuObject:
        """Return the GPUBuffer of this number. Raises DeviceLost: the device was lost, and the buffer with it."""
        self._check()
        return self._buffers[number]

    def write(self, target: Slice, data: Raw, offset: int = 0) -> None:
        """See `Device.write`."""
        with self.turn:
            self._check()
            self._write(Write(target, data, offset))

    def _write(self, write: Write) -> int:
        """Queue a write; return its bytes."""
        queue, buffer = self.gpu_device.queue, self._buffers[write.target.buffer]
        with self._reported("the GPU refused an upload"):
            for at, part in pieces(write.target, write.data, write.offset):
                queue.write_buffer(buffer, at, part)
                if len(part) == PIECE:
                    queue.submit([])
        return write.target.nbytes

    async def upload(self, writes: Sequence[Write]) -> None:
        """See `Device.upload`. Submits after each `PIECE`, so that the implementation frees its copies of the bytes."""
        with self.turn:
            self._check()
            queued = 0
            for write in writes:
                queued += self._write(write)
                if queued >= PIECE:
                    self.gpu_device.queue.submit([])
                    queued = 0

    def copy(self, pairs: Sequence[tuple[Slice, Slice]]) -> None:
        """See `Device.copy`."""
        with self.turn:
            self._check()
            with self._reported("the GPU could not copy"):
                encoder = self._implementation.commands(self.gpu_device)
                for source, target in pairs:
                    buffers = self._buffers[source.buffer], source.offset, self._buffers[target.buffer], target.offset
                    encoder.copy_buffer_to_buffer(*buffers, (source.nbytes + 3) & ~3)
                encoder.submit()

    def ask(self, source: str) -> None:
        """See `Device.ask`."""
        if self.lost is None:
            self._pipelines.ask(source)

    async def compile(self, sources: Sequence[str]) -> None:
        """See `Device.compile`."""
        self._check()
        for source in sources:
            self._pipelines.ask(source)
        await let_others()
        with self.turn:
            self._pipelines.wait(sources)

    async def wait_for_pipelines(self) -> None:
        """Do nothing: there are no fallback kernels here."""

    def record(self, commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        """See `Device.record`."""
        with self.turn:
            self._check()
            with self._reported("the GPU could not bind the model's buffers"):
                made = Recording.of(self.gpu_device, self._pipelines, self._buffers, list(commands), repeated)
            return self._recorded(made)

    def bind(self, recording: int, buffers: Sequence[int]) -> int:
        """See `Device.bind`."""
        with self.turn:
            self._check()
            with self._reported("the GPU could not bind the run's buffers"):
                opened = self._recordings[recording]
                made = opened.bound(self.gpu_device, self._buffers, buffers)
            return self._recorded(made)

    def _recorded(self, made: Recording) -> int:
        number = next(_numbers)
        self._recordings[number] = made
        return number

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        """See `Device.submit`."""
        with self.turn:
            commands, work = self._ready(recording, reads, numbers)
            for write in writes:
                self._write(write)
            reports = [Read(self._ended.place)] if self._ended is not None and reads else []
            with self._reported("the GPU could not run the model"):
                readback = Readback(self._staging, [*reads, *reports])
                try:
                    self._play(commands, work, readback)
                    if reads:
                        await let_others()  # they may queue further work before this waits
                    answers = readback.collect(self._implementation, _check_of_run())
                finally:
                    readback.abandon()
            if self._ended is not None and reports:
                self._ended.check(answers.pop(), lambda: self._write(Write(reports[0].source, bytes(NBYTES))))
            return answers

    def _ready(self, recording: int, reads: Sequence[Read], numbers: Sequence[int]) -> tuple[list[Ready], list[int]]:
        """Return the dispatches of a run, and an estimate of the operations of each.

        Raises:
            EngineError: a buffer of the run was freed; submitting would end the process.
            DeviceLost: the device was lost.
        """
        self._check()
        recorded = self._recordings[recording]
        live = self._buffers.keys()
        if not (recorded.buffers <= live and all(read.source.buffer in live for read in reads)):
            raise EngineError("the run uses buffers that were freed; this is a bug of pyruntime, please report it")
        with self._reported("the GPU could not run the model"):
            return recorded.ready(self._pipelines, numbers)

    def _play(self, commands: list[Ready], work: Sequence[int], readback: Readback) -> None:
        """Submit dispatches in several submits, and the copies for the readback in the last one."""
        if self._pace.is_long(work):
            self._pace.run(work, lambda first, end: self._slice(commands[first:end]), current().progress)
            commands = []
        encoder = self._implementation.commands(self.gpu_device)
        for place, part in enumerate(submits_of(commands)):
            if place:
                encoder.submit()
                encoder = self._implementation.commands(self.gpu_device)
            encoder.dispatch(part, self._common)
        readback.encode(encoder, self._buffers)
        encoder.submit()

    def _slice(self, commands: Sequence[Ready]) -> Callable[[], None]:
        """Submit a slice of a long run; return a function that waits until the GPU has finished it.

        Both check the run's time limit and `RunOptions.terminate` first.
        """
        _check_of_run()()
        encoder, marker = self._implementation.commands(self.gpu_device), self._staging.take(4)
        encoder.dispatch(commands, self._common)
        encoder.clear_buffer(marker, 0, 4)
        encoder.submit()

        def wait() -> None:
            try:
                self._implementation.read(marker, [(0, 4)], _check_of_run())
            except BaseException:
                self._staging.discard(marker)
                raise
            self._staging.give(marker)

        return wait

    def _encode(self, encoder: GpuObject, commands: Sequence[Ready], timestamps: dict[str, Any] | None = None) -> None:
        self._implementation.encode(encoder, commands, timestamps, self._common)

    @property
    def _common(self) -> GpuObject | None:
        """The bind group 1 of all pipelines, if they have one."""
        return self._ended.group if self._ended is not None else None

    async def measure(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> Measured:
        """See `Device.measure`."""
        with self.turn:
            commands, _ = self._ready(recording, reads, numbers)
            await self.upload(writes)
            has_queries = "timestamp-query" in self.target.features
            with self._reported("the GPU could not run the model"):
                instruments = self._implementation, self.gpu_device, self._staging, self._encode
                spans = spans_of(*instruments, commands, has_queries)
            empty = self.record([])
            try:
                return Measured(await self.submit(empty, [], reads), spans, "gpu" if has_queries else "host")
            finally:
                self.drop(empty)

    def drop(self, recording: int) -> None:
        """See `Device.drop`."""
        self._recordings.pop(recording, None)

    def close(self) -> None:
        """See `Device.close`."""
        with self.turn:
            self.free(list(self._buffers))
            self._recordings.clear()
            self._pipelines.close()
            if self.lost is None:
                self._staging.clear()
                self.lost = "destroyed: closed here"


def _check_of_run() -> Callable[[], None]:
    """Return the current run's check, which raises when its time limit or `RunOptions.terminate` ends it."""
    return current().check or (lambda: None)


def _forked() -> None:
    """Mark all devices as lost, in the child of a fork: drivers do not survive one."""
    for device in _devices:
        device.lost = device.lost or "this process was forked from the one that opened it"
        device.turn = Turn()


@atexit.register
def _wait_at_exit() -> None:
    """Wait until the GPU is idle: drivers that work when the process ends may crash in their exit handlers."""
    for device in list(_devices):
        if device.lost is None:
            with suppress(EngineError, DeviceLost), device._reported("the GPU could not finish"):
                device._slice([])()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
