"""Tensors that stay on the GPU between runs, as OrtValues on a device do."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from pyruntime.compiler.memory import round_up
from pyruntime.device.base import Device, Raw, Read, Slice
from pyruntime.errors import BindingError
from pyruntime.ir import HostTensor, TensorType

__all__ = ["DeviceTensor", "Loans", "Move"]

_SPARE_BYTES = 256 << 20
"""Limit of the bytes of unused buffers in a pool; the oldest are freed first."""

_DOUBLING = 8 << 20
"""Bytes up to which buffer sizes are powers of two; above, there are four sizes between two powers."""


def _capacity(nbytes: int) -> int:
    """Return the buffer size for a tensor. Sizes are coarse, so that tensors that grow in each run (caches) reuse
    buffers.
    """
    size = round_up(nbytes)
    power = 1 << (size - 1).bit_length()
    step = power if size <= _DOUBLING else power // 8
    return -(-size // step) * step


class _Pool:
    """Unused buffers of one device, the oldest first."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.free: list[tuple[int, int]] = []

    async def take(self, sizes: Sequence[int]) -> list[int]:
        """Return a buffer of each size."""
        with self.device.turn or nullcontext():
            return await self._take(sizes)

    async def _take(self, sizes: Sequence[int]) -> list[int]:
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
        """Remove a free buffer of this size from the pool and return it; 0 where there is none."""
        at = next((i for i in reversed(range(len(self.free))) if self.free[i][0] == size), None)
        return 0 if at is None else self.free.pop(at)[1]

    def give(self, buffer: int, size: int) -> None:
        """Return a buffer to the pool. May be called in any thread."""
        if self.device.turn is None:
            self._keep(buffer, size)
        else:
            self.device.turn.later(partial(self._keep, buffer, size))

    def _keep(self, buffer: int, size: int) -> None:
        if size > _SPARE_BYTES or self.device.lost is not None:
            self.device.free([buffer])
            return
        self.free.append((size, buffer))
        while sum(s for s, _ in self.free) > _SPARE_BYTES:
            self.device.free([self.free.pop(0)[1]])


_pools: weakref.WeakKeyDictionary[Device, _Pool] = weakref.WeakKeyDictionary()


def _pool(device: Device) -> _Pool:
    return _pools.setdefault(device, _Pool(device))


class _Memory:
    """A buffer that returns to the pool when no tensor and no run refers to it.

    Attributes:
        runs: number of runs that use it now.
    """

    __slots__ = ("__weakref__", "_references", "buffer", "runs")

    def __init__(self, device: Device, buffer: int, size: int) -> None:
        self.buffer, self.runs = buffer, 0
        # A WeakSet does the same in Python code, at three times the cost; a decoder's step makes dozens of tensors.
        self._references = set[weakref.ref[DeviceTensor]]()
        weakref.finalize(self, _pool(device).give, buffer, size).atexit = False

    @property
    def tensors(self) -> list[DeviceTensor]:
        """The tensors in it; several where one continues another with further rows, or has the same contents."""
        return [tensor for reference in list(self._references) if (tensor := reference()) is not None]

    @property
    def count(self) -> int:
        """Number of tensors in it."""
        return len(self._references)

    def join(self, tensor: DeviceTensor) -> None:
        """Add a tensor, until it leaves or is collected."""
        self._references.add(weakref.ref(tensor, self._references.discard))

    def leave(self, tensor: DeviceTensor) -> None:
        """Remove a tensor."""
        self._references.discard(weakref.ref(tensor))


