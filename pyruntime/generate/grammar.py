"""Grammars as automata over characters with a call stack, made deterministic during traversal.

An expression is built with `text`, `chars`, `sequence`, `choice`, `repeat` and `call`. Rules are named expressions and
may call each other, except at their start. A state is a frozenset of (node, stack), where the stack has the nodes to
return to. `Automaton.least` is the least number of characters to the end, for generation with a length limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyruntime.errors import InvalidArgument

__all__ = ["ANY", "Automaton", "Expression", "Ranges", "call", "chars", "choice", "repeat", "sequence", "text"]

Ranges = tuple[tuple[int, int], ...]
"""Ranges of code points, inclusive, sorted."""

Stack = tuple[Any, ...]
State = frozenset[tuple[int, Stack]]

ANY: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
_FAR = 1 << 40

Expression = Callable[["_Nodes", int], int]
"""Function that adds an expression to the graph after a node; returns the end node."""


class _Nodes:
    """Outgoing edges of each node: empty ones, ones that consume a character, and calls of rules."""

    def __init__(self) -> None:
        self.free: list[list[int]] = []
        self.chars: list[list[tuple[int, int, int]]] = []
        self.calls: list[list[tuple[str, int]]] = []

    def new(self) -> int:
        self.free.append([])
        self.chars.append([])
        self.calls.append([])
        return len(self.free) - 1


def text(value: str) -> Expression:
    """Match a string."""
    return sequence(*(chars(((ord(c), ord(c)),)) for c in value))


def chars(ranges: Ranges) -> Expression:
    """Match one character in these ranges."""
    if not ranges:
        raise InvalidArgument("a character class is empty: nothing can match it")

    def add(nodes: _Nodes, at: int) -> int:
        end = nodes.new()
        nodes.chars[at] += [(a, b, end) for a, b in ranges]
        return end

    return add


def sequence(*parts: Expression) -> Expression:
    """Match the parts in sequence."""

    def add(nodes: _Nodes, at: int) -> int:
        for part in parts:
            at = part(nodes, at)
        return at

    return add


def choice(*parts: Expression) -> Expression:
    """Match one of the parts."""

    def add(nodes: _Nodes, at: int) -> int:
        end = nodes.new()
        for part in parts:
            begin = nodes.new()
            nodes.free[at].append(begin)
            nodes.free[part(nodes, begin)].append(end)
        return end

    return add


def repeat(part: Expression, least: int = 0, most: int | None = None) -> Expression:
    """Match `part` `least` to `most` times; None: no upper limit."""

    def add(nodes: _Nodes, at: int) -> int:
        for _ in range(least):
            at = part(nodes, at)
        if most is None:
            loop = nodes.new()
            nodes.free[at].append(loop)
            nodes.free[part(nodes, loop)].append(loop)
            at = nodes.new()
            nodes.free[loop].append(at)
            return at
        end = nodes.new()
        for _ in range(most - least):
            nodes.free[at].append(end)
            at = part(nodes, at)
        nodes.free[at].append(end)
        return end

    return add


def call(rule: str) -> Expression:
    """Match a rule, by name."""

    def add(nodes: _Nodes, at: int) -> int:
        end = nodes.new()
        nodes.calls[at].append((rule, end))
        return end

    return add


class Automaton:
    """Automaton of the rule 'root'.

    Raises:
        InvalidArgument: a rule that calls itself at its start, or that can never end.
    """

    def __init__(self, rules: Mapping[str, Expression]) -> None:
        self._nodes = _Nodes()
        self._rules: dict[str, tuple[int, int]] = {}
        for name, expression in rules.items():
            begin = self._nodes.new()
            self._rules[name] = begin, expression(self._nodes, begin)
        self._returns = {end for _, end in self._rules.values()}
        self._end = self._rules["root"][1]
        self._least = self._distances()
        if self._least[self._rules["root"][0]] >= _FAR:
            raise InvalidArgument("nothing can match: a rule calls itself without end")
        self._steps: dict[tuple[State, str], State] = {}
        self.start = self._closed([(self._rules["root"][0], ())])

    def _distances(self) -> list[int]:
        """Return the least number of characters from each node to the end of its rule."""
        nodes = self._nodes
        least = [_FAR] * len(nodes.free)
        for _, end in self._rules.values():
            least[end] = 0
        changed = True
        while changed:
            changed = False
            for i in reversed(range(len(least))):
                found = [least[j] for j in nodes.free[i]] + [1 + least[j] for _, _, j in nodes.chars[i]]
                found += [least[self._rules[rule][0]] + least[j] for rule, j in nodes.calls[i]]
                best = min(found, default=_FAR)
                if best < least[i]:
                    least[i], changed = best, True
        return least

    def _closed(self, configurations: list[tuple[int, Stack]]) -> State:
        """Return the state of configurations, with all that are reachable without a character."""
        seen: set[tuple[int, Stack]] = set()
        waiting = list(configurations)
        while waiting:
            node, stack = found = waiting.pop()
            if found in seen:
                continue
            seen.add(found)
            if len(seen) > 100_000:
                raise InvalidArgument("a rule of the grammar calls itself at its beginning")
            waiting += [(j, stack) for j in self._nodes.free[node]]
            waiting += [(self._rules[rule][0], (j, stack)) for rule, j in self._nodes.calls[node]]
            if node in self._returns and stack:
                waiting.append(stack)
        return frozenset(c for c in seen if self._nodes.chars[c[0]] or (c[0] == self._end and not c[1]))

    def step(self, state: State, character: str) -> State:
        """Return the state after a character; empty if the character is not accepted."""
        key = (state, character)
        if key not in self._steps:
            point = ord(character)
            hits = [(j, s) for node, s in state for a, b, j in self._nodes.chars[node] if a <= point <= b]
            self._steps[key] = self._closed(hits) if hits else frozenset()
        return self._steps[key]

    def walk(self, state: State, value: str) -> State:
        """Return the state after a string."""
        for character in value:
            state = self.step(state, character)
        return state

    def ends(self, state: State) -> bool:
        """Return whether the text may end in this state."""
        return (self._end, ()) in state

    def least(self, state: State) -> int:
        """Return the least number of characters to a state where the text may end."""
        best = _FAR
        for node, stack in state:
            total = self._least[node]
            while stack:
                node, stack = stack
                total += self._least[node]
            best = min(best, total)
        return best
