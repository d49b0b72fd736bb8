"""Memory: which bytes of the arena each value owns, and when.

Values are placed offline, since all lifetimes are known: a storage gets the lowest gap among the storages alive with it
that fits best (offset assignment as dynamic storage allocation; greedy by size as in Pisarchyk and Lee, 2020). Several
orders are tried and the smallest arena is kept. Where that is not close to the lower bound, the best order is climbed
from: what lies at the top of the arena changes places with what is alive at the same time, while nothing gets worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import TypeAlias

__all__ = ["ALIGNMENT", "MemoryReport", "Storage", "pack"]

ALIGNMENT = 256
"""Bytes: WebGPU's strictest minStorageBufferOffsetAlignment."""


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


_Together: TypeAlias = dict[int, list[Storage]]
_OFFSET = attrgetter("offset")


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What a plan needs on the GPU, in bytes.

    Attributes:
        peak: size of all arenas.
        lower_bound: the largest sum of live bytes at any step; no arena can be smaller.
        total_without_reuse: what the activations would take with a buffer each.
        weights: constants.
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
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


def lower_bound(storages: Sequence[Storage]) -> int:
    """The largest sum of bytes alive at one step."""
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
    bound, together = lower_bound(storages), _together(storages)
    best: _Placement | None = None
    for ordered in _orders(storages):
        placement = _Placement.of(ordered, together, capacity)
        if best is None or placement.total < best.total:
            best = placement
        if best.total <= bound:
            break
    assert best is not None
    chance = Random(0)
    for _ in range(min(CLIMBS, CLIMBED // len(storages))):
        if best.total <= bound * CLOSE:
            break
        placement = _Placement.of(_neighbour(best, chance), together, capacity)
        if placement.height() <= best.height():
            best = placement
    best.assign()
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


@dataclass(frozen=True, slots=True)
class _Placement:
    """Where storages are when they are placed in this order."""

    ordered: list[Storage]
    sizes: list[int]
    places: list[tuple[int, int]]

    @staticmethod
    def of(ordered: list[Storage], together: _Together, capacity: int) -> _Placement:
        sizes = _place(ordered, together, capacity)
        return _Placement(ordered, sizes, [(s.arena, s.offset) for s in ordered])

    @property
    def total(self) -> int:
        return sum(self.sizes)

    def highest(self) -> list[int]:
        """Which storages of the order lie at the top of their arena."""
        top = self.sizes
        return [i for i, (arena, offset) in enumerate(self.places) if offset + self.ordered[i].nbytes == top[arena]]

    def height(self) -> tuple[int, int]:
        """What climbing brings down: the total, and how many storages it is due to."""
        return self.total, len(self.highest())

    def assign(self) -> None:
        for storage, (arena, offset) in zip(self.ordered, self.places, strict=True):
            storage.arena, storage.offset = arena, offset


def _neighbour(placement: _Placement, chance: Random) -> list[Storage]:
    """The order with a storage at the top of its arena moved before, or exchanged with, one alive at the same time."""
    ordered = placement.ordered
    top = chance.choice(placement.highest())
    first, last = ordered[top].first, ordered[top].last
    other = chance.choice([i for i, s in enumerate(ordered) if s.first <= last and s.last >= first])
    changed = list(ordered)
    if chance.random() < 0.5:
        changed.insert(min(top, other), changed.pop(max(top, other)))
    else:
        changed[top], changed[other] = changed[other], changed[top]
    return changed


def _together(storages: Sequence[Storage]) -> _Together:
    """The storages alive at a step of each one's, by the id of that one."""
    found: _Together = {id(s): [] for s in storages}
    alive: list[Storage] = []
    for storage in sorted(storages, key=lambda s: s.first):
        alive = [other for other in alive if other.last >= storage.first]
        for other in alive:
            found[id(other)].append(storage)
        found[id(storage)] += alive
        alive.append(storage)
    return found


def _place(ordered: Sequence[Storage], together: _Together, capacity: int) -> list[int]:
    """Set `arena` and `offset` of each, in this order; returns the sizes of the arenas."""
    placed: set[int] = set()
    sizes: list[int] = []
    for storage in ordered:
        others = sorted((o for o in together[id(storage)] if id(o) in placed), key=_OFFSET)
        arena = 0
        while True:
            if arena == len(sizes):
                sizes.append(0)
            offset = _gap(others, arena, storage.nbytes)
            if offset + storage.nbytes <= capacity or not sizes[arena]:
                break
            arena += 1
        storage.arena, storage.offset = arena, offset
        placed.add(id(storage))
        sizes[arena] = max(sizes[arena], offset + storage.nbytes)
    return sizes


def _gap(others: Sequence[Storage], arena: int, nbytes: int) -> int:
    """The offset of the smallest gap that fits among `others` of this arena, which are in order; else the end."""
    end = 0
    best: tuple[int, int] | None = None
    for other in others:
        if other.arena != arena:
            continue
        room = other.offset - end
        if room >= nbytes and (best is None or room < best[0]):
            best = room, end
        end = max(end, other.offset + other.nbytes)
    return best[1] if best else end
