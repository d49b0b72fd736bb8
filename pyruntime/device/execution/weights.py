"""Constants on the device: uploaded or computed once, shared by all plans of a session, freed with the last of them."""

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
    """A buffer, and the number of constants in it."""

    number: int
    nbytes: int
    used: int = 0


@dataclass(slots=True)
class _Held:
    """A constant on the device, and the number of plans that use it.

    `source` is kept alive, since the key may contain its address.
    """

    place: Slice
    buffer: _Buffer
    users: int = 0
    source: Any = field(default=None)


class Weights:
    """Constants on a device, by key (`Constant.key`; for computed constants, their operators and constant inputs).

    Each `load` or `compute` needs a `drop`. Unused constants stay on the device until `sweep`, so that a plan that
    replaces another one finds them.
    """

    def __init__(self, device: Device, lender: Weights | None = None) -> None:
        """Create an empty set. Constants that `lender` has on the device, or is uploading, are not uploaded again."""
        self._device = device
        self._held: dict[Hashable, _Held] = {}
        self._coming: dict[Hashable, asyncio.Event] = {}
        self._lender = lender
        self._lent: set[Hashable] = set()

    async def load(self, constants: Sequence[Constant]) -> None:
        """Use these constants. Missing ones are uploaded; small ones share buffers."""
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
        """Upload constants, without users yet."""
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
        """Return whether one of these constants is being uploaded."""
        return any(c.key in self._coming for c in constants)

    async def lend(self, constants: Sequence[Constant]) -> set[Hashable]:
        """Use those of the constants that are on the device or being uploaded; return their keys, for `drop`."""
        for uploaded in {self._coming[c.key] for c in constants if c.key in self._coming}:
            while not uploaded.is_set():
                await (let_others() if is_blocking() else uploaded.wait())
        keys = {c.key for c in constants if c.key in self._held}
        for key in keys:
            self._held[key].users += 1
        return keys

    async def compute(self, key: Hashable, nbytes: int, make: Callable[[], Awaitable[int]]) -> int:
        """Use a computed constant, which `make` computes into a buffer where it is missing; return its buffer."""
        if key not in self._held:
            number = await make()
            self._device.ledger.relabel(number, "computed")
            self._held[key] = _Held(Slice(number, 0, nbytes), _Buffer(number, round_up(nbytes), 1))
        self._held[key].users += 1
        return self._held[key].place.buffer

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Release these constants once, after one `load` or `compute`."""
        for key in keys:
            if key in self._held:
                self._held[key].users -= 1

    def sweep(self) -> None:
        """Free constants that no plan uses."""
        for key in [k for k, held in self._held.items() if held.users <= 0]:
            buffer = self._held.pop(key).buffer
            buffer.used -= 1
            if buffer.used == 0:
                self._device.free([buffer.number])

    @property
    def nbytes(self) -> int:
        """Bytes of the constants' buffers."""
        return sum(b.nbytes for b in {id(h.buffer): h.buffer for h in self._held.values()}.values())

    def missing(self, constants: Iterable[Constant]) -> int:
        """Return the bytes that `load` would allocate for these constants."""
        fresh = {c.key: c.nbytes for c in constants}
        return sum(round_up(nbytes) for key, nbytes in fresh.items() if key not in self._held)

    def __contains__(self, key: Hashable) -> bool:
        """Return whether a constant is on the device."""
        return key in self._held

    def slice(self, constant: Constant) -> Slice:
        """Return the location of a loaded constant."""
        if self._lender is not None and constant.key in self._lent:
            return self._lender.slice(constant)
        return self._held[constant.key].place

    def release(self) -> None:
        """Free all constants, and release those of the lender."""
        if self._lender is not None:
            self._lender.drop(self._lent)
        self._device.free(list({h.buffer.number for h in self._held.values()}))
        self._held = {}
