"""Where this Python runs: in a browser with a GPU, or under CPython; and waiting for coroutines there."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import numpy as np

from pyruntime.device.base import Device
from pyruntime.device.execution.concurrency import forget_frames
from pyruntime.errors import EPFail, InvalidArgument, OrtError, RuntimeException
from pyruntime.ir import DType
from pyruntime.kernels.selection.measurements import Knowledge
from pyruntime.session.attempts import Attempts
from pyruntime.session.log import logger

__all__ = [
    "CPU",
    "WEBGPU",
    "adapter",
    "adopt",
    "apart",
    "available_providers",
    "call_back",
    "device",
    "from_page",
    "in_browser",
    "learn",
    "opened",
    "preopen_device",
    "wait_for",
]

WEBGPU = "WebGpuExecutionProvider"
CPU = "CPUExecutionProvider"

in_browser = sys.platform == "emscripten"

T = TypeVar("T")

_held: list[Device] = []
_open_attempts = Attempts()
_open_tasks: set[asyncio.Task[Device]] = set()
"""Held here: the event loop has weak references alone."""


def available_providers() -> list[str]:
    """Execution providers of this environment, the preferred one first."""
    return [WEBGPU, CPU] if in_browser else [CPU]


async def device() -> Device:
    """Return the GPU device that all sessions share; opens it at the first call, and again after it was lost.

    Raises:
        EPFail: there is no WebGPU here.
    """
    if not in_browser:
        raise EPFail(f"{WEBGPU} needs a browser (Pyodide); under CPython use {CPU}")
    from pyruntime.device.webgpu import measurements
    from pyruntime.device.webgpu.pyodide import open_device

    async with _open_attempts.attempt():  # sessions that load at the same time get the same device
        held = opened()
        if held is None:
            held = await open_device()
            held.target = (await measurements.load(held.info)).of(held.target)
            _held[:] = [held]
        return held


def opened() -> Device | None:
    """Return the device where it is open and was not lost, else None."""
    return next((held for held in _held if held.lost is None), None)


async def preopen_device() -> None:
    """Begin to open the device, where there is none; `device` waits for it, and raises what failed."""
    if in_browser and opened() is None:
        task = asyncio.ensure_future(device())
        _open_tasks.add(task)
        task.add_done_callback(_opened)
        await asyncio.sleep(0)


def _opened(task: asyncio.Task[Device]) -> None:
    _open_tasks.discard(task)
    if not task.cancelled():
        task.exception()


async def learn(device: Device, known: Knowledge) -> None:
    """Have sessions made from now on choose kernels by this, in later visits of this browser too."""
    device.target = known.of(device.target)
    if in_browser:
        from pyruntime.device.webgpu import measurements

        await measurements.store(device.info, known)


async def adopt(gpu_device: Any) -> None:
    """Use this GPUDevice from now on; another one is opened when it is lost.

    Raises:
        InvalidArgument: sessions have another one already.
    """
    from pyruntime.device.webgpu.pyodide import adopt_device

    async with _open_attempts.attempt():
        held = opened()
        if held is not None:
            if held.gpu_device == gpu_device:
                return
            raise InvalidArgument("the GPU device is chosen already: set env.webgpu.device before the first session")
        _held[:] = [adopt_device(gpu_device)]


async def adapter() -> dict[str, str] | None:
    """Return vendor, architecture, device and description of the GPU adapter; None where there is none."""
    try:
        return (await device()).info.names
    except EPFail:
        return None


def from_page(value: Any, wanted: DType | None, name: str) -> Any:
    """Convert a JavaScript value that is fed (`device.webgpu.javascript.in_python`); others are unchanged."""
    if not in_browser or isinstance(value, np.ndarray | np.generic):
        return value
    from pyruntime.device.webgpu.pyodide import in_python

    return in_python(value, wanted, name)


def wait_for(work: Coroutine[Any, Any, T], awaitable: str) -> T:
    """Run a coroutine to its end, synchronously, and return its result.

    Args:
        awaitable: how to write the call with `await`, for the error.

    Raises:
        RuntimeException: this browser, or this call from JavaScript, cannot switch stacks.
    """
    __tracebackhide__ = True
    if in_browser:
        from pyruntime.device.webgpu.pyodide import can_run_sync, run_sync

        if not can_run_sync():
            work.close()
            raise RuntimeException(
                "a synchronous call cannot wait here: the browser has no WebAssembly stack switching (JSPI), or Python "
                f"was called synchronously from JavaScript; use `{awaitable}`"
            )
        # What the coroutine raises stays out of the promise that is waited for: Pyodide hands a rejected one to
        # sys.excepthook, and IPython then fails the cell, also where the caller catches the exception.
        outcome: list[tuple[T, None] | tuple[None, BaseException]] = []
        run_sync(_capture(work, outcome))
        value, error = outcome.pop()
        try:
            if error is not None:
                raise _short(error)
        finally:
            del error  # a traceback that leads to this frame, which holds its exception, would be a cycle
        return value  # type: ignore[return-value]
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeException(f"this call has to wait for something; use `{awaitable}`")


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; in a browser its exceptions hold nothing of it (`forget_frames`), as no debugger needs them."""
    try:
        return await work
    except BaseException as error:
        if in_browser:
            forget_frames(error)
        raise


async def _capture(work: Coroutine[Any, Any, T], outcome: list[tuple[T, None] | tuple[None, BaseException]]) -> None:
    """Append the result of `work`, or what it raised."""
    try:
        outcome.append((await apart(work), None))
    except BaseException as error:  # boundary: another coroutine raises it
        outcome.append((None, error))


def _short(error: BaseException) -> BaseException:
    """An error meant for the user begins at the call; with verbose logging it keeps its frames."""
    wanted = isinstance(error, OrtError) and not logger.isEnabledFor(logging.DEBUG)
    return error.with_traceback(None) if wanted else error


def call_back(work: Coroutine[Any, Any, Any], callback: Callable[[Any, Any, str], None], user_data: Any) -> Any:
    """Run `work` in the background where there is an event loop, else now; `callback(result, user_data, error)`."""

    async def watched() -> None:
        try:
            result = await work
        except Exception as error:  # boundary: told to the caller
            callback([], user_data, str(error))
        else:
            callback(result, user_data, "")

    try:
        return asyncio.get_running_loop().create_task(watched())
    except RuntimeError:
        return wait_for(watched(), "await session.run_async(...)")
