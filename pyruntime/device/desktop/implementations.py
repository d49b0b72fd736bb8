"""wgpu-native and Dawn through the API of wgpu-py. Everything that differs between the two is in this module.

|                     | `wgpu`: wgpu-native, naga                    | `wgpudawn`: Dawn, Tint                  |
|---------------------|----------------------------------------------|-----------------------------------------|
| `enable subgroups;` | refused, though subgroups work without it    | required                                |
| feature             | `subgroup`                                   | `subgroups`                             |
| refused submit      | ends the process: `DesktopDevice` checks first | an exception                            |
| lost device         | seen when the next command is encoded        | a promise                               |
| pipelines, threads  | safe                                         | with `implicit-device-synchronization`  |
| checks in kernels   | off for generated ones (decision 20)         | on                                      |
| timestamps          | exact                                        | rounded, unless a toggle is set               |
| subgroup size       | measured by a kernel                         | reported by the adapter                     |
| subgroup matrices   | none                                         | with the toggle `allow_unsafe_apis`     |
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

import numpy as np

from pyruntime.errors import EPFail
from pyruntime.target import SUBGROUP_MATRIX

__all__ = ["VARIABLE", "Commands", "Dawn", "GpuObject", "Implementation", "installed", "is_off"]

GpuObject: TypeAlias = Any
"""An object of the wgpu-py API."""

VARIABLE = "PYRUNTIME_WEBGPU"
"""Environment variable: `wgpu` or `dawn` where both are installed, `off` for neither."""

_LOOK_S = 0.25
"""Seconds between checks of a run's time limit and termination while it waits for the GPU."""

_poller, _lost_promise = attrgetter("_poller"), attrgetter("_lost_promise")
_state, _thread_event = attrgetter("_state"), attrgetter("_thread_event")
"""Private attributes of the packages, which have no public equivalent; pyproject.toml restricts the versions."""

_ENABLE_SUBGROUPS = re.compile(r"^enable subgroups;$", re.M)


