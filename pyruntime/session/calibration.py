"""Rates of a device, measured in some 100 ms: how many workgroups run at once, arithmetic, memory, a dispatch.

They are what `kernels.costs` ranks kernels by. What is not measured (latencies, how many invocations a unit holds) is
taken from the device that is assumed where none was measured.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pyruntime.device.base import Device
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out, params_of, template
from pyruntime.kernels.costs import H200, Rates
from pyruntime.kernels.matmul import matmul, product_of
from pyruntime.kernels.matmul_candidates import EFFICIENCY
from pyruntime.kernels.tiling import LARGE, MEDIUM
from pyruntime.session.ceilings import stream_kernel
from pyruntime.session.measuring import Lap

__all__ = ["calibrate"]

_ROUNDS = 4096
"""Of the arithmetic kernel: some 100 microseconds for one workgroup."""

_GROUPS = (64, 1024)
"""Workgroups that are compared with one: few, and where those still run at once, many."""

_DEPTH = 1024
"""k of the product that measures arithmetic."""

_TILES = 8
"""Tiles of that product for each unit, so that it does not matter whether the last ones keep every unit busy."""

_STREAM = 64 << 20
"""Bytes read by the dispatch that measures memory: more than caches hold."""


async def calibrate(device: Device) -> Rates:
    """The rates of this device.

    Raises:
        OutOfMemory, EngineError, DeviceLost: of the device.
    """
    target = device.target
    units = await _units(device)
    moved = min(_STREAM, target.limits.binding_bytes, target.limits.buffer_bytes)
    bandwidth = 2 * moved / await _microseconds(device, stream_kernel(target, moved))
    return replace(
        H200,
        units=units,
        flops=await _flops(device, units),
        bandwidth=bandwidth,
        dispatch=await _microseconds(device, stream_kernel(target, 1024)),
    )


async def _microseconds(device: Device, dispatch: Dispatch) -> float:
    async with Lap(device, [dispatch]) as lap:
        return max(1e-2, 1e6 * await lap.seconds())


async def _units(device: Device) -> int:
    """Workgroups of pure arithmetic that run at once without slowing each other down."""
    alone = await _microseconds(device, _arithmetic(device.target, 1))
    for groups in _GROUPS:
        together = await _microseconds(device, _arithmetic(device.target, groups))
        if together > 1.5 * alone:
            return max(1, round(groups * alone / together))
    return _GROUPS[-1]


async def _flops(device: Device, units: int) -> float:
    """Operations a microsecond of tiles that keep all units busy, had they no loss of their own."""
    tiling = next(t for t in (LARGE, MEDIUM) if t is MEDIUM or not t.fits(device.target.limits))
    rows = math.isqrt(_TILES * units)
    columns = _TILES * units // rows
    m, n = rows * tiling.tile, columns * tiling.tile
    y, a, b = (TensorType(DType.FLOAT, shape) for shape in ((m, n), (m, _DEPTH), (_DEPTH, n)))
    product = product_of(a.shape, b.shape)
    (made,) = matmul(device.target, out(0, y), inp(0, a), inp(1, b), product, tiling=tiling)
    taken = await _microseconds(device, made)
    return 2.0 * m * n * _DEPTH / taken / EFFICIENCY[tiling.tile]


def _arithmetic(target: Target, groups: int) -> Dispatch:
    kernel = template("ceiling_arithmetic")
    kind = TensorType(DType.FLOAT, (max(_GROUPS),))
    return Dispatch(kernel, (inp(0, kind), out(0, kind)), (groups, 1, 1), params_of(kernel, rounds=_ROUNDS))
