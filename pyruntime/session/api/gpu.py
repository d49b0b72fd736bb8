"""The GPU itself: its device, buffers of OrtValues, custom kernels on them.

y = OrtValue.ortvalue_from_shape_and_type([n], np.float32, "webgpu")
gpu.run(WGSL, [x, y], workgroups=(n // 64, 1, 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.compiler.memory import round_up
from pyruntime.device.base import Bound, Slice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import BindingError
from pyruntime.kernels.wgsl.module import CUSTOM
from pyruntime.session.api.ortvalue import OrtValue
from pyruntime.session.environment import adapter, wait_for
from pyruntime.session.environment import device as open_device

__all__ = ["Gpu", "gpu"]


class Gpu:
    """The device that all sessions share."""

    @property
    def device(self) -> Any:
        """The GPUDevice of JavaScript, or of the wgpu-py API under CPython.

        Raises:
            EPFail: there is no WebGPU here.
        """
        return wait_for(self.open(), "await pyruntime.gpu.open()")

    async def open(self) -> Any:
        """Awaitable `device`."""
        return (await open_device()).gpu_device

    @property
    def info(self) -> dict[str, str] | None:
        """Vendor, architecture, device and description of the adapter; None where there is no GPU."""
        return wait_for(adapter(), "await pyruntime.session.adapter()")

    def buffer(self, value: OrtValue) -> Any:
        """Return the GPUBuffer of a value on the GPU, valid as long as the value lives; raw_data padded to whole words.

        Raises:
            BindingError: the value is on the host.
        """
        tensor = _tensor(value)
        if tensor.reserved is not None or tensor.shared:
            wait_for(tensor.materialize(), "await pyruntime.gpu.run_async(...)")
        return tensor.device.gpu_buffer(tensor.buffer)  # type: ignore[attr-defined]

    def run(
        self, wgsl: str, values: Sequence[OrtValue], workgroups: Sequence[int], params: bytes | None = None
    ) -> None:
        """Run a compute shader, entry point `main`, on values on the GPU; they are bound in order.

        Args:
            wgsl: with `@group(0) @binding(i) var<storage, read_write>` for each value, or `read` for those that it does
                not write, and, after them, one `var<uniform>` where there are `params`.
            workgroups: up to three numbers.

        Raises:
            EngineError: the shader does not compile, with line, caret and source; or the GPU refuses it.
        """
        wait_for(self.run_async(wgsl, values, workgroups, params), "await pyruntime.gpu.run_async(...)")

    async def run_async(
        self, wgsl: str, values: Sequence[OrtValue], workgroups: Sequence[int], params: bytes | None = None
    ) -> None:
        """Awaitable `run`."""
        device = await open_device()
        wgsl = f"{wgsl}\n{CUSTOM}"
        for value in values:
            await _tensor(value).materialize()
        slices = tuple(_tensor(v).slice for v in values)
        x, y, z = (*workgroups, 1, 1)[:3]
        uniform: Slice | None = None
        await device.compile([wgsl])
        try:
            if params is not None:
                (number,) = await device.allocate([round_up(len(params))], "params")
                uniform = Slice(number, 0, -(-len(params) // 16) * 16)
                device.write(uniform, params + bytes(uniform.nbytes - len(params)))
            recording = device.record([Bound(wgsl, slices, uniform, (x, y, z), "gpu.run")])
            try:
                await device.submit(recording, [], [])
            finally:
                device.drop(recording)
        finally:
            if uniform is not None:
                device.free([uniform.buffer])


def _tensor(value: OrtValue) -> DeviceTensor:
    tensor = value.current()
    if not isinstance(tensor, DeviceTensor):
        raise BindingError("expected a value on the GPU; make one with OrtValue.ortvalue_from_numpy(array, 'webgpu')")
    return tensor


gpu = Gpu()
