"""Rates of a device, measured in some 200 ms: how many workgroups run at once, arithmetic, memory, a dispatch.

They are what `kernels.ir.costs` ranks kernels by. What is not measured (latencies, invocations that a unit holds) is
taken from the device that is assumed where none was measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyruntime.device.base import Device
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, launch, out
from pyruntime.kernels.products.candidates import EFFICIENCY
from pyruntime.kernels.products.matmul import Matmul, product_of
from pyruntime.kernels.products.tiling import MEDIUM
from pyruntime.session.tuning.ceilings import stream_kernel
from pyruntime.session.tuning.measuring import ROUNDS, Lap
from pyruntime.target import H200, Rates

__all__ = ["Interrupted", "calibrate", "is_like"]

_TURNS = 4096
"""Of the arithmetic kernel: some 100 microseconds for one workgroup."""

_GROUPS = (64, 1024)
"""Workgroups that are compared with one: few, and where those still run at once, many."""

_DEPTH = 1024
"""k of the product that measures arithmetic."""

_TILES = 8
"""Tiles of that product for each unit, so that it does not matter whether the last ones keep every unit busy."""

_STREAM = 64 << 20
"""Bytes read by the dispatch that measures memory: more than caches hold."""

_STEADY, _WARM_UP = 0.15, 1.0
"""Seconds in which arithmetic gets no faster before anything is measured, and at most: idle GPUs have a low clock."""

_FASTER = 0.97
"""Part of a time that one has to be to count as faster."""


class Interrupted(Exception):
    """A measurement was interrupted, and its times mean nothing."""


@dataclass(frozen=True, slots=True)
class _Clock:
    """Measures dispatches; `check` is called between and may raise."""

    device: Device
    rounds: int
    check: Callable[[], None]

    async def microseconds(self, dispatch: Dispatch) -> float:
        self.check()
        async with Lap(self.device, [dispatch]) as lap:
            return max(1e-2, 1e6 * await lap.seconds(rounds=self.rounds))


async def calibrate(device: Device, rounds: int = ROUNDS, check: Callable[[], None] = lambda: None) -> Rates:
    """Measure the rates of a device; returns the assumed ones, fitted on an H200, where it `is_like` that.

    Args:
        rounds: pairs of a measurement. check: called between measurements; what it raises ends them.

    Raises:
        OutOfMemory, EngineError, DeviceLost: of the device.
    """
    target, clock = device.target, _Clock(device, rounds, check)
    await _warm_up(clock)
    units = await _units(clock)
    moved = min(_STREAM, target.limits.binding_bytes, target.limits.buffer_bytes)
    bandwidth = 2 * moved / await clock.microseconds(stream_kernel(target, moved))
    made = replace(
        H200,
        units=units,
        flops=await _flops(clock, units),
        bandwidth=bandwidth,
        dispatch=await clock.microseconds(stream_kernel(target, 1024)),
    )
    return H200 if is_like(made, H200) else made


def is_like(rates: Rates, known: Rates) -> bool:
    """Return whether arithmetic and bandwidth are within a quarter of `known`.

    Units are known least: one workgroup may leave a multiprocessor half idle, and 200 of them were measured where there
    are 132. Chosen by that many, products take 7 to 10 % longer than the best kernels do; by the rates assumed, 3.
    """
    pairs = ((rates.flops, known.flops), (rates.bandwidth, known.bandwidth))
    return all(0.75 <= measured / fitted <= 1.25 for measured, fitted in pairs)


async def _warm_up(clock: _Clock) -> None:
    """Run arithmetic until the GPU's clock no longer rises: after a pause an H100 takes three times as long."""
    best, began = math.inf, time.perf_counter()
    since = now = began
    async with Lap(clock.device, [_arithmetic(clock.device.target, max(_GROUPS))]) as lap:
        while now - since < _STEADY and now - began < _WARM_UP:
            clock.check()
            taken = await lap.seconds(rounds=1)
            now = time.perf_counter()
            if taken < _FASTER * best:
                best, since = taken, now


async def _units(clock: _Clock) -> int:
    """Workgroups of pure arithmetic that run at once without slowing each other down."""
    target = clock.device.target
    alone = await clock.microseconds(_arithmetic(target, 1))
    for groups in _GROUPS:
        together = await clock.microseconds(_arithmetic(target, groups))
        if together > 1.5 * alone:
            return max(1, round(groups * alone / together))
    return _GROUPS[-1]


async def _flops(clock: _Clock, units: int) -> float:
    """Operations a microsecond of tiles that keep all units busy, without what the tiles themselves lose."""
    target = clock.device.target
    rows = math.isqrt(_TILES * units)
    columns = _TILES * units // rows
    m, n = rows * MEDIUM.high, columns * MEDIUM.wide
    y, a, b = (TensorType(DType.FLOAT, shape) for shape in ((m, n), (m, _DEPTH), (_DEPTH, n)))
    product = product_of(a.shape, b.shape)
    (made,) = Matmul(product, out(0, y), inp(0, a), inp(1, b), tiling=MEDIUM).lower(target)
    taken = await clock.microseconds(made)
    return 2.0 * m * n * _DEPTH / taken / EFFICIENCY[MEDIUM.tile]


def _arithmetic(target: Target, groups: int) -> Dispatch:
    kind = TensorType(DType.FLOAT, (max(_GROUPS),))
    tensors, defines = {"x": inp(0, kind), "y": out(0, kind)}, {"WG": target.widest(256)}
    return launch("ceiling_arithmetic", tensors, (groups, 1, 1), defines, {"rounds": _TURNS})
