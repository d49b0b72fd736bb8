"""The software adapter of this machine (Mesa's lavapipe), through `wgpu`: a device for native tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pyruntime.compiler.repeated import Repeated
from pyruntime.device.base import Bound, Device, Read, Slice, Write
from pyruntime.device.blocking import run_blocking
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.device.desktop.implementations import Implementation
from pyruntime.device.desktop.targets import LIMITS
from pyruntime.errors import EPFail, OrtError
from pyruntime.session import environment
from pyruntime.target import Limits
from tests.kernel_runner import Buffer, KernelRunner, Step

__all__ = ["DesktopGpu", "desktop_device", "on_desktop", "with_bindings", "with_portable_limits"]

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


@contextmanager
def with_portable_limits() -> Iterator[DesktopDevice]:
    """Within `on_desktop`, sessions run on a device that has WebGPU's guaranteed limits and enforces them."""
    held, request = dict(environment._held), Implementation.request_device
    portable = {theirs: getattr(Limits(), ours) for ours, theirs in LIMITS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Implementation, "request_device", lambda self, adapter, _: request(self, adapter, portable))
        environment._held.clear()
        device = desktop_device()
        try:
            assert device.target.limits == Limits()
            yield device
        finally:
            device.close()
            environment._held.clear()
            environment._held.update(held)


@contextmanager
def with_bindings(nbytes: int) -> Iterator[DesktopDevice]:
    """Within `on_desktop`, sessions are planned for eight bindings of `nbytes`, and buffers twice as large."""
    device = desktop_device()
    target, record = device.target, device.record

    def checked(commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        parts = [part for command in commands for part in command.storage]
        assert max((part.nbytes for part in parts), default=0) <= nbytes
        assert max((len(command.storage) for command in commands), default=0) <= 8
        return record(commands, repeated)

    limits = replace(target.limits, binding_bytes=nbytes, buffer_bytes=2 * nbytes, storage_buffers=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "target", replace(target, limits=limits))
        patch.setattr(device, "record", checked)
        yield device


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
