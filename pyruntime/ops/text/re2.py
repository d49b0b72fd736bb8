"""Match and search regular expressions in RE2's syntax, in time linear in the length of the text.

The pattern becomes a nondeterministic finite automaton (Thompson, 1968), whose state sets are computed lazily and
cached. Python's `re` backtracks, so a model could make it run forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from pyruntime import errors
from pyruntime.ops.text.re2_syntax import Syntax, Test, is_word, parse

__all__ = ["Pattern", "compiled"]

MOST_PARTS = 100_000
MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class _State:
    """A state of the automaton: it consumes a character (`test`), checks a position (`assertion`), or does neither."""

    next: tuple[int, ...]
    test: Test | None = None
    assertion: str = ""


_Context = tuple[str, str]
"""Characters before and after a position; "" at the ends."""

_ASSERTIONS: dict[str, Callable[[str, str], bool]] = {
    "begin": lambda before, after: not before,
    "end": lambda before, after: not after,
    "line_begin": lambda before, after: before in ("", "\n"),
    "line_end": lambda before, after: after in ("", "\n"),
    "word": lambda before, after: bool(before and is_word(before)) != bool(after and is_word(after)),
    "not_word": lambda before, after: bool(before and is_word(before)) == bool(after and is_word(after)),
}


class Pattern:
    """A compiled pattern.

    Raises:
        InvalidGraph: invalid RE2 syntax, or a pattern that is too large.
        NotImplemented: a Unicode script class.
    """

    def __init__(self, pattern: str) -> None:
        tree = parse(pattern)
        self._pattern = pattern
        self._states: list[_State] = [_State(())]
        self._parts = 0
        self._start = self._build(tree, 0)
        self._asserts = any(s.assertion for s in self._states)
        self._closures: dict[tuple[frozenset[int], _Context], frozenset[int]] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def _add(self, state: _State) -> int:
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, node: Syntax, then: int) -> int:
        """Add the states of `node`, followed by state `then`; returns the start state."""
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise errors.InvalidGraph(f"pattern {self._pattern!r}: more than {MOST_PARTS} parts")
        if node.kind == "char":
            return self._add(_State((then,), test=node.test))
        if node.kind == "assert":
            return self._add(_State((then,), assertion=node.name))
        if node.kind == "alt":
            return self._add(_State(tuple(self._build(part, then) for part in node.parts)))
        if node.kind == "cat":
            for part in reversed(node.parts):
                then = self._build(part, then)
            return then
        (part,) = node.parts
        if node.high is None:
            again = self._add(_State(()))
            self._states[again].next = (self._build(part, again), then)
            then = again
        for _ in range((node.high or node.low) - node.low):
            then = self._add(_State((self._build(part, then), then)))
        for _ in range(node.low):
            then = self._build(part, then)
        return then

    def _closure(self, states: frozenset[int], context: _Context) -> frozenset[int]:
        """Return the epsilon closure of `states`: consuming and final states."""
        key = (states, context if self._asserts else ("", ""))
        if key not in self._closures:
            pending, seen = list(states), set(states)
            while pending:
                state = self._states[pending.pop()]
                if state.test or (state.assertion and not _ASSERTIONS[state.assertion](*context)):
                    continue
                fresh = [n for n in state.next if n not in seen]
                seen.update(fresh)
                pending += fresh
            self._closures[key] = frozenset(n for n in seen if n == 0 or self._states[n].test)
        return self._closures[key]

    def fullmatch(self, text: str) -> bool:
        """Whether the whole `text` matches."""
        here: frozenset[int] = frozenset((self._start,))
        for before, c in zip(("", *text), text, strict=False):
            reading = self._closure(here, (before, c))
            key = (reading, c)
            if len(self._steps) + len(self._closures) > MOST_REMEMBERED:
                self._steps.clear()
                self._closures.clear()
            if key not in self._steps:
                states = (self._states[n] for n in reading)
                self._steps[key] = frozenset(n for s in states if s.test and s.test(c) for n in s.next)
            here = self._steps[key]
        return 0 in self._closure(here, (text[-1:], ""))

    def search(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Return (begin, end) of the leftmost-longest match at or after `start`; None if there is none."""
        threads: list[tuple[int, int]] = []
        found: tuple[int, int] | None = None
        for at in range(start, len(text) + 1):
            c = text[at : at + 1]
            here = [*threads, (self._start, at)] if found is None else threads
            threads, followed = [], set[int]()
            for state, began in self._ready(here, (text[at - 1 : at] if at else "", c)):
                if found is not None and began > found[0]:
                    break
                if state == 0:
                    found = began, at
                    continue
                test = self._states[state].test
                if c and test is not None and test(c):
                    threads += [(n, began) for n in self._states[state].next if n not in followed]
                    followed.update(self._states[state].next)
            if found is not None and not threads:
                break
        return found

    def _ready(self, threads: Iterable[tuple[int, int]], context: _Context) -> Iterator[tuple[int, int]]:
        """Yield (state, start of its thread) of consuming and final states that `threads` reach without consuming."""
        seen = set[int]()
        for first, began in threads:
            pending = [first]
            while pending:
                number = pending.pop()
                if number in seen:
                    continue
                seen.add(number)
                state = self._states[number]
                if number == 0 or state.test:
                    yield number, began
                elif not state.assertion or _ASSERTIONS[state.assertion](*context):
                    pending += state.next


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Pattern:
    """Return the compiled pattern, cached."""
    return Pattern(pattern)