class DeviceTensor:
    """A dense tensor in a GPU buffer. The buffer is reused when the last tensor in it is collected.

    Attributes:
        type: element type and shape.
        device: the device of the buffer.
        reserved: (axis, rows): the buffer has capacity for `rows` rows along `axis`, more than the shape; None: for the
            shape alone.
        counted: number of valid rows along the axis, where `rewritten` made the tensor; None: all.
    """

    def __init__(
        self, type: TensorType, device: Device, memory: _Memory, reserved: tuple[int, int] | None = None
    ) -> None:
        is_plain = type.source is None and not type.name
        self.type = type if is_plain else TensorType(type.dtype, type.shape)
        self.device = device
        self.reserved = reserved
        self.counted: int | None = None
        self._memory = memory
        memory.join(self)

    @property
    def buffer(self) -> int:
        """Number of the buffer."""
        return self._memory.buffer

    @property
    def is_lost(self) -> bool:
        """True if the device was lost, and with it the contents."""
        return self.device.lost is not None

    @property
    def in_use(self) -> bool:
        """True while a run reads or writes the memory, possibly by dispatches that are not queued yet."""
        return self._memory.runs > 0

    @property
    def shared(self) -> bool:
        """True if another tensor uses the same memory."""
        return self._memory.count > 1

    def again(self) -> DeviceTensor:
        """Return another tensor with the same contents, in the same memory."""
        made = DeviceTensor(self.type, self.device, self._memory, self.reserved)
        made.counted = self.counted
        return made

    async def rewritten(self, first: int, end: int) -> DeviceTensor:
        """Return a tensor whose rows from `first` on the caller may write; rows before `end` are valid afterwards.

        It uses this tensor's memory if no valid row of a tensor in it is overwritten; else it is a copy.
        """
        there = [t.counted for t in self._memory.tensors]
        alone = self.reserved is None and all(n is not None and n <= first for n in there)
        made = self.again() if alone else await self.clone()
        made.counted = end
        return made

    def grown(self, kind: TensorType, axis: int, rows: int) -> DeviceTensor | Move:
        """Return a tensor of type `kind` that starts with these rows and has capacity for `rows` rows along `axis`.

        The caller writes the further rows. The result uses this tensor's memory if that has the capacity and no other
        tensor has rows there; otherwise a `Move` is returned, for `moved`. This tensor stays valid in both cases.
        """
        memory = self._memory
        if self.reserved == (axis, rows) and (
            memory.count == 1 or self.type.shape[axis] == max([t.type.shape[axis] for t in memory.tensors])
        ):
            return DeviceTensor(kind, self.device, memory, self.reserved)
        return Move(self, kind, (axis, rows))

    @staticmethod
    async def moved(moves: Sequence[Move]) -> list[DeviceTensor]:
        """Copy tensors to separate memory, with one allocation and one submit for all.

        Raises:
            OutOfMemory: the device refused.
        """
        if not moves:
            return []
        device = moves[0].tensor.device
        sizes = [_capacity(m.nbytes) for m in moves]
        buffers = await _pool(device).take(sizes)
        made, pairs = list[DeviceTensor](), list[tuple[Slice, Slice]]()
        for move, buffer, size in zip(moves, buffers, sizes, strict=True):
            target = DeviceTensor(move.type, device, _Memory(device, buffer, size), move.reserved)
            target.counted = move.tensor.counted if move.reserved is None else None
            pairs += move.tensor._pairs(target)
            made.append(target)
        device.copy(pairs)
        return made

    def _pairs(self, target: DeviceTensor) -> list[tuple[Slice, Slice]]:
        """Return (source, target) of each copy that gives `target` this tensor's rows."""
        reserved = target.reserved or self.reserved
        if reserved is None:
            return [(self.slice, target.slice)]
        rows = self.type.shape[reserved[0]]
        pairs = zip(self._blocks(reserved[0], rows), target._blocks(reserved[0], rows), strict=True)
        return [(source, made) for source, made in pairs if source.nbytes]

    def _blocks(self, axis: int, rows: int) -> list[Slice]:
        """Return the slices of the first `rows` rows along `axis`, one for each index of the axes before it."""
        shape = self.type.shape
        row = math.prod(shape[axis + 1 :]) * self.type.dtype.bits // 8
        there = self.reserved[1] if self.reserved else shape[axis]
        return [Slice(self.buffer, n * there * row, rows * row) for n in range(math.prod(shape[:axis]))]

    @property
    def slice(self) -> Slice:
        """The tensor's bytes, padded to whole words. Only for tensors without reserved rows."""
        assert self.reserved is None
        return Slice(self.buffer, 0, round_up(self.type.nbytes))

    @staticmethod
    async def allocate(types: Sequence[TensorType], device: Device) -> list[DeviceTensor]:
        """Allocate tensors with arbitrary contents.

        Raises:
            OutOfMemory: the device refused.
            BindingError: an element type that exists only on the host (strings, complex numbers).
        """
        for kind in types:
            if not kind.dtype.compute:
                raise BindingError(f"{kind.dtype.type_string} tensors live on the host; bind this one to 'cpu'")
        sizes = [_capacity(t.nbytes) for t in types]
        buffers = await _pool(device).take(sizes)
        memories = [_Memory(device, buffer, size) for buffer, size in zip(buffers, sizes, strict=True)]
        return [DeviceTensor(t, device, memory) for t, memory in zip(types, memories, strict=True)]

    @staticmethod
    def trim(device: Device) -> None:
        """Free the unused buffers of a device."""
        pool = _pool(device)
        with device.turn or nullcontext():
            device.free([buffer for _, buffer in pool.free])
            pool.free.clear()

    @staticmethod
    def trim_all() -> None:
        """`trim` every device."""
        for device in list(_pools):
            DeviceTensor.trim(device)

    @staticmethod
    async def upload(tensor: HostTensor, device: Device) -> DeviceTensor:
        """Copy `tensor` to the device."""
        (made,) = await DeviceTensor.allocate([tensor.type], device)
        made.write(tensor.bytes())
        return made

    def write(self, raw: Raw) -> None:
        """Replace the contents with raw_data of the same length. Only for tensors that are not `shared`."""
        self.counted = None
        blocks = self._blocks(self.reserved[0], self.type.shape[self.reserved[0]]) if self.reserved else [self.content]
        offset = 0
        for block in blocks:
            if block.nbytes:
                self.device.write(block, raw, offset)
            offset += block.nbytes

    @property
    def content(self) -> Slice:
        """The tensor's bytes, without padding. Only for tensors without reserved rows."""
        return Slice(self.buffer, 0, self.type.nbytes)

    async def download(self) -> HostTensor:
        """Copy the tensor to the host."""
        (made,) = await DeviceTensor.downloaded([self])
        return made

    @staticmethod
    async def downloaded(tensors: Sequence[DeviceTensor]) -> list[HostTensor]:
        """Copy tensors of one device to the host, in one readback."""
        whole = [t if t.reserved is None else await t.clone() for t in tensors]
        filled = [t for t in whole if t.type.nbytes]
        raws: list[Raw] = []
        if filled:
            device = filled[0].device
            recording = device.record([])
            try:
                with Loans() as loans:
                    raws = await device.submit(recording, [], [Read(loans.lend(t).content) for t in filled])
            finally:
                device.drop(recording)
        answers = iter(raws)
        return [HostTensor(t.type, next(answers) if t.type.nbytes else b"") for t in whole]

    async def clone(self) -> DeviceTensor:
        """Copy the tensor on its device, into memory without reserved rows."""
        (made,) = await DeviceTensor.moved([Move(self, self.type, None)])
        return made

    async def materialize(self) -> None:
        """Move to a buffer that holds this tensor alone, for callers that access the buffer directly."""
        if self.reserved is not None or self.shared:
            self.exchange(await self.clone())

    @property
    def capacity(self) -> int:
        """Size in bytes of the buffer for this tensor alone."""
        return _capacity(self.type.nbytes)

    def materialize_in(self, buffer: int) -> None:
        """Move to the given buffer of `capacity` bytes, as `materialize` does."""
        made = DeviceTensor(self.type, self.device, _Memory(self.device, buffer, self.capacity))
        made.counted = self.counted
        self.device.copy(self._pairs(made))
        self.exchange(made)

    def exchange(self, other: DeviceTensor) -> None:
        """Swap buffer and device with a tensor of the same type. No bytes are copied."""
        self._memory.leave(self)
        other._memory.leave(other)
        self._memory, other._memory = other._memory, self._memory
        self.device, other.device = other.device, self.device
        self.reserved, other.reserved = other.reserved, self.reserved
        self.counted, other.counted = other.counted, self.counted
        self._memory.join(self)
        other._memory.join(other)


