"""Lifetimes: which values share storage, and from which step to which it must be kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyruntime.compiler.memory import Storage, round_up
from pyruntime.kernels import Dispatch

__all__ = ["Lifetimes", "Step", "same_place"]


@dataclass(slots=True)
class Step:
    """One dispatch: the value each operand is, in binding order, and its number in time."""

    dispatch: Dispatch
    values: tuple[str, ...]
    time: int
    node: int


@dataclass(slots=True)
class Lifetimes:
    """Storages of the activation arena, built from definitions and uses of values over time.

    Attributes:
        fixed: values that are not in the arena (constants, tensors that stay on the GPU between stages).
    """

    fixed: set[str]
    _root: dict[str, str] = field(default_factory=dict)
    _nbytes: dict[str, int] = field(default_factory=dict)
    _first: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)

    def root(self, name: str) -> str:
        """Return the value whose storage `name` uses; itself if it has storage."""
        while name in self._root:
            name = self._root[name]
        return name

    def alias(self, name: str, of: str) -> None:
        """Note that `name` is a view: it has the bytes of `of`."""
        self._root[name] = of

    def define(self, name: str, nbytes: int, time: int) -> None:
        """`name` gets storage at `time`, unless it already has some; an alias has that of what it is the bytes of."""
        root = self.root(name)
        if root not in self.fixed:
            if root == name:
                self._nbytes[root] = max(round_up(nbytes), self._nbytes.get(root, 0))
            self._first[root] = min(time, self._first.get(root, time))
            self._last[root] = max(time, self._last.get(root, time))

    def begin(self, name: str) -> int:
        """When the storage of `name` was first needed; before all steps where it is not in the arena."""
        return self._first.get(self.root(name), -1)

    def use(self, name: str, time: int) -> None:
        """Note that a step at `time` reads or writes `name`: its storage lives until then."""
        root = self.root(name)
        if root not in self.fixed:
            self._last[root] = max(time, self._last.get(root, time))

    def share_in_place(self, steps: Iterable[Step]) -> int:
        """Let results overwrite operands that die with the dispatch; returns how many did.

        Every operand on the storage that is overwritten must be one that the dispatch lists in `inplace`.
        """
        count = 0
        for step in steps:
            for read, written in step.dispatch.inplace:
                source, result = self.root(step.values[read]), self.root(step.values[written])
                if source in self.fixed or result in self.fixed or source == result:
                    continue
                dies = self._last[source] == step.time and self._first[result] == step.time
                if not dies or self._nbytes[source] != self._nbytes[result]:
                    continue
                there = [i for i, v in enumerate(step.values) if self.root(v) == source]
                if all((i, written) in step.dispatch.inplace and same_place(step.dispatch, i, written) for i in there):
                    self._merge(source, result)
                    count += 1
                    break
        return count

    def _merge(self, source: str, result: str) -> None:
        self._root[result] = source
        self._last[source] = max(self._last.pop(result), self._last[source])
        del self._first[result], self._nbytes[result]

    def storages(self) -> dict[str, Storage]:
        """Return a storage, with its lifetime, for each value that is no view."""
        made = {n: Storage([n], self._nbytes[n], self._first[n], self._last[n]) for n in self._first}
        for name in self._root:
            root = self.root(name)
            if root in made:
                made[root].names.append(name)
        return made


def same_place(dispatch: Dispatch, read: int, written: int) -> bool:
    """True where element i of both is at the same bytes, and the kernel can have them as one array."""
    widths = [dispatch.operands[i].type.nbytes for i in (read, written)]
    return widths[0] == widths[1] and dispatch.kernel.can_share(read, written)
