"""Regular expressions as grammar expressions.

Literals, . [...] [^...] ( ) (?: ) | * + ? {m} {m,} {m,n}, \\d \\w \\s \\D \\W \\S (ASCII), \\n \\t \\r \\f \\v \\xhh
\\uhhhh. A pattern matches the whole text, so ^ at the start and $ at the end have no effect. Lazy quantifiers match the
same texts.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.errors import InvalidArgument
from pyruntime.generate.grammar import ANY, Expression, Ranges, chars, choice, repeat, sequence

__all__ = ["intersected", "inverted", "regex"]

_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 13), (32, 32))
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_MOST = 1000


def _merged(runs: Iterable[tuple[int, int]]) -> Ranges:
    made: list[tuple[int, int]] = []
    for a, b in sorted(runs):
        if made and a <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(made[-1][1], b)
        else:
            made.append((a, b))
    return tuple(made)


def intersected(one: Ranges, other: Ranges) -> Ranges:
    """Return the code points in both."""
    return _merged((max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) <= min(b, d))


def inverted(ranges: Ranges) -> Ranges:
    """Return the code points outside of the ranges, without surrogates."""
    edges = [-1, *(e for run in _merged(ranges) for e in run), 0x110000]
    gaps = [(edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2)]
    return intersected(ANY, tuple((a, b) for a, b in gaps if a <= b))


def regex(pattern: str, allowed: Ranges = ANY) -> Expression:
    """Compile a pattern into an expression over the allowed characters.

    Raises:
        InvalidArgument: an invalid pattern, or one with look-around, back references or inner anchors.
    """
    body = pattern[1:] if pattern.startswith("^") else pattern
    escaped = (len(body) - len(body[:-1].rstrip("\\")) - 1) % 2 if body.endswith("$") else 0
    parser = _Parser(body[:-1] if body.endswith("$") and not escaped else body, allowed)
    made = parser.choice()
    if parser.at < len(parser.source):
        parser.fail("a closing parenthesis too many")
    return made


class _Parser:
    def __init__(self, source: str, allowed: Ranges) -> None:
        self.source, self.allowed, self.at = source, allowed, 0

    def fail(self, what: str) -> InvalidArgument:
        raise InvalidArgument(f"the pattern {self.source!r} at {self.at}: {what}")

    def peek(self) -> str:
        return self.source[self.at] if self.at < len(self.source) else ""

    def take(self) -> str:
        found = self.peek()
        if not found:
            self.fail("it ends too early")
        self.at += 1
        return found

    def choice(self) -> Expression:
        parts = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            parts.append(self.sequence())
        return choice(*parts) if len(parts) > 1 else parts[0]

    def sequence(self) -> Expression:
        parts: list[Expression] = []
        while self.peek() and self.peek() not in "|)":
            parts.append(self.repeated(self.atom()))
        return sequence(*parts)

    def repeated(self, part: Expression) -> Expression:
        while self.peek() and self.peek() in "*+?{":
            sign = self.take()
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign) or self.bounds()
            part = repeat(part, least, most)
            if self.peek() == "?":
                self.at += 1
        return part

    def bounds(self) -> tuple[int, int | None]:
        end = self.source.find("}", self.at)
        low, comma, high = self.source[self.at : end].partition(",")
        if end < 0 or not low.isdecimal() or not (high.isdecimal() or not high):
            self.fail("expected {m}, {m,} or {m,n}")
        self.at = end + 1
        least, most = int(low), int(high) if high else None if comma else int(low)
        if max(least, most or 0) > _MOST or (most is not None and most < least):
            self.fail(f"expected 0 <= m <= n <= {_MOST}")
        return least, most

    def atom(self) -> Expression:
        c = self.take()
        if c == "(":
            if self.peek() == "?":
                if self.source[self.at : self.at + 2] != "?:":
                    self.fail("the only supported group with (? is (?:")
                self.at += 2
            made = self.choice()
            if self.take() != ")":
                self.fail("a parenthesis is not closed")
            return made
        if c == "[":
            return self.one(self.bracket())
        if c == ".":
            return self.one(inverted(((10, 10),)))
        if c == "\\":
            return self.one(self.escape())
        if c in "^$*+?{":
            self.fail(f"{c!r} has no place here; write \\{c} for the character")
        return self.one(((ord(c), ord(c)),))

    def one(self, ranges: Ranges) -> Expression:
        found = intersected(ranges, self.allowed)
        if not found:
            self.fail("no character can be here")
        return chars(found)

    def escape(self) -> Ranges:
        c = self.take()
        classes = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
        if c.lower() in classes:
            return classes[c] if c in classes else inverted(classes[c.lower()])
        if c in "xu":
            digits = self.source[self.at : self.at + (2 if c == "x" else 4)]
            self.at += len(digits)
            try:
                return ((int(digits, 16),) * 2,)
            except ValueError:
                self.fail(f"expected hexadecimal digits after \\{c}")
        if c.isalnum() and c not in _ESCAPES:
            self.fail(f"\\{c} is not supported")
        point = ord(_ESCAPES.get(c, c))
        return ((point, point),)

    def bracket(self) -> Ranges:
        negated = self.peek() == "^"
        self.at += negated
        runs: list[tuple[int, int]] = []
        first = True
        while first or self.peek() != "]":
            first = False
            low = self.member()
            if self.peek() == "-" and self.source[self.at + 1 : self.at + 2] not in ("]", "") and len(low) == 1:
                self.at += 1
                high = self.member()
                if high[0][0] < low[0][0]:
                    self.fail("a range from high to low")
                runs.append((low[0][0], high[0][1]))
            else:
                runs += low
        self.at += 1
        return inverted(tuple(runs)) if negated else _merged(runs)

    def member(self) -> Ranges:
        c = self.take()
        return self.escape() if c == "\\" else ((ord(c), ord(c)),)
