"""wgpu-native and Dawn under the API of wgpu-py: all that differs between the two is in this module.

|                     | `wgpu`: wgpu-native, naga                    | `wgpudawn`: Dawn, Tint                  |
|---------------------|----------------------------------------------|-----------------------------------------|
| `enable subgroups;` | refused, though subgroups work without it    | required                                |
| feature             | `subgroup`                                   | `subgroups`                             |
| refused submit      | ends the process: `DesktopDevice` looks first | an exception                            |
| lost device         | seen when the next command is encoded        | a promise                               |
| pipelines, threads  | safe                                         | with `implicit-device-synchronization`  |
| checks in kernels   | off for generated ones (decision 20)         | on                                      |
| timestamps          | exact                                        | rounded, but for a toggle               |
| subgroup size       | measured by a kernel                         | told by the adapter                     |
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

__all__ = ["Dawn", "GpuObject", "Implementation", "installed"]

GpuObject: TypeAlias = Any
"""An object of the wgpu-py API."""

VARIABLE = "PYRUNTIME_WEBGPU"
"""Environment variable: `wgpu` or `dawn` where both are installed, `off` for neither."""

_LOOK_S = 0.25
"""Seconds between two looks at whether a run that waits for the GPU may go on."""

_poller, _lost_promise = attrgetter("_poller"), attrgetter("_lost_promise")
_state, _thread_event = attrgetter("_state"), attrgetter("_thread_event")
"""What the packages keep to themselves, and have no other way to say; pyproject.toml allows their versions."""

_ENABLE_SUBGROUPS = re.compile(r"^enable subgroups;$", re.M)


class Implementation:
    """wgpu-native, and what both have in common."""

    package: ClassVar[str] = "wgpu"
    features: ClassVar[dict[str, str]] = {
        "subgroup": "subgroups",
        "shader-f16": "shader-f16",
        "timestamp-query": "timestamp-query",
    }
    """Features to request, with their WebGPU names."""

    _backend: ClassVar[str] = "wgpu.backends.wgpu_native"

    def __init__(self) -> None:
        self.api: Any = import_module(self.package)
        self._internal: Any = import_module(f"{self._backend}._api")
        ffi: Any = import_module(f"{self._backend}._ffi")
        self._lib, self._null = ffi.lib, ffi.ffi.NULL
        own = (self.api.GPUError, self.api.GPUPipelineError)
        self.errors: tuple[type[Exception], ...] = (*own, RuntimeError, ValueError)
        with suppress(RuntimeError):  # another user of the package was first: its settings hold
            self._set_up(import_module(f"{self._backend}.extras"))

    def _set_up(self, extras: Any) -> None:
        extras.set_instance_extras(backends=["Primary"])  # OpenGL's adapters are those of Vulkan again, with less

    def adapters(self) -> list[GpuObject]:
        """Return the GPUAdapters of this machine; a device can be requested of each once."""
        return list(self.api.gpu.enumerate_adapters_sync())

    def request_device(self, adapter: GpuObject, limits: dict[str, int]) -> GpuObject:
        """Open a device with these limits and the useful features of its adapter.

        Raises:
            RuntimeError: the adapter gives none.
        """
        wanted = sorted(f for f in self._requested() if f in adapter.features)
        return adapter.request_device_sync(required_features=wanted, required_limits=limits)

    def _requested(self) -> Iterable[str]:
        return self.features

    def features_of(self, device: GpuObject) -> frozenset[str]:
        """Return the device's features by their WebGPU names."""
        return frozenset(name for own, name in self.features.items() if own in device.features)

    def subgroup_sizes(self, adapter: GpuObject) -> tuple[int, int]:
        """Return the least and the largest subgroup; zeros where the adapter does not say."""
        return 0, 0

    def matrices(self, adapter: GpuObject) -> Iterable[tuple[str, str, int, int, int]]:
        """Return the configurations of subgroup matrices: component type, result component type, M, N, K."""
        return ()

    def source(self, wgsl: str) -> str:
        """Return WGSL as this compiler takes it, line by line the same."""
        return _ENABLE_SUBGROUPS.sub("", wgsl)

    def module(self, device: GpuObject, wgsl: str, trusted: bool) -> GpuObject:
        """Compile a module. Without bounds checks and loop guards where it is `trusted`: every index is in range.

        Raises:
            Exception: of the package, with the compiler's message.
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
        """Return why a device no longer works, where that is known without using it."""
        return "destroyed: GPUDevice.destroy was called" if _poller(device) is None else None

    def wait(self, promise: GpuObject, check: Callable[[], None]) -> None:
        """Wait for a promise, without the interpreter's lock; `check` is called now and then, and may raise."""
        while not _thread_event(promise).wait(_LOOK_S):
            check()
        promise.sync_wait()

    def read(
        self, buffer: GpuObject, ranges: Sequence[tuple[int, int]], check: Callable[[], None] = lambda: None
    ) -> list[memoryview]:
        """Copy ranges (offset, bytes) of a staging buffer to the host, when all that was submitted is done.

        Args:
            ranges: in order. check: see `wait`.
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
    ) -> None:
        """Encode dispatches (pipeline, bind group, workgroups) in a pass, by the C functions: a third of the time.

        They report nothing, but `finish` of the encoder does.
        """
        encoding = encoder.begin_compute_pass(timestamp_writes=timestamps)
        lib, null, target, current = self._lib, self._null, encoding._internal, None
        set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        for pipeline, group, (x, y, z) in commands:
            if pipeline is not current:
                set_pipeline(target, pipeline._internal)
                current = pipeline
            set_bind_group(target, 0, group._internal, 0, null)
            dispatch(target, x, y, z)
        encoding.end()


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
"""The preferred one first."""

_loaded: dict[str, Implementation] = {}


def installed() -> list[Implementation]:
    """Return the implementations that may be used, the preferred one first; none where `PYRUNTIME_WEBGPU` is `off`.

    Raises:
        EPFail: `PYRUNTIME_WEBGPU` names another one, or one that is not installed.
    """
    wanted = os.environ.get(VARIABLE, "").lower()
    if wanted == "off":
        return []
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
