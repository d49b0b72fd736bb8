"""Memory: which bytes of the arena each value owns, and when.

Values are placed offline, since all lifetimes are known: a storage gets the lowest gap among the storages alive with it
that fits best (offset assignment as dynamic storage allocation; greedy by size as in Pisarchyk and Lee, 2020). Several
orders are tried and the smallest arena is kept. Where that is not close to the lower bound, the best order is climbed
from: what lies at the top of the arena changes places with what is alive at the same time, while nothing gets worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias, TypeVar

__all__ = ["ALIGNMENT", "MemoryReport", "Storage", "grouped", "pack"]

T = TypeVar("T")

ALIGNMENT = 256
"""Bytes: WebGPU's strictest minStorageBufferOffsetAlignment."""

_SHARED = 4 << 20
"""Bytes of a buffer that several constants share, by default."""

CLIMBS = 400
"""Orders that are tried where the first ones stay away from the lower bound."""

CLIMBED = 60_000
"""Storages that are placed in these orders at most: planning must not take long."""

CLOSE = 1.02
"""Arena over lower bound that is good enough."""


@dataclass(slots=True)
class Storage:
    """Bytes that one or several values (aliases, in-place results) share.

    Attributes:
        names: the values, first the one that made it.
        nbytes: rounded up to `ALIGNMENT`.
        first, last: steps between which it must be kept, both included.
        arena, offset: where it was put.
    """

    names: list[str]
    nbytes: int
    first: int
    last: int
    arena: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What a plan needs on the GPU, in bytes.

    Attributes:
        peak: size of all arenas.
        lower_bound: the largest sum of live bytes at any step; no arena can be smaller.
        total_without_reuse: what the activations would take with a buffer each.
        weights: constants, and those that are computed from them once.
        storages: every storage, by offset, for charts.
        steps: number of steps lifetimes refer to.
    """

    peak: int
    lower_bound: int
    total_without_reuse: int
    weights: int
    storages: tuple[Storage, ...]
    steps: int


def round_up(nbytes: int) -> int:
    """Bytes rounded up to `ALIGNMENT`; at least one unit, so that zero-size tensors can be bound."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT or ALIGNMENT


def grouped(items: Sequence[T], sizes: Sequence[int], shared: int = _SHARED) -> list[list[T]]:
    """Constants by the buffers they go into, in their order: those smaller than `shared` bytes share some.

    Args:
        sizes: bytes of each; the fewest buffers if they descend.
    """
    groups: list[list[T]] = []
    free = 0
    for item, nbytes in zip(items, sizes, strict=True):
        size = round_up(nbytes)
        if size > free:
            groups.append([])
            free = max(shared, size)
        groups[-1].append(item)
        free -= size
    return groups


def lower_bound(storages: Sequence[Storage]) -> int:
    """Return the largest sum of live bytes at a step: no layout of memory needs less."""
    events = sorted([(s.first, 1, s.nbytes) for s in storages] + [(s.last, 2, -s.nbytes) for s in storages])
    live = most = 0
    for _, _, change in events:
        live += change
        most = max(most, live)
    return most


