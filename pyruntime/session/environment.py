"""Where this Python runs: in a browser or under CPython, with a GPU or without; and waiting for coroutines there."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pyruntime.device.base import Device
from pyruntime.device.blocking import Turn, is_blocking, run_blocking
from pyruntime.device.execution.concurrency import forget_frames
from pyruntime.errors import EPFail, InvalidArgument, OrtError, RuntimeException
from pyruntime.ir import DType
from pyruntime.kernels.selection.measurements import Knowledge
from pyruntime.session.attempts import Attempts
from pyruntime.session.log import logger

if TYPE_CHECKING:
    from pyruntime.device.desktop.adapters import Adapter

__all__ = [
    "CPU",
    "WEBGPU",
    "adapter",
    "adapters",
    "adopt",
    "apart",
    "available_providers",
    "call_back",
    "device",
    "fits",
    "from_page",
    "in_browser",
    "learn",
    "off_loop",
    "opened",
    "preopen_device",
    "wait_for",
]

WEBGPU = "WebGpuExecutionProvider"
CPU = "CPUExecutionProvider"

in_browser = sys.platform == "emscripten"

T = TypeVar("T")

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

_held: dict[Hashable, Device] = {}
"""Devices by what was chosen; None: the one that sessions share which choose nothing."""

_open_attempts = Attempts()
_open_turn = Turn()
_open_tasks: set[asyncio.Task[Device]] = set()
"""Held here: the event loop has weak references alone."""


def available_providers() -> list[str]:
    """Execution providers of this environment, the preferred one first."""
    if in_browser:
        return [WEBGPU, CPU]
    asked = (os.environ.get("PYRUNTIME_WEBGPU"), os.environ.get("PYRUNTIME_ADAPTER"))
    return [WEBGPU, CPU] if _missing_adapter(*asked) is None else [CPU]


@cache
def _missing_adapter(*asked: str | None) -> str | None:
    """Why there is no GPU under CPython, which is logged once; None where there is one."""
    if not any(find_spec(package) for package in ("wgpu", "wgpudawn")):
        logger.info("models run on %s: no WebGPU implementation is installed (pip install wgpu)", CPU)
        return "no WebGPU implementation is installed"
    why = _why_not(NO_OPTIONS)
    if why is not None:
        from pyruntime.device.desktop.implementations import is_off

        # The user's choice is nothing to warn of.
        logger.log(logging.INFO if is_off() else logging.WARNING, "models run on %s: %s", CPU, why)
    return why


def _why_not(options: Mapping[str, str]) -> str | None:
    from pyruntime.device.desktop.adapters import Choice
    from pyruntime.device.desktop.discovery import check

    try:
        check(Choice.of(options))
    except EPFail as error:
        return str(error)
    return None


def fits(options: Mapping[str, str]) -> bool:
    """Return whether there is an adapter that provider options choose, under CPython."""
    return not in_browser and bool(options.get("adapter")) and _why_not(options) is None


def adapters() -> list[Adapter]:
    """Return the GPUs of this machine, and what stands in for one; an empty list in browsers, which do not list them.

    Raises:
        EPFail: no implementation of WebGPU is installed.
    """
    if in_browser:
        return []
    from pyruntime.device.desktop import discovery

    return discovery.adapters()


async def device(options: Mapping[str, str] = NO_OPTIONS) -> Device:
    """Return the GPU device that all sessions share; opens it at the first call, and again after it was lost.

    Args:
        options: of the provider; sessions that choose an adapter have another device than those that do not.

    Raises:
        EPFail: there is no WebGPU here.
    """
    if not in_browser:
        return await off_loop(_desktop_device(options))
    from pyruntime.device.webgpu import measurements
    from pyruntime.device.webgpu.pyodide import open_device

    async with _open_attempts.attempt():  # sessions that load at the same time get the same device
        held = opened()
        if held is None:
            held = await open_device()
            held.target = (await measurements.load(held.info)).of(held.target)
            _held[None] = held
        return held


async def _desktop_device(options: Mapping[str, str]) -> Device:
    from pyruntime.device.desktop.adapters import Choice
    from pyruntime.device.desktop.discovery import open_device

    chosen = Choice.of(options)
    key = chosen if {"adapter", "power_preference"} & options.keys() else None
    with _open_turn:
        held = opened(key)
        if held is None and key is None:  # a device that a session has chosen serves those that choose nothing
            held = next((d for d in _held.values() if d.lost is None), None)
        _held[key] = held = held or open_device(chosen)
        return held


def opened(key: Hashable = None) -> Device | None:
    """Return the device where it is open and was not lost, else None."""
    held = _held.get(key)
    return held if held is not None and held.lost is None else None


async def preopen_device(options: Mapping[str, str]) -> None:
    """Begin to open the device, where there is none; `device` waits for it, and raises what failed."""
    if opened() is not None:
        return
    if in_browser:
        task = asyncio.ensure_future(device())
        _open_tasks.add(task)
        task.add_done_callback(_opened)
        await asyncio.sleep(0)
    else:
        threading.Thread(target=_preopen, args=(options,), name="pyruntime-device").start()


def _preopen(options: Mapping[str, str]) -> None:
    """Open the device, in a thread."""
    with suppress(OrtError):  # `device` raises it again
        run_blocking(_desktop_device(options))


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
    else:
        from pyruntime.device.desktop import measurements as stored

        stored.store(device.info, known)


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
        _held[None] = adopt_device(gpu_device)


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
        return run_blocking(work)
    except BlockingIOError:
        raise RuntimeException(f"this call has to wait for something; use `{awaitable}`") from None


async def off_loop(work: Coroutine[Any, Any, T]) -> T:
    """Await what blocks: in a thread where an event loop is running, which goes on meanwhile."""
    if in_browser or is_blocking() or not _has_loop():
        return await work
    return await asyncio.to_thread(run_blocking, work)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; in a browser, drop the frames of its exceptions (`forget_frames`), which keep memory alive."""
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
    except BaseException as error:  # noqa: BLE001  # boundary: another coroutine raises it
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
        except Exception as error:  # noqa: BLE001  # boundary: told to the caller
            callback([], user_data, str(error))
        else:
            callback(result, user_data, "")

    try:
        return asyncio.get_running_loop().create_task(watched())
    except RuntimeError:
        return wait_for(watched(), "await session.run_async(...)")
