"""Constants on the device: each computed once, uploaded once, shared by all plans of a session, freed with the last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.compiler.memory import grouped, round_up
from pyruntime.device.base import Device, Slice, Write
from pyruntime.ir import Constant

__all__ = ["Weights"]


@dataclass(slots=True)
class _Buffer:
    """A buffer and how many constants in it are used."""

    number: int
    nbytes: int
    used: int = 0


@dataclass(slots=True)
class _Held:
    """A constant on the device: where, and how many plans use it. Its source stays, since its key may be its place."""

    place: Slice
    buffer: _Buffer
    users: int = 0
    source: Any = field(default=None)


class Weights:
    """Constants by what they are (`Constant.key`; for computed ones, the operators and constants they follow from).

    Each `load` or `compute` needs a `drop`. Unused constants leave the device only with `sweep`, so that a plan that
    replaces another one finds them there.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._held: dict[Hashable, _Held] = {}

    async def load(self, constants: Sequence[Constant]) -> None:
        """Use these constants: upload those that are not there yet, small ones packed into common buffers."""
        fresh = {c.key: c for c in constants if c.key not in self._held}
        largest_first = sorted(fresh.values(), key=lambda c: -c.nbytes)
        groups = grouped(largest_first, [c.nbytes for c in largest_first])
        sizes = [sum(round_up(c.nbytes) for c in group) for group in groups]
        buffers = await self._device.allocate(sizes, "weights")
        made: dict[Hashable, _Held] = {}
        writes = []
        for number, size, group in zip(buffers, sizes, groups, strict=True):
            buffer = _Buffer(number, size, len(group))
            offset = 0
            for constant in group:
                place = Slice(number, offset, constant.nbytes)
                if constant.nbytes:
                    writes.append(Write(place, constant.source, constant.offset))
                made[constant.key] = _Held(place, buffer, 0, constant.source)
                offset += round_up(constant.nbytes)
        try:
            await self._device.upload(writes)
        except BaseException:
            self._device.free(buffers)
            raise
        self._held |= made
        for key in {c.key for c in constants}:
            self._held[key].users += 1

    async def compute(self, key: Hashable, nbytes: int, make: Callable[[], Awaitable[int]]) -> int:
        """Use a computed constant: the number of its buffer, which `make` gives where it is not there yet."""
        if key not in self._held:
            number = await make()
            self._device.ledger.relabel(number, "computed")
            self._held[key] = _Held(Slice(number, 0, nbytes), _Buffer(number, round_up(nbytes), 1))
        self._held[key].users += 1
        return self._held[key].place.buffer

    def drop(self, keys: Iterable[Hashable]) -> None:
        """End the use of these; each key once for each `load` or `compute`."""
        for key in keys:
            if key in self._held:
                self._held[key].users -= 1

    def sweep(self) -> None:
        """Free unused constants."""
        for key in [k for k, held in self._held.items() if held.users <= 0]:
            buffer = self._held.pop(key).buffer
            buffer.used -= 1
            if buffer.used == 0:
                self._device.free([buffer.number])

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(b.nbytes for b in {id(h.buffer): h.buffer for h in self._held.values()}.values())

    def missing(self, constants: Iterable[Constant]) -> int:
        """Return the bytes that `load` would allocate for these."""
        fresh = {c.key: c.nbytes for c in constants}
        return sum(round_up(nbytes) for key, nbytes in fresh.items() if key not in self._held)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a constant is on the device."""
        return key in self._held

    def slice(self, constant: Constant) -> Slice:
        """Return where a loaded constant is."""
        return self._held[constant.key].place

    def release(self) -> None:
        """Free everything."""
        self._device.free(list({h.buffer.number for h in self._held.values()}))
        self._held = {}
