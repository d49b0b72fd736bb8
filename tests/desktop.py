"""The software adapter of this machine (Mesa's lavapipe), through `wgpu`: a device for native tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pyruntime.device.base import Bound, Device, Read, Slice, Write
from pyruntime.device.blocking import run_blocking
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.errors import EPFail, OrtError
from pyruntime.session import environment
from tests.kernel_runner import Buffer, KernelRunner, Step

__all__ = ["DesktopGpu", "desktop_device", "on_desktop"]

_held: dict[object, Device] = {}
"""Devices between tests: others see none."""


@contextmanager
def on_desktop() -> Iterator[None]:
    """Sessions opened inside run on the software adapter; the test is skipped where there is none."""
    if importlib.util.find_spec("wgpu") is None:
        pytest.skip("needs the package wgpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYRUNTIME_WEBGPU", "wgpu")
        patch.setenv("PYRUNTIME_ADAPTER", "software")
        environment._held.update(_held)
        try:
            run_blocking(environment.device())
        except EPFail as error:
            pytest.skip(f"needs a Vulkan driver, such as Debian's mesa-vulkan-drivers: {error}")
        try:
            yield
        finally:
            _held.clear()
            _held.update(environment._held)
            environment._held.clear()


def desktop_device() -> DesktopDevice:
    """The device of sessions within `on_desktop`."""
    device = run_blocking(environment.device())
    assert isinstance(device, DesktopDevice)
    return device


class DesktopGpu(KernelRunner):
    """Runs kernels on the device; within `on_desktop`."""

    def __init__(self) -> None:
        self.device = desktop_device()
        self.target = self.device.target

    def execute(self, buffers: Sequence[Buffer], steps: Sequence[Step], reads: Sequence[int]) -> list[bytes]:
        """See `KernelRunner.execute`."""
        try:
            return run_blocking(self._execute(buffers, steps, reads))
        except OrtError as error:
            raise AssertionError(str(error)) from error

    async def _execute(self, buffers: Sequence[Buffer], steps: Sequence[Step], reads: Sequence[int]) -> list[bytes]:
        device = self.device
        params = [step.params for step in steps if step.params is not None]
        made = await device.allocate([b.size for b in buffers] + [len(p) for p in params], "test")
        uniforms = iter(Slice(number, 0, len(p)) for number, p in zip(made[len(buffers) :], params, strict=True))
        places = [Slice(number, 0, b.size) for number, b in zip(made, buffers, strict=False)]
        writes = [
            Write(place, b.data + b"\xcd" * (b.size - len(b.data))) for place, b in zip(places, buffers, strict=True)
        ]
        writes += [Write(Slice(n, 0, len(p)), p) for n, p in zip(made[len(buffers) :], params, strict=True)]
        try:
            await device.compile([step.source for step in steps])
            bound = [
                Bound(
                    step.source,
                    tuple(places[i] for i in step.bound),
                    next(uniforms) if step.params is not None else None,
                    step.grid,
                )
                for step in steps
            ]
            recording = device.record(bound)
            answers = await device.submit(recording, writes, [Read(places[i]) for i in reads])
            device.drop(recording)
        finally:
            device.free(made)
        return [
            bytes(raw if isinstance(raw, bytes | memoryview) else raw.read(0, places[i].nbytes))
            for i, raw in zip(reads, answers, strict=True)
        ]
