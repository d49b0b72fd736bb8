"""Finding the adapters of this machine, and creating devices on them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pyruntime.device.desktop.adapters import Adapter, Choice, adapters_of, choose
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.device.desktop.implementations import VARIABLE, GpuObject, Implementation, installed, is_off
from pyruntime.device.desktop.measurements import load
from pyruntime.errors import EPFail

__all__ = ["adapters", "check", "open_device"]

_found: dict[Implementation, list[tuple[Adapter, GpuObject]]] = {}
"""Adapters without a device yet. They are cached, since enumerating them takes up to half a second."""

_known: dict[Implementation, list[Adapter]] = {}
"""Descriptions of all adapters that the first enumeration found."""


_process = os.getpid()


def _looked_at() -> Iterator[tuple[Implementation, list[Adapter]]]:
    """Yield each installed implementation with its adapters, in order of preference, enumerated on demand.

    Raises:
        EPFail: no implementation is installed.
    """
    if _known and _process != os.getpid():
        raise EPFail(
            "this process was forked from one that uses the GPU, which its driver does not survive: start processes by "
            "multiprocessing.get_context('spawn')"
        )
    none = True
    for implementation in installed():
        none = False
        if implementation not in _known:
            _found[implementation] = adapters_of(implementation)
            _known[implementation] = [adapter for adapter, _ in _found[implementation]]
        yield implementation, _known[implementation]
    if none and is_off():
        raise EPFail(f"{VARIABLE} is 'off': no WebGPU implementation is used")
    if none:
        raise EPFail(
            "no WebGPU implementation is installed: pip install wgpu (or wgpudawn), or install this package with its "
            "extra [gpu]; PYRUNTIME_WEBGPU=off uses none"
        )


def adapters() -> list[Adapter]:
    """Return the adapters of this machine, of the first implementation that finds any.

    Raises:
        EPFail: no implementation of WebGPU is installed.
    """
    return next((list(found) for _, found in _looked_at() if found), [])


def check(choice: Choice) -> None:
    """Raise EPFail if no WebGPU implementation is installed or no adapter matches."""
    _chosen(choice)


def _chosen(choice: Choice) -> tuple[Implementation, Adapter]:
    failure: EPFail | None = None
    for implementation, found in _looked_at():
        try:
            return implementation, choose(found, choice)
        except EPFail as error:
            failure = error if failure is None or found else failure
    assert failure is not None
    raise failure


def open_device(choice: Choice) -> DesktopDevice:
    """Open a device on the adapter that matches.

    Raises:
        EPFail: no adapter matches, or it refuses a device.
    """
    implementation, chosen = _chosen(choice)
    if chosen not in [adapter for adapter, _ in _found[implementation]]:
        _found[implementation] = adapters_of(implementation)
    at = next((i for i, (adapter, _) in enumerate(_found[implementation]) if adapter == chosen), None)
    if at is None:
        raise EPFail(f"the adapter {chosen} no longer exists")
    device = DesktopDevice(implementation, *_found[implementation].pop(at))
    device.target = load(device.info).of(device.target)
    return device
