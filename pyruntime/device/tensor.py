"""Tensors that live on the GPU beyond one run: what OrtValues on a device hold."""

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
        """Take a buffer for each size."""
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
        """A free buffer of this size, 0 where there is none."""
        at = next((i for i in reversed(range(len(self.free))) if self.free[i][0] == size), None)
        return 0 if at is None else self.free.pop(at)[1]

    def give(self, buffer: int, size: int) -> None:
        """Take back an unused buffer for later tensors, so that loops use the same ones again; from any thread."""
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
    """A buffer, given back when neither a tensor nor a run has it any more.

    Attributes:
        runs: how many runs have it now.
        tensors: those whose memory it is. More than one where one has further rows after another's, or the same.
    """

    __slots__ = ("__weakref__", "buffer", "runs", "tensors")

    def __init__(self, device: Device, buffer: int, size: int) -> None:
        self.buffer, self.runs = buffer, 0
        self.tensors: weakref.WeakSet[DeviceTensor] = weakref.WeakSet()
        weakref.finalize(self, _pool(device).give, buffer, size).atexit = False


class DeviceTensor:
    """A dense tensor in a GPU buffer, which is given back when the last tensor in it is collected.

    Attributes:
        type: element type and shape.
        device: where it is.
        reserved: (axis, rows) where memory holds `rows` along `axis`, more than the type says; None: memory is exactly
            the tensor.
        counted: rows that count along the axis where `rewritten` left it; None: all do.
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
        memory.tensors.add(self)

    @property
    def buffer(self) -> int:
        """The number of its buffer."""
        return self._memory.buffer

    @property
    def is_lost(self) -> bool:
        """True where its device was lost, and its contents with it."""
        return self.device.lost is not None

    @property
    def in_use(self) -> bool:
        """True while a run reads or writes its memory: it may have dispatches that are not queued yet."""
        return self._memory.runs > 0

    @property
    def shared(self) -> bool:
        """True where its memory is another tensor's too."""
        return len(self._memory.tensors) > 1

    def again(self) -> DeviceTensor:
        """Return another tensor of the same contents in the same memory."""
        made = DeviceTensor(self.type, self.device, self._memory, self.reserved)
        made.counted = self.counted
        return made

    async def rewritten(self, first: int, end: int) -> DeviceTensor:
        """Return this tensor with rows from `first` on for the caller to write; those before `end` count then.

        It is this tensor's memory where none that count for a tensor in it are written over; else a copy.
        """
        there = [t.counted for t in self._memory.tensors]
        alone = self.reserved is None and all(n is not None and n <= first for n in there)
        made = self.again() if alone else await self.clone()
        made.counted = end
        return made

    def grown(self, kind: TensorType, axis: int, rows: int) -> DeviceTensor | Move:
        """Return a tensor of type `kind` that begins with these rows, in memory with `rows` of them along `axis`.

        The caller writes the rows after these. The result shares this tensor's memory where that has the capacity and
        no tensor has rows there yet; else it has to be moved. This tensor keeps its rows either way.
        """
        memory = self._memory
        if self.reserved == (axis, rows) and self.type.shape[axis] == max([t.type.shape[axis] for t in memory.tensors]):
            return DeviceTensor(kind, self.device, memory, self.reserved)
        return Move(self, kind, (axis, rows))

    @staticmethod
    async def moved(moves: Sequence[Move]) -> list[DeviceTensor]:
        """Copy tensors to separate memory, allocated in one call; all bytes are copied with one submit.

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
        """What is copied for `target` to begin with this tensor's rows."""
        reserved = target.reserved or self.reserved
        if reserved is None:
            return [(self.slice, target.slice)]
        rows = self.type.shape[reserved[0]]
        pairs = zip(self._blocks(reserved[0], rows), target._blocks(reserved[0], rows), strict=True)
        return [(source, made) for source, made in pairs if source.nbytes]

    def _blocks(self, axis: int, rows: int) -> list[Slice]:
        """Where the first rows along `axis` are, for each index of the axes before it."""
        shape = self.type.shape
        row = math.prod(shape[axis + 1 :]) * self.type.dtype.bits // 8
        there = self.reserved[1] if self.reserved else shape[axis]
        return [Slice(self.buffer, n * there * row, rows * row) for n in range(math.prod(shape[:axis]))]

    @property
    def slice(self) -> Slice:
        """All of it, whole words; of a tensor without reserved rows."""
        assert self.reserved is None
        return Slice(self.buffer, 0, round_up(self.type.nbytes))

    @staticmethod
    async def allocate(types: Sequence[TensorType], device: Device) -> list[DeviceTensor]:
        """Allocate tensors with arbitrary contents.

        Raises:
            OutOfMemory: the device refused.
            BindingError: an element type that the GPU does not hold (strings, complex numbers).
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
        """Free the buffers that are kept for the next tensors."""
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
        """Replace the contents by raw_data of the same length; of a tensor whose memory is not `shared`."""
        self.counted = None
        blocks = self._blocks(self.reserved[0], self.type.shape[self.reserved[0]]) if self.reserved else [self.content]
        offset = 0
        for block in blocks:
            if block.nbytes:
                self.device.write(block, raw, offset)
            offset += block.nbytes

    @property
    def content(self) -> Slice:
        """All of it, without padding; of a tensor without reserved rows."""
        return Slice(self.buffer, 0, self.type.nbytes)

    async def download(self) -> HostTensor:
        """Copy the tensor to the host."""
        if not self.type.nbytes:
            return HostTensor(self.type, b"")
        if self.reserved is not None:
            return await (await self.clone()).download()
        recording = self.device.record([])
        try:
            with Loans() as loans:
                (raw,) = await self.device.submit(recording, [], [Read(loans.lend(self).content)])
        finally:
            self.device.drop(recording)
        return HostTensor(self.type, raw)

    async def clone(self) -> DeviceTensor:
        """Copy the tensor on its device, into memory without reserved rows."""
        (made,) = await DeviceTensor.moved([Move(self, self.type, None)])
        return made

    async def materialize(self) -> None:
        """Move to a buffer that holds this tensor alone, for callers that read or write the buffer itself."""
        if self.reserved is not None or self.shared:
            self.exchange(await self.clone())

    @property
    def capacity(self) -> int:
        """Bytes of a buffer that holds this tensor alone."""
        return _capacity(self.type.nbytes)

    def materialize_in(self, buffer: int) -> None:
        """Move the tensor, as `materialize`, to this buffer of `capacity` bytes."""
        made = DeviceTensor(self.type, self.device, _Memory(self.device, buffer, self.capacity))
        made.counted = self.counted
        self.device.copy(self._pairs(made))
        self.exchange(made)

    def exchange(self, other: DeviceTensor) -> None:
        """Swap contents, and the device, with a tensor of the same type without moving a byte."""
        self._memory.tensors.discard(self)
        other._memory.tensors.discard(other)
        self._memory, other._memory = other._memory, self._memory
        self.device, other.device = other.device, self.device
        self.reserved, other.reserved = other.reserved, self.reserved
        self.counted, other.counted = other.counted, self.counted
        self._memory.tensors.add(self)
        other._memory.tensors.add(other)


class Loans:
    """The tensors that a run has, until it ends: runs that write to them meanwhile take other memory."""

    def __init__(self) -> None:
        self._memories: list[_Memory] = []

    def __enter__(self) -> Loans:
        return self

    def __exit__(self, *error: object) -> None:
        for memory in self._memories:
            memory.runs -= 1
        self._memories.clear()

    def lend(self, tensor: DeviceTensor) -> DeviceTensor:
        """Return the tensor as it is now, for the run."""
        memory = tensor._memory
        memory.runs += 1
        self._memories.append(memory)
        return tensor.again()


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of `tensor` as a tensor of `type` that begins with its rows.

    Attributes:
        reserved: the axis of the rows, and how many its memory holds; None: those of the type.
    """

    tensor: DeviceTensor
    type: TensorType
    reserved: tuple[int, int] | None

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        shape = list(self.type.shape)
        if self.reserved is not None:
            shape[self.reserved[0]] = self.reserved[1]
        return self.type.with_shape(*shape).nbytes
