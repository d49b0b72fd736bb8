"""Tensors that live on the GPU beyond one run: what OrtValues on a device hold."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyruntime.device.base import Device, Raw, Read, Slice
from pyruntime.errors import BindingError
from pyruntime.ir import HostTensor, TensorType
from pyruntime.plan.memory import round_up

__all__ = ["DeviceTensor"]

_SPARE_BYTES = 256 << 20
"""Bytes of all free buffers that are kept for the next tensors; those kept longest go first."""

_DOUBLING = 8 << 20
"""Bytes up to which a buffer's size is a power of two; above there are four sizes from one power to the next."""


def _capacity(nbytes: int) -> int:
    """The size of the buffer for a tensor: tensors that grow from run to run, as caches do, meet the same buffers."""
    size = round_up(nbytes)
    power = 1 << (size - 1).bit_length()
    step = power if size <= _DOUBLING else power // 8
    return -(-size // step) * step


class _Pool:
    """Buffers of one device that no tensor holds, those kept longest first."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.free: list[tuple[int, int]] = []

    async def take(self, sizes: Sequence[int]) -> list[int]:
        """A buffer for each size."""
        made = [self._reuse(size) for size in sizes]
        missing = [i for i, buffer in enumerate(made) if not buffer]
        try:
            fresh = await self.device.allocate([sizes[i] for i in missing], "tensors")
        except BaseException:
            self.free += [(size, buffer) for size, buffer in zip(sizes, made, strict=True) if buffer]
            raise
        for i, buffer in zip(missing, fresh, strict=True):
            made[i] = buffer
        return made

    def _reuse(self, size: int) -> int:
        """A free buffer of this size, 0 where there is none."""
        at = next((i for i in reversed(range(len(self.free))) if self.free[i][0] == size), None)
        return 0 if at is None else self.free.pop(at)[1]

    def give(self, buffer: int, size: int) -> None:
        """Nothing uses this buffer any more: keep it, so that loops meet the same ones again and again."""
        if size > _SPARE_BYTES or getattr(self.device, "lost", None):
            self.device.free([buffer])
            return
        self.free.append((size, buffer))
        while sum(s for s, _ in self.free) > _SPARE_BYTES:
            self.device.free([self.free.pop(0)[1]])


_pools: weakref.WeakKeyDictionary[Device, _Pool] = weakref.WeakKeyDictionary()


def _pool(device: Device) -> _Pool:
    return _pools.setdefault(device, _Pool(device))


class _Memory:
    """A buffer, given back when neither a tensor nor a run has it any more.

    Attributes:
        runs: how many runs have it now.
    """

    __slots__ = ("__weakref__", "buffer", "runs")

    def __init__(self, device: Device, buffer: int, size: int) -> None:
        self.buffer, self.runs = buffer, 0
        weakref.finalize(self, _pool(device).give, buffer, size).atexit = False


class DeviceTensor:
    """A dense tensor in a GPU buffer of its own, which is given back when the tensor is collected.

    Attributes:
        type: element type and shape.
        device: where it is.
    """

    def __init__(self, type: TensorType, device: Device, buffer: int | _Memory) -> None:
        self.type = TensorType(type.dtype, type.shape)
        self.device = device
        self._memory = _Memory(device, buffer, _capacity(type.nbytes)) if isinstance(buffer, int) else buffer

    @property
    def buffer(self) -> int:
        """The number of its buffer."""
        return self._memory.buffer

    @property
    def in_use(self) -> bool:
        """True while a run reads or writes its memory: it may have dispatches that are not queued yet."""
        return self._memory.runs > 0

    @contextmanager
    def lent(self) -> Iterator[DeviceTensor]:
        """This tensor as it is now, for a run: others that have this one for an output leave that memory alone."""
        memory = self._memory
        memory.runs += 1
        try:
            yield DeviceTensor(self.type, self.device, memory)
        finally:
            memory.runs -= 1

    @property
    def slice(self) -> Slice:
        """All of it, whole words."""
        return Slice(self.buffer, 0, round_up(self.type.nbytes))

    @staticmethod
    async def allocate(types: Sequence[TensorType], device: Device) -> list[DeviceTensor]:
        """Tensors with arbitrary contents.

        Raises:
            OutOfMemory: the device refused.
            BindingError: an element type that the GPU does not hold (strings, complex numbers).
        """
        for kind in types:
            if not kind.dtype.compute:
                raise BindingError(f"{kind.dtype.type_string} tensors live on the host; bind this one to 'cpu'")
        buffers = await _pool(device).take([_capacity(t.nbytes) for t in types])
        return [DeviceTensor(t, device, b) for t, b in zip(types, buffers, strict=True)]

    @staticmethod
    def trim(device: Device) -> None:
        """Free the buffers that are kept for the next tensors."""
        pool = _pool(device)
        device.free([buffer for _, buffer in pool.free])
        pool.free.clear()

    @staticmethod
    async def upload(tensor: HostTensor, device: Device) -> DeviceTensor:
        """A copy of `tensor` on the device."""
        (made,) = await DeviceTensor.allocate([tensor.type], device)
        made.write(tensor.bytes())
        return made

    def write(self, raw: Raw) -> None:
        """Replace the contents by raw_data of the same length."""
        if self.type.nbytes:
            self.device.write(Slice(self.buffer, 0, self.type.nbytes), raw)

    async def download(self) -> HostTensor:
        """A copy on the host."""
        if not self.type.nbytes:
            return HostTensor(self.type, b"")
        recording = self.device.record([])
        try:
            with self.lent() as lent:
                (raw,) = await self.device.submit(recording, [], [Read(Slice(lent.buffer, 0, self.type.nbytes))])
        finally:
            self.device.drop(recording)
        return HostTensor(self.type, raw)

    async def clone(self) -> DeviceTensor:
        """A copy on the same device."""
        (made,) = await DeviceTensor.allocate([self.type], self.device)
        self.device.copy(self.slice, made.slice)
        return made

    def exchange(self, other: DeviceTensor) -> None:
        """Swap contents with a tensor of the same type without moving a byte."""
        self._memory, other._memory = other._memory, self._memory
