"""WebGPU through Pyodide's foreign function interface. Other uses of `js` are in `javascript.py`.

Operations that need many WebGPU calls are one call of web/gpu/device.js: buffers, recordings, submits, measurements.
Source: WebGPU specification; Pyodide documentation, `pyodide.ffi`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count, repeat
from typing import Any

import js
from pyodide.ffi import JsException, can_run_sync, create_proxy, jsnull, run_sync, to_js

from pyruntime.device.base import AdapterInfo, Bound, Ledger, Measured, Raw, Read, Repeated, Slice, Write
from pyruntime.device.execution.executable import Replay
from pyruntime.device.webgpu.adapter import find_adapter, kind_of, matrix_unit, subgroup_size
from pyruntime.device.webgpu.foreign import copy_foreign
from pyruntime.device.webgpu.javascript import (
    JsBytes,
    JsObject,
    Watch,
    fetch_bytes,
    in_python,
    js_data,
    js_object,
    read_bytes,
    web_modules,
)
from pyruntime.device.webgpu.pipelines import Pipelines
from pyruntime.device.webgpu.replaying import described, written
from pyruntime.errors import DeviceLost, EngineError, EPFail, OutOfMemory
from pyruntime.kernels import Limits, Target
from pyruntime.ops.interpreter import current
from pyruntime.target import SUBGROUP_MATRIX

__all__ = [
    "JsBytes",
    "WebGpuDevice",
    "adopt_device",
    "can_run_sync",
    "fetch_bytes",
    "in_python",
    "open_device",
    "read_bytes",
    "run_sync",
]

_FEATURES = ("subgroups", "shader-f16", "timestamp-query", SUBGROUP_MATRIX)
_LANGUAGE_FEATURES = ("packed_4x8_integer_dot_product",)  # optional features of WGSL
_numbers = count(1)
"""Numbers of buffers and recordings, unique over all devices: JavaScript may still refer to lost ones."""

_LOSS_TELLS = (0.0, 0.01, 0.05, 0.2)
"""Seconds to wait, in turn, for `device.lost` after a failed call."""


async def open_device() -> WebGpuDevice:
    """Open a device with all limits and useful features of its adapter.

    Raises:
        EPFail: no WebGPU, no adapter or no device, or the page's policy forbids to run web/gpu/device.js.
    """
    adapter = await find_adapter()
    web = web_modules()
    limits = {name: getattr(adapter.limits, name) for name in Limits.names.values()}
    features = [f for f in _FEATURES if adapter.features.has(f)]
    try:
        device = await adapter.requestDevice(js_object({"requiredLimits": limits, "requiredFeatures": features}))
    except JsException as error:
        raise EPFail(f"the adapter refused a device: {error.message}") from None
    return WebGpuDevice(adapter.info, device, features, web)


def adopt_device(device: JsObject) -> WebGpuDevice:
    """Wrap a GPUDevice that the page opened, with the limits that the page requested. The page remains its owner."""
    features = [f for f in _FEATURES if device.features.has(f)]
    return WebGpuDevice(getattr(device, "adapterInfo", None), device, features, web_modules())


class WebGpuDevice:
    """A `Device` on a GPUDevice of the browser."""

    def __init__(self, info: JsObject, device: JsObject, features: Sequence[str], web: JsObject) -> None:
        said = (str(getattr(info, k, "") or "") for k in ("vendor", "architecture", "device", "description"))
        vendor, architecture, name, description = said
        fallback = bool(getattr(info, "isFallbackAdapter", False))
        self.info = AdapterInfo(vendor, architecture, name, description, fallback)
        limits = {name: int(getattr(device.limits, js_name)) for name, js_name in Limits.names.items()}
        language = getattr(getattr(js.navigator, "gpu", None), "wgslLanguageFeatures", None)
        spoken = [f for f in _LANGUAGE_FEATURES if language is not None and language.has(f)]
        units = matrix_unit(info, language) if SUBGROUP_MATRIX in features else []
        known = frozenset([*features, *spoken, *subgroup_size(info), *units, *kind_of(self.info)])
        self.target = Target(Limits(**limits), known, vendor.lower())
        self.ledger = Ledger(staging=lambda: int(web.totalHeldBytes(device)), memory=float(web.memoryBytes()))
        self.gpu_device, self.turn = device, None
        self.lost: str | None = None
        self._web = web
        self._buffers: dict[int, JsObject] = {}
        self._pipelines = Pipelines(device, web, self.ledger, self._failed)
        self._recordings: dict[int, JsObject] = {}
        self._unchecked: dict[int, list[JsObject]] = {}
        self._watch = create_proxy(self._on_lost)
        device.lost.then(self._watch)
        self._errors = create_proxy(self._on_uncaptured)
        device.onuncapturederror = self._errors

    def _on_lost(self, info: JsObject) -> None:
        self.lost = self.lost or f"{info.reason}: {info.message}"
        self.gpu_device.onuncapturederror = None
        self._errors.destroy()
        self._watch.destroy()

    def _on_uncaptured(self, event: JsObject) -> None:
        """Lose the device after an error outside of any error scope, such as a refused write: memory may have wrong
        contents.
        """
        event.preventDefault()
        if self.lost is None:
            self.lost = f"given up after an error outside of any run: {event.error.message}"
        self.gpu_device.destroy()

    def _check(self) -> None:
        if self.lost is not None:
            raise self._gone()

    def _gone(self) -> DeviceLost:
        return DeviceLost(
            f"the GPU device was lost ({self.lost}), and the tensors on it; run the models that made them again"
        )

    async def _failed(self, what: str, error: BaseException | JsObject) -> EngineError:
        """Return the exception for a failed call: DeviceLost if the device was lost, which the browser reports a moment
        later.
        """
        for seconds in _LOSS_TELLS:
            if self.lost is not None:
                return self._gone()
            await asyncio.sleep(seconds)
        return EngineError(f"{what}: {getattr(error, 'message', error)}")

    @property
    def replays(self) -> int:
        """See `Device.replays`."""
        return int(self._web.activity.replays)

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        """See `Device.allocate`."""
        self._check()
        if not sizes:
            return []
        held = self.ledger.total
        made: list[int] = []
        try:
            given = self._web.allocate(self.gpu_device, to_js(list(sizes)), label)
            made += map(self._number, given.buffers, sizes, repeat(label))
            refused = await given.refused
        except JsException as thrown:
            self.free(made)
            raise await self._failed(
                f"the device could not allocate {sum(sizes):,} bytes for {label}", thrown
            ) from None
        except BaseException:
            self.free(made)
            raise
        if refused:
            self.free(made)
            raise OutOfMemory(
                f"the device refused {sum(sizes):,} bytes for {label} ({held:,} bytes were in use): "
                f"{refused}; use smaller inputs, release other sessions, or the CPUExecutionProvider"
            )
        return made

    def allocate_now(self, size: int, label: str) -> int:
        """Allocate a buffer without awaiting. A refusal is reported as an uncaptured error, which loses the device."""
        self._check()
        return self._number(self._web.bufferOf(self.gpu_device, size, label), size, label)

    def _number(self, buffer: JsObject, size: int, label: str) -> int:
        """Register a buffer of `size` bytes; return its number."""
        number = next(_numbers)
        self._buffers[number] = buffer
        self.ledger.add(number, size, label)
        return number

    def free(self, buffers: Sequence[int]) -> None:
        """See `Device.free`."""
        known = [number for number in buffers if self.ledger.remove(number)]
        if known:
            self._web.destroy(self.gpu_device, to_js([self._buffers.pop(number) for number in known]))

    def gpu_buffer(self, number: int) -> JsObject:
        """Return the GPUBuffer of this number.

        Raises:
            DeviceLost: the device was lost, and the buffer with it.
        """
        self._check()
        return self._buffers[number]

    def write(self, target: Slice, data: Raw, offset: int = 0) -> None:
        """See `Device.write`."""
        self._check()
        try:
            self._web.uploadNow(self.gpu_device, js_object(self._write(Write(target, data, offset))))
        except JsException as error:
            raise EngineError(f"the GPU refused an upload: {error.message}") from None

    async def upload(self, writes: Sequence[Write]) -> None:
        """See `Device.upload`."""
        self._check()
        proxies: list[JsObject] = []
        try:
            await self._web.upload(self.gpu_device, js_object([self._write(w, proxies) for w in writes]))
        except JsException as error:
            raise await self._failed("the GPU refused an upload", error) from None
        finally:
            for proxy in proxies:
                proxy.destroy()

    def _write(self, write: Write, proxies: list[JsObject] | None = None) -> dict[str, Any]:
        """Return a `Write` of web/gpu/staging.js. With `proxies`, large Python buffers are not copied (`js_data`)."""
        data, offset = js_data(write.data, write.offset, write.target.nbytes, proxies)
        target = write.target
        buffer = self._buffers[target.buffer]
        return {"buffer": buffer, "offset": target.offset, "data": data, "dataOffset": offset, "nbytes": target.nbytes}

    def copy(self, pairs: Sequence[tuple[Slice, Slice]]) -> None:
        """See `Device.copy`."""
        self._check()
        encoder = self.gpu_device.createCommandEncoder()
        for source, target in pairs:
            buffers = self._buffers[source.buffer], source.offset, self._buffers[target.buffer], target.offset
            encoder.copyBufferToBuffer(*buffers, (source.nbytes + 3) & ~3)
        self.gpu_device.queue.submit(to_js([encoder.finish()]))

    async def copy_from(self, buffer: JsObject, number: int, nbytes: int, what: str) -> None:
        """Copy the first bytes of the page's GPUBuffer into buffer `number`, after everything submitted so far.

        Raises:
            InvalidArgument: the GPUBuffer is too small, of another device, or lacks COPY_SRC; begins with `what`.
        """
        self._check()
        complaint = f"{what}: the GPUBuffer cannot be read"
        await copy_foreign(self.gpu_device, buffer, buffer, self._buffers[number], nbytes, complaint)

    async def copy_to(self, number: int, buffer: JsObject, nbytes: int, what: str) -> None:
        """Copy the first bytes of buffer `number` into the page's GPUBuffer, after everything submitted so far.

        Raises:
            InvalidArgument: the GPUBuffer is too small, of another device, or lacks COPY_DST; begins with `what`.
        """
        self._check()
        complaint = f"{what}: the GPUBuffer cannot be written"
        await copy_foreign(self.gpu_device, buffer, self._buffers[number], buffer, nbytes, complaint)

    def ask(self, source: str) -> None:
        """See `Device.ask`."""
        if self.lost is None:
            self._pipelines.ask(source)

    async def compile(self, sources: Sequence[str]) -> None:
        """See `Device.compile`."""
        self._check()
        await self._pipelines.compile(sources)

    async def wait_for_pipelines(self) -> None:
        """See `Device.wait_for_pipelines`."""
        await self._web.whenOptimized(self.gpu_device)

    def record(self, commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        """See `Device.record`."""
        self._check()
        try:
            made = self._web.record(self.gpu_device, *self._written(commands, repeated))
        except JsException as error:
            raise EngineError(f"the GPU could not bind the model's buffers: {error.message}") from None
        return self._recorded(made, [made.refused])

    def bind(self, recording: int, buffers: Sequence[int]) -> int:
        """See `Device.bind`."""
        self._check()
        try:
            made = self._web.bind(self.gpu_device, self._recordings[recording], self._js_buffers(buffers))
        except JsException as error:
            raise EngineError(f"the GPU could not bind the run's buffers: {error.message}") from None
        return self._recorded(made, [*self._unchecked.pop(recording, ()), made.refused])

    def _recorded(self, made: JsObject, unchecked: list[JsObject]) -> int:
        number = next(_numbers)
        self._recordings[number], self._unchecked[number] = made.commands, unchecked
        return number

    def _written(self, commands: Sequence[Bound], repeated: Sequence[Repeated]) -> tuple[str, JsObject, JsObject]:
        """Return the arguments of `record` of web/gpu/recording.js: the commands as JSON, their pipelines, their
        buffers.
        """
        made = written(commands, repeated)
        pipelines = to_js([self._pipelines[source] for source in made.sources])
        return made.text, pipelines, self._js_buffers(made.buffers)

    def _js_buffers(self, numbers: Sequence[int]) -> JsObject:
        return to_js([self._buffers[number] for number in numbers])

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        """See `Device.submit`."""
        self._check()
        proxies: list[JsObject] = []
        commands = self._recordings[recording]  # while this run waits, other sets of buffers may take its place
        uploads = [self._write(w, proxies) for w in writes]
        sources = [
            {"buffer": self._buffers[r.source.buffer], "offset": r.source.offset, "nbytes": r.source.nbytes}
            for r in reads
        ]
        try:
            for scope in self._unchecked.pop(recording, ()):
                if refused := await scope:
                    raise EngineError(f"the model's buffers could not be bound: {refused}")
            self._check()
            given = js_object(uploads), js_object(sources), to_js(list(numbers))
            with Watch(current().progress) as watch:
                answers = await self._web.play(self.gpu_device, commands, *given, watch)
        except (JsException, EngineError) as error:
            raise await self._failed("the GPU could not run the model", error) from None
        finally:
            for proxy in proxies:
                proxy.destroy()
        return [JsBytes(a) for a in answers]

    async def measure(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> Measured:
        """See `Device.measure`."""
        self._check()
        commands = self._recordings[recording]
        await self.upload(writes)
        has_queries = "timestamp-query" in self.target.features
        try:
            await self.wait_for_pipelines()
            timed = await self._web.timed(self.gpu_device, commands, to_js(list(numbers)), has_queries)
        except JsException as error:
            raise await self._failed("the GPU could not run the model", error) from None
        flat = [round(ns) for ns in timed.to_py()]
        spans, clock = list(zip(flat[::2], flat[1::2], strict=True)), "gpu" if has_queries else "host"
        empty = self.record([])
        try:
            return Measured(await self.submit(empty, [], reads), spans, clock)
        finally:
            self.drop(empty)

    def replay_object(self, replay: Replay, sizes: dict[str, Any] | None, params: bytes) -> JsObject:
        """Return a run as an object for `run` of web/gpu/replay.js, which repeats it without Python.

        Args:
            sizes: the fields of `Sizes` of web/gpu/sizes.js except `buffer` and `params`; None for a plan without
                dynamic sizes.
            params: the plan's parameters.
        """
        made = described(replay, sizes)
        commands = self._recordings[replay.recording]
        buffers = self._js_buffers(made.buffers)
        return self._web.described(self.gpu_device, commands, made.text, buffers, to_js(params) if sizes else jsnull)

    def drop(self, recording: int) -> None:
        """See `Device.drop`."""
        self._recordings.pop(recording, None)
        self._unchecked.pop(recording, None)

    def close(self) -> None:
        """See `Device.close`."""
        self.free(list(self._buffers))
        self._recordings.clear()
        self._unchecked.clear()
        self._pipelines.clear()
        self.gpu_device.destroy()
        if self.lost is None:
            self.lost = "destroyed: closed here"