class Implementation:
    """wgpu-native; base class with what both implementations share."""

    package: ClassVar[str] = "wgpu"
    features: ClassVar[dict[str, str]] = {
        "subgroup": "subgroups",
        "shader-f16": "shader-f16",
        "timestamp-query": "timestamp-query",
    }
    """Features to request: the implementation's name to WebGPU's."""

    _backend: ClassVar[str] = "wgpu.backends.wgpu_native"

    def __init__(self) -> None:
        self.api: Any = import_module(self.package)
        self._internal: Any = import_module(f"{self._backend}._api")
        ffi: Any = import_module(f"{self._backend}._ffi")
        self._lib, self._null = ffi.lib, ffi.ffi.NULL
        own = (self.api.GPUError, self.api.GPUPipelineError)
        self.errors: tuple[type[Exception], ...] = (*own, RuntimeError, ValueError)
        with suppress(RuntimeError):  # the package is in use already, with other settings
            self._set_up(import_module(f"{self._backend}.extras"))

    def _set_up(self, extras: Any) -> None:
        extras.set_instance_extras(backends=["Primary"])  # without OpenGL, which lists Vulkan's adapters again

    def adapters(self) -> list[GpuObject]:
        """Return the GPUAdapters of this machine; each can open one device."""
        return list(self.api.gpu.enumerate_adapters_sync())

    def request_device(self, adapter: GpuObject, limits: dict[str, int]) -> GpuObject:
        """Open a device with these limits and the useful features that its adapter has.

        Raises:
            RuntimeError: the adapter refuses.
        """
        wanted = sorted(f for f in self._requested() if f in adapter.features)
        return adapter.request_device_sync(required_features=wanted, required_limits=limits)

    def _requested(self) -> Iterable[str]:
        return self.features

    def features_of(self, device: GpuObject) -> frozenset[str]:
        """Return the device's features by their WebGPU names."""
        return frozenset(name for own, name in self.features.items() if own in device.features)

    def subgroup_sizes(self, adapter: GpuObject) -> tuple[int, int]:
        """Return the smallest and the largest subgroup size; zeros where the adapter does not report them."""
        return 0, 0

    def matrices(self, adapter: GpuObject) -> Iterable[tuple[str, str, int, int, int]]:
        """Return the configurations of subgroup matrices: component type, result component type, M, N, K."""
        return ()

    def source(self, wgsl: str) -> str:
        """Return WGSL in this compiler's dialect, with the same line numbers."""
        return _ENABLE_SUBGROUPS.sub("", wgsl)

    def module(self, device: GpuObject, wgsl: str, trusted: bool) -> GpuObject:
        """Compile a shader module. If `trusted` (all indices are in range), omit bounds checks and loop guards.

        Raises:
            Exception: an exception of the package, with the compiler's message.
        """
        if not trusted:
            return device.create_shader_module(code=self.source(wgsl))
        make, internal = self._internal.new_struct_p, self._internal
        source = make("WGPUShaderSourceWGSL *", code=internal.to_c_string_view(self.source(wgsl)))
        source[0].chain.next = self._null
        source[0].chain.sType = self._lib.WGPUSType_ShaderSourceWGSL
        chain = internal.ffi.cast("WGPUChainedStruct *", source)
        descriptor = make("WGPUShaderModuleDescriptor *", nextInChain=chain, label=internal.to_c_string_view(""))
        made = internal.libf.wgpuDeviceCreateShaderModuleTrusted(
            device._internal, descriptor, self._lib.WGPUShaderRuntimeChecks_None
        )
        return internal.GPUShaderModule("", made, device)

    def why_gone(self, device: GpuObject) -> str | None:
        """Return why a device was lost, as far as that is known without a call to the device; None while it works."""
        return "destroyed: GPUDevice.destroy was called" if _poller(device) is None else None

    def wait(self, promise: GpuObject, check: Callable[[], None]) -> None:
        """Wait for a promise without the interpreter's lock; call `check`, which may raise, at intervals."""
        while not _thread_event(promise).wait(_LOOK_S):
            check()
        promise.sync_wait()

    def read(
        self, buffer: GpuObject, ranges: Sequence[tuple[int, int]], check: Callable[[], None] = lambda: None
    ) -> list[memoryview]:
        """Wait for everything submitted, then copy ranges (offset, bytes) of a staging buffer to the host.

        Args:
            ranges: in ascending order. check: see `wait`.
        """
        end = -(-sum(ranges[-1]) // 8) * 8
        self.wait(buffer.map_async("READ_NOSYNC", 0, end), check)
        mapped: Any = np.frombuffer(buffer.read_mapped(0, end, copy=False), np.uint8)
        made = [memoryview(mapped[offset : offset + nbytes].copy()) for offset, nbytes in ranges]
        del mapped
        buffer.unmap()
        return made

    def encode(
        self,
        encoder: GpuObject,
        commands: Iterable[tuple[GpuObject, GpuObject, tuple[int, int, int]]],
        timestamps: dict[str, Any] | None = None,
        common: GpuObject | None = None,
    ) -> None:
        """Encode dispatches in one compute pass of an encoder of the Python API; see `Commands.dispatch`."""
        encoding = encoder.begin_compute_pass(timestamp_writes=timestamps)
        _dispatch(self._lib, self._null, encoding._internal, commands, common)
        encoding.end()

    def commands(self, device: GpuObject) -> Commands:
        """Return an encoder for one submit."""
        return Commands(self._lib, self._internal, device)


class Commands:
    """An encoder for one submit. It calls the C functions, which takes a sixth of the time of the Python API.

    Functions of the package's `libf` raise the errors that are known by then; those of dispatches and copies appear in
    `submit`.
    """

    def __init__(self, lib: Any, internal: Any, device: GpuObject) -> None:
        self._lib, self._checked, self._ffi = lib, internal.libf, internal.ffi
        self._queue = device.queue._internal
        self._encoder: Any = None
        self._encoder = self._checked.wgpuDeviceCreateCommandEncoder(device._internal, self._ffi.NULL)

    def __del__(self) -> None:
        if self._encoder is not None:
            self._lib.wgpuCommandEncoderRelease(self._encoder)

    def dispatch(
        self, commands: Iterable[tuple[GpuObject, GpuObject, tuple[int, int, int]]], common: GpuObject | None = None
    ) -> None:
        """Encode dispatches (pipeline, bind group 0, workgroups) in one compute pass, with `common` as bind group 1."""
        encoding = self._checked.wgpuCommandEncoderBeginComputePass(self._encoder, self._ffi.NULL)
        try:
            _dispatch(self._lib, self._ffi.NULL, encoding, commands, common)
            self._checked.wgpuComputePassEncoderEnd(encoding)
        finally:
            self._lib.wgpuComputePassEncoderRelease(encoding)

    def copy_buffer_to_buffer(
        self, source: GpuObject, source_offset: int, target: GpuObject, target_offset: int, nbytes: int
    ) -> None:
        """Encode a copy."""
        places = source._internal, source_offset, target._internal, target_offset
        self._lib.wgpuCommandEncoderCopyBufferToBuffer(self._encoder, *places, nbytes)

    def clear_buffer(self, buffer: GpuObject, offset: int, nbytes: int) -> None:
        """Encode zeros."""
        self._lib.wgpuCommandEncoderClearBuffer(self._encoder, buffer._internal, offset, nbytes)

    def submit(self) -> None:
        """Queue what was encoded. Raises an exception of the package: a command is invalid, or the device is lost."""
        made = self._checked.wgpuCommandEncoderFinish(self._encoder, self._ffi.NULL)
        try:
            self._checked.wgpuQueueSubmit(self._queue, 1, self._ffi.new("WGPUCommandBuffer[1]", [made]))
        finally:
            self._lib.wgpuCommandBufferRelease(made)


def _dispatch(
    lib: Any,
    null: Any,
    encoding: Any,
    commands: Iterable[tuple[GpuObject, GpuObject, tuple[int, int, int]]],
    common: GpuObject | None,
) -> None:
    """Encode dispatches in a compute pass of the C API."""
    set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
    dispatch, current = lib.wgpuComputePassEncoderDispatchWorkgroups, None
    if common is not None:
        set_bind_group(encoding, 1, common._internal, 0, null)
    for pipeline, group, (x, y, z) in commands:
        if pipeline is not current:
            set_pipeline(encoding, pipeline._internal)
            current = pipeline
        set_bind_group(encoding, 0, group._internal, 0, null)
        dispatch(encoding, x, y, z)


class Dawn(Implementation):
    """Dawn."""

    package = "wgpudawn"
    features: ClassVar[dict[str, str]] = {
        name: name for name in ("subgroups", "shader-f16", "timestamp-query", SUBGROUP_MATRIX)
    }
    _backend = "wgpudawn.backends.dawn"

    def _set_up(self, extras: Any) -> None:
        extras.set_instance_extras(disable_toggles=["timestamp_quantization"])

    def _requested(self) -> Iterable[str]:
        return (*self.features, "implicit-device-synchronization")

    def subgroup_sizes(self, adapter: GpuObject) -> tuple[int, int]:
        info = self._internal.ffi.new("WGPUAdapterInfo *")
        self._lib.wgpuAdapterGetInfo(adapter._internal, info)
        sizes = int(info.subgroupMinSize), int(info.subgroupMaxSize)
        self._lib.wgpuAdapterInfoFreeMembers(info[0])
        return sizes

    def matrices(self, adapter: GpuObject) -> Iterable[tuple[str, str, int, int, int]]:
        told = import_module(f"{self._backend}.extras").get_adapter_properties(adapter)
        keys = ("component_type", "result_component_type", "m", "n", "k")
        return [tuple(config[key] for key in keys) for config in told.get("subgroup_matrix_configs", ())]

    def source(self, wgsl: str) -> str:
        return wgsl

    def module(self, device: GpuObject, wgsl: str, trusted: bool) -> GpuObject:
        return device.create_shader_module(code=wgsl)

    def why_gone(self, device: GpuObject) -> str | None:
        return None if _state(_lost_promise(device)) == "pending" else "the driver or GPUDevice.destroy ended it"

    def wait(self, promise: GpuObject, check: Callable[[], None]) -> None:
        promise.sync_wait()


_KINDS: dict[str, type[Implementation]] = {"dawn": Dawn, "wgpu": Implementation}
"""In order of preference."""

_loaded: dict[str, Implementation] = {}


def is_off() -> bool:
    """Whether `PYRUNTIME_WEBGPU` says that no implementation is to be used."""
    return os.environ.get(VARIABLE, "").lower() == "off"


def installed() -> list[Implementation]:
    """Return the implementations to use, in order of preference; none where `PYRUNTIME_WEBGPU` is `off`.

    Raises:
        EPFail: `PYRUNTIME_WEBGPU` has another value, or names an implementation that is not installed.
    """
    if is_off():
        return []
    wanted = os.environ.get(VARIABLE, "").lower()
    if wanted and wanted not in _KINDS:
        raise EPFail(f"{VARIABLE} is {wanted!r}; expected 'wgpu', 'dawn' or 'off'")
    kinds = {n: k for n, k in _KINDS.items() if wanted in ("", n) and find_spec(k.package) is not None}
    if wanted and not kinds:
        package = _KINDS[wanted].package
        raise EPFail(f"{VARIABLE} is {wanted!r} and the package {package} is not installed: pip install {package}")
    for name, kind in kinds.items():
        if name not in _loaded:
            _loaded[name] = kind()
    return [_loaded[name] for name in kinds]