class Loans:
    """The tensors that a run uses until it ends. Other runs do not overwrite their memory meanwhile."""

    def __init__(self) -> None:
        self._memories: list[_Memory] = []

    def __enter__(self) -> Loans:
        return self

    def __exit__(self, *error: object) -> None:
        for memory in self._memories:
            memory.runs -= 1
        self._memories.clear()

    def hold(self, tensor: DeviceTensor) -> None:
        """Mark the tensor's memory as used by the run."""
        memory = tensor._memory
        memory.runs += 1
        self._memories.append(memory)

    def lend(self, tensor: DeviceTensor) -> DeviceTensor:
        """Mark the tensor's memory as used by the run; return a tensor with the same contents for the run."""
        self.hold(tensor)
        return tensor.again()


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of `tensor` to a tensor of `type`, which starts with its rows.

    Attributes:
        reserved: axis, and number of rows along it that the new memory has capacity for; None: those of `type`.
    """

    tensor: DeviceTensor
    type: TensorType
    reserved: tuple[int, int] | None

    @property
    def nbytes(self) -> int:
        """Bytes that the new tensor's memory needs."""
        shape = list(self.type.shape)
        if self.reserved is not None:
            shape[self.reserved[0]] = self.reserved[1]
        return self.type.with_shape(*shape).nbytes
