"""The `Device` protocol, and the data types of its methods: slices of buffers, bound dispatches, writes, reads.

Implementations: `webgpu` (browsers), `desktop` (wgpu-native or Dawn, under CPython), `null` (only records, for tests).
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
"""Bytes on the host. A RawSource may lie outside Python's memory; it is then uploaded from there, without a copy in
Python.
"""


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """WebGPU's GPUAdapterInfo; `is_fallback`: the browser reports a software adapter."""

    vendor: str = ""
    architecture: str = ""
    device: str = ""
    description: str = ""
    is_fallback: bool = False

    @property
    def names(self) -> dict[str, str]:
        """The strings that identify an adapter: `vendor`, `architecture`, `device` and `description`."""
        return {k: getattr(self, k) for k in ("vendor", "architecture", "device", "description")}

    def __str__(self) -> str:
        said = self.description or " ".join(filter(None, (self.vendor, self.architecture, self.device)))
        return said or ("software adapter" if self.is_fallback else "unknown")


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of a buffer: `nbytes` bytes from `offset` on; `buffer` is the buffer's number."""

    buffer: int
    offset: int
    nbytes: int


class Slot(Slice):
    """A range of a buffer that is bound for each run; `buffer` is the index of the external tensor."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A dispatch with its buffers: WGSL source, storage bindings in order, uniform binding, workgroup counts.

    Storage bindings that are `Slot`s get their buffers from `Device.bind`.

    Attributes:
        scaled: for each dimension of `grid`, the index of the run's number that replaces it; -1: the grid's own.
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
    """A copy of host bytes into a buffer: `target.nbytes` bytes of `data` from `offset` on, without padding."""

    target: Slice
    data: Raw
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A range of a buffer to read back after the recording has run."""

    source: Slice


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of a measured recording, and the time of each dispatch.

    Attributes:
        answers: the bytes read back, as from `Device.submit`.
        spans: (begin, duration) of each dispatch in nanoseconds, in execution order, from the begin of the first.
        clock: 'gpu' for timestamp queries, 'host' for the wall time of a separate submit for each dispatch.
    """

    answers: list[Raw]
    spans: list[tuple[int, int]]
    clock: str


@dataclass(slots=True)
class Ledger:
    """Memory allocated on a device, in bytes.

    Attributes:
        live: bytes of each buffer, by its number. peak: the largest total so far. pipelines: number of compiled
            pipelines.
        staging: returns the bytes of staging buffers, which `live` leaves out.
        memory: bytes of memory of the device; infinity where that is unknown.
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
        """Record an allocation."""
        self.live[buffer] = nbytes
        self._labels[buffer] = label
        self.peak = max(self.peak, self.total)

    def remove(self, buffer: int) -> bool:
        """Record that a buffer was freed; return False where its number is unknown."""
        self._labels.pop(buffer, None)
        return self.live.pop(buffer, None) is not None

    def relabel(self, buffer: int, label: str) -> None:
        """Change the label of a buffer."""
        self._labels[buffer] = label

    @property
    def by_label(self) -> dict[str, int]:
        """Bytes by label, with those of staging buffers as 'staging'."""
        found: dict[str, int] = {}
        for buffer, nbytes in self.live.items():
            label = self._labels[buffer]
            found[label] = found.get(label, 0) + nbytes
        return {**found, "staging": self.staging()}


class Device(Protocol):
    """A GPU. Buffers and recordings are identified by numbers, which are never reused."""

    info: AdapterInfo
    target: Target
    ledger: Ledger
    gpu_device: Any
    """The JavaScript GPUDevice, or that of the wgpu-py API; None for a device without a GPU."""

    @property
    def lost(self) -> str | None:
        """Why the device was lost; None while it works."""
        ...

    @property
    def turn(self) -> Turn | None:
        """The lock that threads hold while they use a device whose calls block; None where calls are awaited in one
        thread.
        """
        ...

    @property
    def replays(self) -> int:
        """Number of runs so far, on any device, that JavaScript replayed without Python."""
        ...

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        """Allocate buffers of these sizes in bytes, for storage and copies; return their numbers.

        Raises:
            OutOfMemory: the device refused an allocation; all buffers of the call are freed.
        """
        ...

    def free(self, buffers: Sequence[int]) -> None:
        """Destroy buffers; unknown numbers are ignored."""
        ...

    def write(self, target: Slice, data: Raw, offset: int = 0) -> None:
        """Write `target.nbytes` bytes of `data` from `offset` on. Later submits see the new bytes."""
        ...

    async def upload(self, writes: Sequence[Write]) -> None:
        """Write all of these, large ones in pieces. Later submits see the new bytes.

        Raises:
            EngineError: the device refused a write. DeviceLost: the device was lost.
        """
        ...

    def copy(self, pairs: Sequence[tuple[Slice, Slice]]) -> None:
        """Copy from the first to the second slice of each pair, in whole 32-bit words, after everything submitted so
        far.
        """
        ...

    def ask(self, source: str) -> None:
        """Start to compile the pipeline of a WGSL source; a later `compile` of the source reports errors."""
        ...

    async def compile(self, sources: Sequence[str]) -> None:
        """Compile a pipeline for each WGSL source, all at once; sources that are compiled already cost nothing.

        Raises:
            EngineError: a shader does not compile; has the compiler's message, line and source.
        """
        ...

    async def wait_for_pipelines(self) -> None:
        """Wait until all optimized pipelines are compiled, so that fallback kernels are no longer used
        (`kernels.ir.fallback`).
        """
        ...

    def record(self, commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        """Record a list of commands for `submit`; one with slots needs `bind` first. Return the recording's number.

        Args:
            repeated: ranges of commands that run several times; their `scaled` are indices of the run's numbers.
        """
        ...

    def bind(self, recording: int, buffers: Sequence[int]) -> int:
        """Bind the buffers of these numbers to the slots of a recording; return the number of the bound recording."""
        ...

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        """Write, run the recording in one pass and one submit, and read back.

        Args:
            numbers: the run's numbers, which `Bound.scaled` indexes.

        Returns:
            The bytes of each slice, in the order of `reads`.

        Raises:
            EngineError: a validation error or an internal error. DeviceLost: the device was lost.
        """
        ...

    async def measure(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> Measured:
        """Submit, and measure the time of each dispatch. The run as a whole is slower than with `submit`."""
        ...

    def drop(self, recording: int) -> None:
        """Release a recording."""
        ...

    def close(self) -> None:
        """Free all buffers and release the device."""
        ...
