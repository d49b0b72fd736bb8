"""What a device is: buffers, pipelines, recordings.

Implementations: `webgpu` (a browser's), `desktop` (wgpu-native or Dawn, under CPython), `null` (records, for tests).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from pyruntime.compiler.repeated import Repeated
from pyruntime.device.blocking import Turn
from pyruntime.ir import RawSource
from pyruntime.kernels import Target

__all__ = ["AdapterInfo", "Bound", "Device", "Ledger", "Measured", "Raw", "Read", "Repeated", "Slice", "Slot", "Write"]

Raw: TypeAlias = bytes | memoryview | RawSource
"""Bytes on the host; a RawSource may lie outside Python's memory and then goes to the GPU from there."""


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """WebGPU's GPUAdapterInfo; `is_fallback`: the browser says that it is a software adapter."""

    vendor: str = ""
    architecture: str = ""
    device: str = ""
    description: str = ""
    is_fallback: bool = False

    @property
    def names(self) -> dict[str, str]:
        """What adapters are told apart by: `vendor`, `architecture`, `device` and `description`."""
        return {k: getattr(self, k) for k in ("vendor", "architecture", "device", "description")}

    def __str__(self) -> str:
        said = self.description or " ".join(filter(None, (self.vendor, self.architecture, self.device)))
        return said or ("software adapter" if self.is_fallback else "unknown")


@dataclass(frozen=True, slots=True)
class Slice:
    """`nbytes` at `offset` of the buffer numbered `buffer`."""

    buffer: int
    offset: int
    nbytes: int


class Slot(Slice):
    """`nbytes` at `offset` of a buffer that each run brings: `buffer` is the number of the external tensor."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A dispatch with buffers: WGSL source, storage slices in binding order, the uniform slice, workgroups.

    It may have slots, whose buffers come with each run.

    Attributes:
        scaled: for each direction of the grid, which of a run's numbers it is; -1 where `grid` always holds.
        flops: floating-point operations; 0 where they were not counted.
    """

    source: str
    storage: tuple[Slice, ...]
    uniform: Slice | None
    grid: tuple[int, int, int]
    label: str = ""
    scaled: tuple[int, ...] = ()
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Write:
    """Host bytes to be written, from `offset` on; the target's `nbytes` is the tensor's, without padding."""

    target: Slice
    data: Raw
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A slice to be read back after a recording ran."""

    source: Slice


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measured recording read back, and how long its dispatches took.

    Attributes:
        answers: as `Device.submit` gives them.
        spans: (begin, duration) of each dispatch in nanoseconds, from the begin of the first, in the order they ran.
        clock: 'gpu' where the GPU's own timestamps were used, 'host' for wall time of one submit a dispatch.
    """

    answers: list[Raw]
    spans: list[tuple[int, int]]
    clock: str


@dataclass(slots=True)
class Ledger:
    """What is allocated on the device, in bytes.

    Attributes:
        live: bytes by buffer number. peak: the most there ever was. pipelines: how many were compiled.
        staging: gives the bytes of buffers that uploads and results pass through, which `live` has not.
        memory: bytes of memory that there are; infinity where that is not known.
    """

    live: dict[int, int] = field(default_factory=dict)
    peak: int = 0
    pipelines: int = 0
    staging: Callable[[], int] = lambda: 0
    memory: float = math.inf
    _labels: dict[int, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes allocated now."""
        return sum(self.live.values())

    def add(self, buffer: int, nbytes: int, label: str) -> None:
        """Note an allocation."""
        self.live[buffer] = nbytes
        self._labels[buffer] = label
        self.peak = max(self.peak, self.total)

    def remove(self, buffer: int) -> bool:
        """Note that a buffer is freed; False where it is not known."""
        self._labels.pop(buffer, None)
        return self.live.pop(buffer, None) is not None

    def relabel(self, buffer: int, label: str) -> None:
        """Note that a buffer is for something else now."""
        self._labels[buffer] = label

    @property
    def by_label(self) -> dict[str, int]:
        """Bytes by what buffers were allocated for, and staging buffers."""
        found: dict[str, int] = {}
        for buffer, nbytes in self.live.items():
            label = self._labels[buffer]
            found[label] = found.get(label, 0) + nbytes
        return {**found, "staging": self.staging()}


class Device(Protocol):
    """A GPU. Buffers and recordings are numbers; a number is never used again."""

    info: AdapterInfo
    target: Target
    ledger: Ledger
    gpu_device: Any
    """The GPUDevice of JavaScript, or of the wgpu-py API; None where there is none."""

    @property
    def lost(self) -> str | None:
        """Why the device was lost; None while it works."""
        ...

    @property
    def turn(self) -> Turn | None:
        """The threads that use it, one at a time, where its calls block; None where they are awaited in one thread."""
        ...

    @property
    def replays(self) -> int:
        """Runs that others than Python have queued so far, on any device."""
        ...

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        """Allocate buffers of these sizes in bytes, for storage and copies.

        Raises:
            OutOfMemory: the device refused; none of them is kept.
        """
        ...

    def free(self, buffers: Sequence[int]) -> None:
        """Destroy buffers; numbers not known are ignored."""
        ...

    def write(self, target: Slice, data: Raw, offset: int = 0) -> None:
        """Write `target.nbytes` bytes of `data` from `offset`; done before anything submitted later."""
        ...

    async def upload(self, writes: Sequence[Write]) -> None:
        """Write all of these, large ones in pieces; queued before anything submitted after it.

        Raises:
            EngineError: the device refused. DeviceLost: it is gone.
        """
        ...

    def copy(self, pairs: Sequence[tuple[Slice, Slice]]) -> None:
        """Copy whole words, from the first to the second of each pair, after everything submitted so far."""
        ...

    def ask(self, source: str) -> None:
        """Begin to make the pipeline of a WGSL source that `compile` may want, which tells what is wrong with it."""
        ...

    async def compile(self, sources: Sequence[str]) -> None:
        """Have a pipeline for each WGSL source; those there are kept, the others made at the same time.

        Raises:
            EngineError: a shader does not compile; with the compiler's message, line and source.
        """
        ...

    async def wait_for_pipelines(self) -> None:
        """Wait until all pipelines are compiled, so that no fallback kernel runs any more (`kernels.ir.fallback`)."""
        ...

    def record(self, commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        """Record a command list that `submit` replays; one with slots is for `bind`.

        Args:
            repeated: commands that run several times; `scaled` counts a run's numbers.
        """
        ...

    def bind(self, recording: int, buffers: Sequence[int]) -> int:
        """Bind the buffers of these numbers to the slots of a recording; returns another recording."""
        ...

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        """Write, run the recording in one pass and one submit, read back; the slices' bytes in order of `reads`.

        Args:
            numbers: what `Bound.scaled` counts.

        Raises:
            EngineError: validation or internal error. DeviceLost: the device is gone.
        """
        ...

    async def measure(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> Measured:
        """Submit, with the time of each dispatch: for profiles, slower as a whole."""
        ...

    def drop(self, recording: int) -> None:
        """Forget a recording."""
        ...

    def close(self) -> None:
        """Free everything and give the device back."""
        ...
