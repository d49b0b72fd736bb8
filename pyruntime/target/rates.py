"""How fast a device is: what the costs of kernels are computed by."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["H200", "SWIFTSHADER", "Rates"]


@dataclass(frozen=True, slots=True)
class Rates:
    """What of a device tells kernels apart. Microseconds, float32 operations and bytes a microsecond.

    Attributes:
        units: multiprocessors, or cores: workgroups that run at once without sharing anything.
        resident: invocations a unit holds at once.
        flops, bandwidth: of the whole device, at best.
        dispatch: what a dispatch costs before it does anything, with the barrier after the previous one.
        step: a tile from memory into workgroup memory, with its barriers.
        merge: two shares of a workgroup become one, with a barrier.
        load: a load that has to wait for the one before.
        direct: part of `flops` that is reached where every operand comes from memory and its caches.
        switch: an invocation stops at a barrier and goes on, where invocations are not threads: on a processor.
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
"""NVIDIA H200 in Chromium over Vulkan, 2026-11-23: the GPU that is assumed where none was measured."""

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
"""SwiftShader on two cores: a workgroup runs on one core, a barrier stops and wakes every invocation (2026-11-24)."""
