"""Order: another order of a model's nodes where that needs less memory.

The peak of activations is a property of the order: what waits while others run is alive. Exporters' orders are mostly
good; in networks of branches (NASNet's cells) a value is often made long before it is wanted, or wanted long after it
could have been used up. From the model's own order, nodes that keep memory alive at the peak are moved past it: what
made an idle value, with all that follows from it, to later, and what waits for one, with all that it needs, to earlier.
The best move is taken until none lowers the peak.
Finding the least peak is NP-complete (Sethi, 1975: register allocation); this is a descent, whose every step is
checked, so the result is never worse than the model's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyruntime.compiler.memory import round_up
from pyruntime.compiler.placement import Placed
from pyruntime.ir import TensorType, TypedGraph, upper
from pyruntime.kernels import Role
from pyruntime.ops.caches import overwritten

__all__ = ["less_memory"]

CLOSE = 1.02
"""Peak over what one node needs that is good enough, and what a new order has to bring."""

MOVES = 400
"""Orders that are tried at most."""

MOVED = 40_000
"""Nodes in these orders together at most: planning must not take long."""

SHARPNESS = 24
"""Of two orders with one peak the better is that of fewer, lower steps near it: the sum of (bytes / peak)^24."""


def less_memory(graph: TypedGraph, placed: Sequence[Placed]) -> list[Placed]:
    """`placed`, all of whose nodes run on the GPU, in an order that needs less memory, or as it is."""
    if sum(1 for p in placed if p.dispatches) < 2 or not _is_free(graph, placed):
        return list(placed)
    values = _Values.of(graph, placed)
    if values is None or values.peak <= CLOSE * values.floor:
        return list(placed)
    order = _Descent(values).run()
    return [placed[i] for i in order]


def _is_free(graph: TypedGraph, placed: Sequence[Placed]) -> bool:
    """Whether any topological order will do: all nodes run on the GPU, none in place."""
    return not graph.states and not any(p.where == "host" or p.where == "forward" or _overwrites(p) for p in placed)


def _overwrites(placed: Placed) -> bool:
    return bool(overwritten(placed.node.op))


@dataclass(eq=False, slots=True)
class _Values:
    """The storages of a graph, and when nodes use them.

    Attributes:
        count: nodes.
        makers: node that makes each storage, -1 for what is there from the start.
        users: nodes that read or write each storage, its maker included.
        sizes: bytes. kept: whether it is needed to the end.
        scratch: bytes of each node's own.
        pairs: (node, storage read, storage made) where the result may take the memory of what dies.
        before, after: nodes that each node reads from, and that read from it.
    """

    count: int
    makers: list[int]
    users: list[list[int]]
    sizes: list[int]
    kept: list[bool]
    scratch: list[int]
    pairs: list[tuple[int, int, int]]
    before: list[set[int]]
    after: list[set[int]]

    @staticmethod
    def of(graph: TypedGraph, placed: Sequence[Placed]) -> _Values | None:
        """What the nodes read and make; None where there is nothing to order."""
        roots: dict[str, str] = {}
        numbers: dict[str, int] = {}
        made = _Values(len(placed), [], [], [], [], [0] * len(placed), [], [], [])
        maker_of: dict[str, int] = {}
        fixed = {*graph.constants, *graph.resident}

        def storage(name: str, maker: int) -> int | None:
            while name in roots:
                name = roots[name]
            if name in fixed:
                return None
            if name not in numbers:
                numbers[name] = len(made.sizes)
                made.makers.append(maker)
                made.users.append([])
                made.sizes.append(round_up(upper(graph.tensor(name).nbytes)))
                made.kept.append(False)
            return numbers[name]

        for i, p in enumerate(placed):
            made.before.append({maker_of[n] for n in p.reads if n in maker_of})
            if p.alias is not None:
                roots[p.node.outputs[0]] = p.reads[0]
            touched = {storage(n, -1) for n in p.reads} | {storage(n, i) for n in p.node.outputs if n}
            for number in touched - {None}:
                made.users[number].append(i)  # type: ignore[index]
            maker_of |= {n: i for n in p.node.outputs if n}
            made._note_memory(i, p, lambda n: storage(n, -1))
        for name in graph.outputs:
            if isinstance(graph.types[name], TensorType) and (number := storage(name, -1)) is not None:
                made.kept[number] = True
        made.after = [set() for _ in placed]
        for i, sources in enumerate(made.before):
            for source in sources:
                made.after[source].add(i)
        return made if made.sizes else None

    def _note_memory(self, node: int, placed: Placed, storage: Callable[[str], int | None]) -> None:
        """The node's scratch, unnamed outputs too, and where its result may overwrite what it reads."""
        named = {at for at, name in enumerate(placed.node.outputs) if name}
        taken: dict[tuple[Role, int], int] = {}
        for dispatch in placed.dispatches:
            for operand in dispatch.operands:
                if operand.role is Role.SCRATCH or (operand.role is Role.OUTPUT and operand.index not in named):
                    taken[operand.role, operand.index] = round_up(upper(operand.type.nbytes))
        self.scratch[node] = sum(taken.values())
        if not placed.dispatches:
            return
        last = placed.dispatches[-1]
        for read, written in last.inplace:
            a, b = last.operands[read], last.operands[written]
            if a.role is not Role.INPUT or b.role is not Role.OUTPUT or b.index not in named:
                continue
            if not last.kernel.can_share(read, written):
                continue
            source, result = storage(placed.node.inputs[a.index]), storage(placed.node.outputs[b.index])
            if source is not None and result is not None and self.sizes[source] == self.sizes[result]:
                self.pairs.append((node, source, result))

    @property
    def floor(self) -> int:
        """Return the bytes that the largest node needs in any order: inputs, outputs and scratch memory."""
        need = list(self.scratch)
        for users, size in zip(self.users, self.sizes, strict=True):
            for node in users:
                need[node] += size
        saved = [0] * self.count
        for node, _, result in self.pairs:
            saved[node] = max(saved[node], self.sizes[result])
        return max(n - s for n, s in zip(need, saved, strict=True))

    @property
    def peak(self) -> int:
        """The most bytes alive in the model's order."""
        return int(_Clock(self).alive(np.arange(self.count)).max())


