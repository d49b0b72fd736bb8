"""Speed of a device, as input of the kernels' cost models."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["H200", "SWIFTSHADER", "WASM", "Rates"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Speed of a device. Times are in microseconds, rates in float32 operations or bytes a microsecond.

    Attributes:
        units: multiprocessors or cores: number of workgroups that run at once without sharing resources.
        resident: invocations that a unit holds at once.
        flops, bandwidth: peak rates of the whole device.
        dispatch: overhead of a dispatch, with the barrier before it.
        step: loading a tile from memory into workgroup memory, with its barriers.
        merge: adding two partial results of a workgroup, with a barrier.
        load: latency of a load that depends on the one before.
        direct: fraction of `flops` reached when all operands come from memory and caches.
        switch: suspending and resuming an invocation at a barrier, on CPUs where invocations are not threads.
    """

    units: int
    resident: int
    flops: float
    bandwidth: float
    dispatch: float
    step: float
    merge: float
    load: float
    direct: float
    switch: float = 0.0


H200 = Rates(
    units=132,
    resident=545,
    flops=55.2e6,
    bandwidth=3.66e6,
    dispatch=3.19,
    step=0.308,
    merge=0.765,
    load=0.2,
    direct=0.2,
)
"""NVIDIA H200 in Chromium over Vulkan, 2026-11-23; assumed for GPUs without measurements."""

SWIFTSHADER = Rates(
    units=2,
    resident=64,
    flops=2600.0,
    bandwidth=4000.0,
    dispatch=25.0,
    step=0.0,
    merge=0.0,
    load=0.0,
    direct=1.0,
    switch=0.8,
)
"""SwiftShader on two cores: a workgroup runs on one core, a barrier switches every invocation (2026-11-24)."""

WASM = Rates(
    units=1,
    resident=64,
    flops=16000.0,
    bandwidth=16000.0,
    dispatch=0.05,
    step=0.0,
    merge=0.0,
    load=0.0,
    direct=0.5,
    switch=1e6,
)
"""WebAssembly with vectors of four floats on one core (2026-11-30). It has no barriers: kernels with some cost more
than all others.
"""
