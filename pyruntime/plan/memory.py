"""Memory: which bytes of the arena each value owns, and when.

Values are placed offline, since all lifetimes are known: a storage gets the lowest gap among the storages alive with it
that fits best (offset assignment as dynamic storage allocation; greedy by size as in Pisarchyk and Lee, 2020). Several
orders are tried and the smallest arena is kept; where that is not close to the lower bound, orders with random weights
(of a fixed seed) follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

__all__ = ["ALIGNMENT", "MemoryReport", "Storage", "pack"]

ALIGNMENT = 256
"""Bytes: WebGPU's strictest minStorageBufferOffsetAlignment."""


SHAKES = 32
"""Orders by size with random weights that are tried where the first ones stay away from the lower bound."""

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
    bound = lower_bound(storages)
    best: tuple[int, list[int], list[tuple[int, int]]] | None = None
    for ordered in _orders(storages):
        best = _better(best, storages, ordered, capacity)
        if best[0] <= bound:
            break
    assert best is not None
    shake = Random(0)
    for _ in range(SHAKES):
        if best[0] <= bound * CLOSE:
            break
        weight = {id(s): 1 + shake.random() * shake.choice((0.3, 1, 3)) for s in storages}
        shaken = sorted(storages, key=lambda s: (-s.nbytes * weight[id(s)], s.first))
        best = _better(best, storages, shaken, capacity)
    _assign(storages, best[2])
    return best[1]


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


def _better(
    best: tuple[int, list[int], list[tuple[int, int]]] | None,
    storages: Sequence[Storage],
    ordered: Sequence[Storage],
    capacity: int,
) -> tuple[int, list[int], list[tuple[int, int]]]:
    """The placement in this order if it is smaller than `best`, else `best`."""
    sizes = _place(ordered, capacity)
    total = sum(sizes)
    if best is not None and total >= best[0]:
        return best
    return total, sizes, [(s.arena, s.offset) for s in storages]


def _assign(storages: Sequence[Storage], places: Sequence[tuple[int, int]]) -> None:
    for storage, (arena, offset) in zip(storages, places, strict=True):
        storage.arena, storage.offset = arena, offset


def _place(ordered: Sequence[Storage], capacity: int) -> list[int]:
    placed: list[list[Storage]] = []
    sizes: list[int] = []
    for storage in ordered:
        arena = 0
        while True:
            if arena == len(placed):
                placed.append([])
                sizes.append(0)
            offset = _gap(placed[arena], storage)
            if offset + storage.nbytes <= capacity or not placed[arena]:
                break
            arena += 1
        storage.arena, storage.offset = arena, offset
        _insert(placed[arena], storage)
        sizes[arena] = max(sizes[arena], offset + storage.nbytes)
    return sizes


def _insert(placed: list[Storage], storage: Storage) -> None:
    """Keep `placed` sorted by offset."""
    at = len(placed)
    while at and placed[at - 1].offset > storage.offset:
        at -= 1
    placed.insert(at, storage)


def _gap(placed: Sequence[Storage], storage: Storage) -> int:
    """The offset of the smallest gap that fits among storages alive with this one, else the end."""
    end = 0
    best: tuple[int, int] | None = None
    for other in placed:
        if other.first > storage.last or other.last < storage.first:
            continue
        room = other.offset - end
        if room >= storage.nbytes and (best is None or room < best[0]):
            best = room, end
        end = max(end, other.offset + other.nbytes)
    return best[1] if best else end