class _Clock:
    """The bytes alive at each step of an order."""

    def __init__(self, values: _Values) -> None:
        self.count = values.count
        self.sizes = np.array(values.sizes, np.int64)
        self.makers = np.array(values.makers)
        self.kept = np.array(values.kept)
        self.flat = np.array([u for users in values.users for u in users] or [0])
        self.starts = np.cumsum([0, *(len(users) for users in values.users[:-1])])
        self.scratch = np.array(values.scratch, np.int64)
        self.pairs = np.array(values.pairs, np.int64).reshape(-1, 3)

    def alive(self, place: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes by step; `place` has the step of each node."""
        first = np.where(self.makers >= 0, place[self.makers], 0)
        last = np.maximum.reduceat(place[self.flat], self.starts)
        last[self.kept] = self.count  # read back after the last step
        change = np.zeros(self.count + 2, np.int64)
        np.add.at(change, first, self.sizes)
        np.add.at(change, last + 1, -self.sizes)
        total = np.cumsum(change)[: self.count]
        total[place] += self.scratch
        node, source, result = self.pairs.T
        dies = (last[source] == place[node]) & (first[result] == place[node])
        saved = np.zeros(self.count, np.int64)
        np.maximum.at(saved, place[node], np.where(dies, self.sizes[result], 0))
        found: NDArray[np.int64] = total - saved
        return found


class _Descent:
    """Moves past the peak, the best one first, from the model's order on."""

    def __init__(self, values: _Values) -> None:
        self.values, self.clock = values, _Clock(values)
        self.order = list(range(values.count))
        self.left = min(MOVES, MOVED // values.count)

    def run(self) -> list[int]:
        """The best order found; the model's own where none is better by more than `CLOSE` tells."""
        alive = self.clock.alive(np.arange(self.values.count))
        start = peak = int(alive.max())
        floor = self.values.floor
        while peak > CLOSE * floor and self.left > 0:
            best, found = self._price(alive, peak), None
            for order in self._moved(int(alive.argmax())):
                self.left -= 1
                now = self.clock.alive(_places(order))
                price = self._price(now, peak)
                if price < best:
                    best, found = price, (order, now)
                if self.left <= 0:
                    break
            if found is None:
                break
            self.order, alive = found
            peak = int(alive.max())
        return self.order if start > CLOSE * peak else list(range(self.values.count))

    @staticmethod
    def _price(alive: NDArray[np.int64], scale: int) -> tuple[int, float]:
        return int(alive.max()), float(((alive / scale) ** SHARPNESS).sum())

    def _moved(self, step: int) -> Iterator[list[int]]:
        """Orders in which less is alive at `step`, where the largest values stand in the way first."""
        values, place = self.values, _places(self.order).tolist()
        waiting = [
            n
            for n, users in enumerate(values.users)
            if (values.makers[n] < 0 or place[values.makers[n]] < step)
            and (values.kept[n] or any(place[u] > step for u in users))
        ]
        waiting.sort(key=lambda n: -values.sizes[n])
        for number in waiting:
            maker = values.makers[number]
            if maker >= 0:
                yield from self._past(self._closure([maker], values.after, place, step, -1), values.after, step, 1)
            if not values.kept[number]:
                readers = [u for u in values.users[number] if place[u] > step]
                yield from self._past(self._closure(readers, values.before, place, step, 1), values.before, step, 0)

    def _closure(
        self, start: Iterable[int], edges: Sequence[set[int]], place: Sequence[int], step: int, side: int
    ) -> set[int]:
        """Nodes that have to move along, all on one side of `step`; none where the node at `step` is among them."""
        found, stack, at = set(start), list(start), self.order[step]
        while stack:
            for other in edges[stack.pop()]:
                if other == at:
                    return set()
                if (place[other] - step) * side > 0 and other not in found:
                    found.add(other)
                    stack.append(other)
        return found

    def _past(self, moved: set[int], edges: Sequence[set[int]], step: int, later: int) -> Iterator[list[int]]:
        """The order with these on the other side of `step`: right there, and as far from it as they may be.

        Args:
            edges: of each node those that stay on that side of it. later: 1 where that is after `step`, else 0.
        """
        if not moved:
            return
        block, rest = [i for i in self.order if i in moved], [i for i in self.order if i not in moved]
        near = rest.index(self.order[step]) + later
        bounds = set().union(*(edges[i] for i in moved)) - moved
        places = [k for k, i in enumerate(rest) if i in bounds]
        far = min(places, default=len(rest)) if later else max(places, default=-1) + 1
        for at in dict.fromkeys((near, far)):
            yield [*rest[:at], *block, *rest[at:]]


def _places(order: Sequence[int]) -> NDArray[np.int64]:
    place = np.empty(len(order), np.int64)
    place[np.array(order)] = np.arange(len(order))
    return place
