"""Devices that fail on purpose, and sessions on them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from pyruntime.compiler.repeated import Repeated
from pyruntime.device.base import Bound, Measured, Raw, Read, Slice, Write
from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import DeviceLost, EngineError, OutOfMemory
from pyruntime.kernels import Target
from pyruntime.session import providers
from pyruntime.session.environment import CPU, WEBGPU
from pyruntime.session.load import creation

__all__ = ["FaultyDevice", "on_device", "run_on"]


class FaultyDevice(NullDevice):
    """A NullDevice whose call number `fail_at` raises; `lost` makes that the loss of the device.

    Attributes:
        count: calls so far. failed: name of the call that raised. closed: whether it was closed.
    """

    def __init__(self, fail_at: int | None = None, lose: bool = False, target: Target | None = None) -> None:
        super().__init__(target)
        self.fail_at = fail_at
        self.lose = lose
        self.count = 0
        self.failed = ""
        self.closed = False

    def _step(self, name: str) -> None:
        if self.lost is not None:
            raise DeviceLost(f"the GPU device was lost ({self.lost})")
        self.count += 1
        if self.count - 1 == self.fail_at:
            self.failed = name
            if self.lose:
                self.lost = f"at {name}"
                raise DeviceLost(f"the GPU device was lost ({self.lost})")
            raise (OutOfMemory if name == "allocate" else EngineError)(f"injected at {name}")

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        self._step("allocate")
        return await super().allocate(sizes, label)

    def write(self, target: Slice, data: Raw, offset: int = 0) -> None:
        self._step("write")
        if not isinstance(data, bytes | memoryview):
            data.read(offset, target.nbytes)  # as a GPU would get it
        super().write(target, data, offset)

    def copy(self, pairs: Sequence[tuple[Slice, Slice]]) -> None:
        self._step("copy")
        super().copy(pairs)

    async def compile(self, sources: Sequence[str]) -> None:
        self._step("compile")
        await super().compile(sources)

    def record(self, commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        self._step("record")
        return super().record(commands, repeated)

    def bind(self, recording: int, buffers: Sequence[int]) -> int:
        self._step("bind")
        return super().bind(recording, buffers)

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        self._step("submit")
        return await super().submit(recording, writes, reads, numbers)

    async def measure(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> Measured:
        self._step("measure")
        return await super().measure(recording, writes, reads, numbers)

    def close(self) -> None:
        super().close()
        self.recordings.clear()
        self.closed = True


@contextmanager
def on_device(*devices: NullDevice | Exception) -> Iterator[list[NullDevice]]:
    """Sessions opened inside run on these devices: the next one whenever the last is lost.

    Yields:
        The devices opened so far.
    """
    remaining = list(devices)
    opened: list[NullDevice] = []

    async def device(replay: str = "auto") -> Any:
        if not opened or opened[-1].lost is not None:
            following = remaining.pop(0)
            if isinstance(following, Exception):
                raise following
            opened.append(following)
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creation, "device", device)
        patch.setattr(providers, "available_providers", lambda: [WEBGPU, CPU])
        yield opened


def run_on(device: NullDevice, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `main`, whose sessions are on `device`; nothing may be left there afterwards."""
    with on_device(device):
        asyncio.run(main())
        gc.collect()
        DeviceTensor.trim(device)
    assert device.ledger.total == 0
