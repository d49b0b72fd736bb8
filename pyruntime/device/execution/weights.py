"""Constants on the device: each computed once, uploaded once, shared by all plans of a session, freed with the last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.compiler.memory import grouped, round_up
from pyruntime.device.base import Device, Slice, Write
from pyruntime.device.blocking import is_blocking, let_others
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

    def __init__(self, device: Device, lender: Weights | None = None) -> None:
        """Constants on `device`; what `lender` has there or uploads is used, not uploaded again."""
        self._device = device
        self._held: dict[Hashable, _Held] = {}
        self._coming: dict[Hashable, asyncio.Event] = {}
        self._lender = lender
        self._lent: set[Hashable] = set()

    async def load(self, constants: Sequence[Constant]) -> None:
        """Use these constants: upload those that are not there yet, small ones packed into common buffers."""
        if self._lender is not None:
            lent = await self._lender.lend(constants)
            self._lent |= lent
            constants = [c for c in constants if c.key not in lent]
        fresh = {c.key: c for c in constants if c.key not in self._held}
        uploaded = asyncio.Event()
        self._coming |= dict.fromkeys(fresh, uploaded)
        try:
            await self._upload(fresh)
        finally:
            uploaded.set()
            for key in fresh:
                self._coming.pop(key, None)
        for key in {c.key for c in constants}:
            self._held[key].users += 1

    async def _upload(self, fresh: Mapping[Hashable, Constant]) -> None:
        """Upload constants, which are then held by no user."""
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

    def is_coming(self, constants: Iterable[Constant]) -> bool:
        """Whether one of these is being uploaded."""
        return any(c.key in self._coming for c in constants)

    async def lend(self, constants: Sequence[Constant]) -> set[Hashable]:
        """Use those of these constants that are on the device, or being uploaded; returns the keys, for `drop`."""
        for uploaded in {self._coming[c.key] for c in constants if c.key in self._coming}:
            while not uploaded.is_set():
                await (let_others() if is_blocking() else uploaded.wait())
        keys = {c.key for c in constants if c.key in self._held}
        for key in keys:
            self._held[key].users += 1
        return keys

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
        if self._lender is not None and constant.key in self._lent:
            return self._lender.slice(constant)
        return self._held[constant.key].place

    def release(self) -> None:
        """Free everything, and end the use of what is lent."""
        if self._lender is not None:
            self._lender.drop(self._lent)
        self._device.free(list({h.buffer.number for h in self._held.values()}))
        self._held = {}
