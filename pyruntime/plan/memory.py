"""Memory: which bytes of the arena each value owns, and when.

Values are placed offline, since all lifetimes are known: a storage gets the lowest gap among the storages alive with it
that fits best (offset assignment as dynamic storage allocation; greedy by size as in Pisarchyk and Lee, 2020). Several
orders are tried and the smallest arena is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "MemoryReport", "Storage", "pack"]

ALIGNMENT = 256
"""Bytes: WebGPU's strictest minStorageBufferOffsetAlignment."""


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
    orders: tuple[Callable[[Storage], tuple[int, ...]], ...] = (
        lambda s: (-s.nbytes, s.first),
        lambda s: (-s.nbytes * (s.last - s.first + 1), s.first),
        lambda s: (s.first, -s.nbytes),
        lambda s: (s.first - s.last, -s.nbytes),
    )
    best: tuple[int, list[int], list[tuple[int, int]]] | None = None
    for order in orders:
        sizes = _place(sorted(storages, key=order), capacity)
        total = sum(sizes)
        if best is None or total < best[0]:
            best = total, sizes, [(s.arena, s.offset) for s in storages]
        if total <= bound:
            break
    assert best is not None
    for storage, (arena, offset) in zip(storages, best[2], strict=True):
        storage.arena, storage.offset = arena, offset
    return best[1]


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
