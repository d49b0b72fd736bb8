"""Software adapters of this machine: Mesa's lavapipe through wgpu, and Chromium's SwiftShader through Dawn."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyruntime.compiler.repeated import Repeated
from pyruntime.device.base import Bound, Device, Read, Slice, Write
from pyruntime.device.blocking import run_blocking
from pyruntime.device.desktop.adapters import adapters_of
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.device.desktop.implementations import Implementation, installed
from pyruntime.device.desktop.targets import LIMITS
from pyruntime.errors import EngineError, EPFail, OrtError
from pyruntime.kernels.wgsl.module import Module
from pyruntime.session import environment
from pyruntime.target import SOFTWARE_ADAPTER, Target
from pyruntime.target.named import read_target
from tests.kernel_runner import Buffer, KernelRunner, Step
from tools.devkit import chromium

__all__ = ["DesktopGpu", "desktop_device", "on_desktop", "on_target", "with_bindings"]

PACKAGES = {"wgpu": "wgpu", "dawn": "wgpudawn"}

MORE = {"apple-m": frozenset({"subgroups", "shader-f16"}), "nvidia": frozenset({"subgroups"})}
"""Features that such devices have and their profiles leave out."""

_held: dict[str, dict[Hashable, Device]] = {"wgpu": {}, "dawn": {}}
"""Devices between tests by implementation: others see none."""


@contextmanager
def on_desktop(implementation: str = "wgpu") -> Iterator[None]:
    """Sessions opened inside run on the software adapter; the test is skipped where there is none."""
    package = PACKAGES[implementation]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs the package {package}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYRUNTIME_WEBGPU", implementation)
        patch.setenv("PYRUNTIME_ADAPTER", "software")
        if implementation == "dawn":
            # Dawn refuses the lavapipe of Debian 12, and takes the driver that Chromium brings.
            driver = _swiftshader()
            if driver is None:
                pytest.skip("needs a Chromium with vk_swiftshader_icd.json next to its executable")
            for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
                patch.setenv(name, str(driver))
        held = _held[implementation]
        environment._held.update(held)
        try:
            run_blocking(environment.device())
        except EPFail as error:
            whose = "Debian's mesa-vulkan-drivers" if implementation == "wgpu" else "Chromium's"
            pytest.skip(f"needs a Vulkan driver, such as {whose}: {error}")
        try:
            yield
        finally:
            held.clear()
            held.update(environment._held)
            environment._held.clear()


@functools.cache
def _swiftshader() -> Path | None:
    """Return the file that describes Chromium's Vulkan driver to Vulkan's loader; None where there is none."""
    named = os.environ.get(chromium.VARIABLE) or (chromium.STAMP.read_text() if chromium.STAMP.is_file() else "")
    executable = Path(named) if named else chromium.installed()
    folders = [executable.resolve().parent, Path("/usr/lib/chromium")] if executable is not None else []
    return next((p for p in (folder / "vk_swiftshader_icd.json" for folder in folders) if p.is_file()), None)


class _Limited:
    """A GPUAdapter that offers the limits and features of a target, as far as it has them: its device has no others."""

    def __init__(self, found: Any, target: Target, more: frozenset[str]) -> None:
        self._found = found
        self.info = found.info
        self.limits = {
            theirs: min(getattr(target.limits, name), found.limits[theirs]) for name, theirs in LIMITS.items()
        }
        self.limits[LIMITS["storage_buffers"]] += 1  # of `EndedLoops`
        named = {own for own, name in Implementation.features.items() if name in target.features | more}
        self.features = named & set(found.features)

    def request_device_sync(self, **wanted: Any) -> Any:
        """Return a device with what the caller requests."""
        return self._found.request_device_sync(**wanted)


class _TargetDevice(DesktopDevice):
    """A device that refuses what takes too much workgroup memory, too: wgpu-native looks at all limits but this one."""

    async def compile(self, sources: Sequence[str]) -> None:
        """See `Device.compile`."""
        for source in sources:
            taken, most = Module.of(source).workgroup_bytes, self.target.limits.workgroup_bytes
            if taken > most:
                raise EngineError(
                    f"a kernel takes {taken:,} bytes of workgroup memory, the device has {most:,}:\n{source}"
                )
        await super().compile(sources)


@contextmanager
def on_target(name: str) -> Iterator[DesktopDevice]:
    """Sessions opened inside run on the software adapter as on a device of a profile, with the kernels of GPUs.

    The device has the limits and features of the profile and no others, as far as the adapter has them; what needs more
    is refused when it is made.
    """
    with on_desktop():
        target = read_target(name)
        (implementation,) = installed()
        adapter, found = next(pair for pair in adapters_of(implementation) if pair[0].kind == "software")
        limited: Any = _Limited(found, target, MORE.get(name, frozenset()))
        device = _TargetDevice(implementation, adapter, limited)
        own = device.target.features - {SOFTWARE_ADAPTER, "packed_4x8_integer_dot_product"}
        device.target = replace(device.target, features=own | target.features, vendor=target.vendor)
        before = environment._held.copy()
        environment._held.clear()
        environment._held[None] = device
        try:
            yield device
        finally:
            device.close()
            environment._held.clear()
            environment._held.update(before)


def desktop_device() -> DesktopDevice:
    """The device of sessions within `on_desktop`."""
    device = run_blocking(environment.device())
    assert isinstance(device, DesktopDevice)
    return device


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
