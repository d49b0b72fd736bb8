"""The peak rates of a device, measured once; profiles are compared with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyruntime.device.base import Device
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, launch, out
from pyruntime.kernels.products.matmul import matmul, product_of
from pyruntime.session.tuning.measuring import Lap

__all__ = ["Ceilings", "ceilings", "stream_kernel"]

SIDE, STREAM = 4096, 64 << 20
"""Side of the square matrices, and bytes read by a dispatch of the stream: both take much longer than a dispatch."""

SOFTWARE_SIDE, SOFTWARE_STREAM = 256, 4 << 20


@dataclass(frozen=True, slots=True)
class Ceilings:
    """float32 operations a second of a large matrix product, bytes a second of a large elementwise kernel."""

    flops: float
    bandwidth: float

    def fraction(self, flops: float, nbytes: float, seconds: float) -> float:
        """Return the part of a time that arithmetic and memory need at least, at most 1."""
        return min(1.0, max(flops / self.flops, nbytes / self.bandwidth) / seconds) if seconds > 0 else 0.0


_known: WeakKeyDictionary[Device, Ceilings] = WeakKeyDictionary()


async def ceilings(device: Device) -> Ceilings:
    """Measure this device's peak rates, at the first call."""
    if device not in _known:
        _known[device] = await _measured(device)
    return _known[device]


async def _measured(device: Device) -> Ceilings:
    target = device.target
    side, stream = (SOFTWARE_SIDE, SOFTWARE_STREAM) if target.is_software else (SIDE, STREAM)
    stream = min(stream, target.limits.binding_bytes, target.limits.buffer_bytes)
    while 4 * side * side > stream:
        side //= 2
    async with Lap(device, _product(target, side)) as lap:
        multiplied = await lap.seconds()
    async with Lap(device, [stream_kernel(target, stream)]) as lap:
        moved = await lap.seconds()
    return Ceilings(2 * side**3 / multiplied, 2 * stream / moved)


def _product(target: Target, side: int) -> Sequence[Dispatch]:
    kind = TensorType(DType.FLOAT, (side, side))
    return matmul(target, out(0, kind), inp(0, kind), inp(1, kind), product_of(kind.shape, kind.shape))


def stream_kernel(target: Target, nbytes: int) -> Dispatch:
    """Reads `nbytes` bytes and writes as many, as fast as memory goes."""
    kind = TensorType(DType.FLOAT, (nbytes // 4,))
    threads = target.widest(256)
    quads, tensors = nbytes // 16, {"x": inp(0, kind), "y": out(0, kind)}
    return launch("ceiling_stream", tensors, target.grid(quads // 2, threads), {"WG": threads}, {"quads": quads})
