"""Measure the rates of an unknown device after its first run, while nothing else runs, and store them for later visits.

Existing sessions keep their kernels; those created afterwards choose by what was measured. A run that
begins in the meantime, or the loading of a model, ends the measurement, which begins again when these have been over
for a while: a device that is busy with others would count as a slower one. Not for software adapters, whose constants
are known, and not where the config entry `pyruntime.rates` says otherwise.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from pyruntime.device.base import Device
from pyruntime.errors import InvalidArgument, OrtError
from pyruntime.kernels.selection.measurements import Knowledge, rates_of
from pyruntime.session import environment
from pyruntime.session.tuning.calibration import Interrupted, calibrate
from pyruntime.target import Rates

__all__ = ["ENTRY", "at_work", "given_rates", "ran"]

ENTRY = "pyruntime.rates"
"""Config entry: 'auto' (default); 'assumed', nothing is measured by itself; or rates as JSON, which count instead."""

QUIET = 0.5
"""Seconds in which nothing runs or loads before it is measured."""

ATTEMPTS = 5
"""Times it begins, at most."""

ROUNDS = 2
"""Pairs of a measurement: some 200 ms in all, after what lets the clock of the GPU rise."""

SOFTWARE = ("swiftshader", "llvmpipe", "lavapipe", "softpipe", "basic render", "warp")
"""Of what a software adapter says of itself."""

_seen: WeakSet[Device] = WeakSet()
"""Devices that are measured, or need not be."""

_tasks: set[asyncio.Task[None]] = set()
_begun = 0
"""Runs and loads that have begun in Python."""
_under_way = 0
"""Of these, those that are not over."""


@contextmanager
def at_work() -> Iterator[None]:
    """While a model is loaded or runs, nothing is measured."""
    global _begun, _under_way
    _begun += 1
    _under_way += 1
    try:
        yield
    finally:
        _under_way -= 1


def given_rates(entry: str) -> Rates | None:
    """Parse the rates that a config entry states; None where it states none.

    Raises:
        InvalidArgument: it is neither a word it may be nor rates.
    """
    if entry in ("auto", "assumed"):
        return None
    try:
        return rates_of(json.loads(entry))
    except ValueError as error:
        raise InvalidArgument(f"{ENTRY} is 'auto', 'assumed' or rates as JSON: {error}") from None


def ran(device: Device, entry: str) -> None:
    """Measure the device after a run, once."""
    if entry != "auto" or not environment.in_browser or device in _seen:
        return
    _seen.add(device)
    if not _is_unknown(device):
        return
    task = asyncio.get_running_loop().create_task(_measure(device))
    _tasks.add(task)  # the loop alone would not keep it
    task.add_done_callback(_tasks.discard)


def _is_unknown(device: Device) -> bool:
    info = device.info
    said = " ".join(info.names.values()).lower()
    software = device.target.is_processor or any(word in said for word in SOFTWARE)
    return device.target.rates is None and not software


def _seen_so_far(device: Device) -> tuple[int, int]:
    """Return counts that change with each run and replay: equal ones mean that the device was idle in between."""
    return _begun, device.replays


async def _measure(device: Device) -> None:
    for _ in range(ATTEMPTS):
        seen = None
        while _under_way or seen != _seen_so_far(device):
            seen = _seen_so_far(device)
            await asyncio.sleep(QUIET)

        def check(seen: tuple[int, int] | None = seen) -> None:
            if _seen_so_far(device) != seen:
                raise Interrupted

        try:
            rates = await calibrate(device, ROUNDS, check)
            check()
        except Interrupted:
            continue
        except OrtError:
            return  # what is assumed goes on counting
        if device.target.rates is None:  # tune() knows better
            await environment.learn(device, Knowledge(rates, device.target.winners))
        return