def pack(storages: Sequence[Storage], capacity: int) -> list[int]:
    """Assign `arena` and `offset` to every storage; returns the sizes of the arenas.

    Args:
        capacity: largest size of one arena; a storage alone may exceed it (the caller refuses that with numbers).
    """
    bound, packing = lower_bound(storages), _Packing(storages, capacity)
    best: _Placement | None = None
    for ordered in _orders(storages):
        placement = packing.placed(packing.numbers(ordered), best)
        if placement is not None and (best is None or placement.total < best.total):
            best = placement
        if best is not None and best.total <= bound:
            break
    assert best is not None
    chance = Random(0)
    for _ in range(min(CLIMBS, CLIMBED // len(storages))):
        if best.total <= bound * CLOSE:
            break
        changed, same = packing.neighbour(best, chance)
        placement = packing.placed(changed, best, same)
        if placement is not None and placement.height <= best.height:
            best = placement
    for storage, (arena, offset, _) in zip(storages, best.spots, strict=True):
        storage.arena, storage.offset = arena, offset
    return best.sizes


def _orders(storages: Sequence[Storage]) -> Iterator[list[Storage]]:
    """Orders to place storages in, the one that is usually best first."""
    yield sorted(storages, key=lambda s: (-s.nbytes, s.first))
    yield _by_breadth(storages)
    yield sorted(storages, key=lambda s: (-s.nbytes * (s.last - s.first + 1), s.first))
    yield sorted(storages, key=lambda s: (s.first, -s.nbytes))
    yield sorted(storages, key=lambda s: (s.first - s.last, -s.nbytes))


def _by_breadth(storages: Sequence[Storage]) -> list[Storage]:
    """The storages of the step with the most live bytes first, then those of the next, ..."""
    steps: dict[int, int] = {}
    for storage in storages:
        for step in range(storage.first, storage.last + 1):
            steps[step] = steps.get(step, 0) + storage.nbytes
    rank = {step: i for i, step in enumerate(sorted(steps, key=lambda t: -steps[t]))}
    widest = {id(s): min(rank[t] for t in range(s.first, s.last + 1)) for s in storages}
    return sorted(storages, key=lambda s: (widest[id(s)], -s.nbytes))


_Spot: TypeAlias = tuple[int, int, int]
"""Arena, offset and end of a storage."""


class _Placement:
    """Where storages are when they are placed in an order.

    Attributes:
        order: numbers of storages. spots: where each is, by number. sizes: of the arenas.
        highest: which of the order lie at the top of their arena.
        height: what climbing brings down: the total, and how many storages it is due to.
    """

    __slots__ = ("height", "highest", "order", "sizes", "spots", "total")

    def __init__(self, order: list[int], spots: list[_Spot], sizes: list[int]) -> None:
        self.order, self.spots, self.sizes, self.total = order, spots, sizes, sum(sizes)
        self.highest = [at for at, number in enumerate(order) if spots[number][2] == sizes[spots[number][0]]]
        self.height = self.total, len(self.highest)


class _Packing:
    """Storages by number, to be placed in many orders."""

    def __init__(self, storages: Sequence[Storage], capacity: int) -> None:
        self._capacity = capacity
        self._number = {id(s): n for n, s in enumerate(storages)}
        self._nbytes = [s.nbytes for s in storages]
        self._lives = [(s.first, s.last) for s in storages]
        self._together = self._alive_together(storages)

    def numbers(self, ordered: Sequence[Storage]) -> list[int]:
        """The numbers of storages."""
        return [self._number[id(s)] for s in ordered]

    def _alive_together(self, storages: Sequence[Storage]) -> list[list[int]]:
        """For each storage the others that are alive at a step of its."""
        found: list[list[int]] = [[] for _ in storages]
        alive: list[int] = []
        for number in sorted(range(len(storages)), key=lambda n: self._lives[n][0]):
            alive = [other for other in alive if self._lives[other][1] >= self._lives[number][0]]
            for other in alive:
                found[other].append(number)
            found[number] += alive
            alive.append(number)
        return found

    def neighbour(self, placement: _Placement, chance: Random) -> tuple[list[int], int]:
        """The order with a storage at the top of its arena moved before, or exchanged with, one alive at the same time.

        Returns:
            That order, and how many at its beginning are where they were.
        """
        order, lives = placement.order, self._lives
        top = chance.choice(placement.highest)
        first, last = lives[order[top]]
        other = chance.choice([at for at, n in enumerate(order) if lives[n][0] <= last and lives[n][1] >= first])
        changed, same = list(order), min(top, other)
        if chance.random() < 0.5:
            changed.insert(same, changed.pop(max(top, other)))
        else:
            changed[top], changed[other] = changed[other], changed[top]
        return changed, same

    def placed(self, order: list[int], best: _Placement | None, same: int = 0) -> _Placement | None:
        """The placement in this order; None where it takes more than `best`, whose first `same` it begins with."""
        spots: list[_Spot | None] = [None] * len(order)
        sizes: list[int] = []
        if best is not None:
            for number in order[:same]:
                spots[number] = arena, _, end = best.spots[number]
                sizes += [0] * (arena + 1 - len(sizes))
                sizes[arena] = max(sizes[arena], end)
        for number in order[same:]:
            nbytes = self._nbytes[number]
            others = sorted([spot for other in self._together[number] if (spot := spots[other]) is not None])
            arena = 0
            while True:
                if arena == len(sizes):
                    sizes.append(0)
                offset = _gap(others, arena, nbytes)
                if offset + nbytes <= self._capacity or not sizes[arena]:
                    break
                arena += 1
            end = offset + nbytes
            spots[number] = arena, offset, end
            if end > sizes[arena]:
                sizes[arena] = end
                if best is not None and sum(sizes) > best.total:
                    return None
        return _Placement(order, [spot for spot in spots if spot is not None], sizes)


def _gap(others: Sequence[_Spot], arena: int, nbytes: int) -> int:
    """The offset of the smallest gap that fits among `others` of this arena, which are in order; else the end."""
    end, least, best = 0, -1, -1
    for other, offset, stop in others:
        if other != arena:
            continue
        free = offset - end
        if free >= nbytes and (best < 0 or free < least):
            least, best = free, end
        if stop > end:
            end = stop
    return best if best >= 0 else end
