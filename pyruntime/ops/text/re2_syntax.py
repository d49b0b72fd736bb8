"""Parser of RE2's regular expression syntax. `parse` returns a tree of `Syntax` nodes.

Syntax that does not affect whether a text matches (laziness, captures) is ignored. Source: RE2 wiki, Syntax.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyruntime import errors

__all__ = ["Syntax", "Test", "is_word", "parse"]

MOST_REPEATS = 1000
"""RE2's limit of counted repetition."""

Test = Callable[[str], bool]
"""Predicate of characters: membership in a class."""


def _range(low: str, high: str) -> Test:
    return lambda c: low <= c <= high


def _among(chars: str) -> Test:
    return lambda c: c in chars


def _any_of(tests: Iterable[Test]) -> Test:
    kept = tuple(tests)
    return lambda c: any(test(c) for test in kept)


def _none_of(test: Test) -> Test:
    return lambda c: not test(c)


def _folded(test: Test) -> Test:
    return lambda c: any(test(v) for v in (c, c.lower(), c.upper()) if len(v) == 1)


def _category(name: str) -> Test:
    return lambda c: unicodedata.category(c).startswith(name)


_UPPER, _LOWER, _DIGIT = _range("A", "Z"), _range("a", "z"), _range("0", "9")
_ALPHA = _any_of((_UPPER, _LOWER))
is_word = _any_of((_ALPHA, _DIGIT, _among("_")))
_PERL = {"d": _DIGIT, "s": _among("\t\n\f\r "), "w": is_word}
_POSIX = {
    "alnum": _any_of((_ALPHA, _DIGIT)),
    "alpha": _ALPHA,
    "ascii": _range("\0", "\x7f"),
    "blank": _among("\t "),
    "cntrl": _any_of((_range("\0", "\x1f"), _among("\x7f"))),
    "digit": _DIGIT,
    "graph": _range("!", "~"),
    "lower": _LOWER,
    "print": _range(" ", "~"),
    "punct": _any_of((_range("!", "/"), _range(":", "@"), _range("[", "`"), _range("{", "~"))),
    "space": _among("\t\n\v\f\r "),
    "upper": _UPPER,
    "word": is_word,
    "xdigit": _any_of((_DIGIT, _range("A", "F"), _range("a", "f"))),
}
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_CATEGORIES = frozenset(
    major + minor
    for major, minors in {
        "C": "cfos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
    for minor in ("", *minors)
)


@dataclass(frozen=True, slots=True)
class Syntax:
    """Node of a syntax tree: kind 'char', 'assert', 'cat', 'alt' or 'repeat' (parts[0] `low` to `high` times)."""

    kind: str
    parts: tuple[Syntax, ...] = ()
    test: Test | None = None
    name: str = ""
    low: int = 0
    high: int | None = None


@dataclass(slots=True)
class _Parser:
    """Recursive-descent parser; its methods consume `text` from position `at`."""

    text: str
    at: int = 0
    flags: frozenset[str] = field(default_factory=frozenset)

    def fail(self, what: str) -> errors.InvalidGraph:
        return errors.InvalidGraph(f"pattern {self.text!r}: {what} at {self.at}")

    def take(self, prefix: str) -> bool:
        found = self.text.startswith(prefix, self.at)
        self.at += len(prefix) * found
        return found

    def next(self) -> str:
        if self.at >= len(self.text):
            raise self.fail("expected more")
        self.at += 1
        return self.text[self.at - 1]

    def until(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise self.fail(f"expected {end!r}")
        found = self.text[self.at : stop]
        self.at = stop + len(end)
        return found

    def whole(self) -> Syntax:
        node = self.alternatives()
        if self.at < len(self.text):
            raise self.fail("unexpected ')'")
        return node

    def alternatives(self) -> Syntax:
        flags = self.flags
        branches = [self.sequence()]
        while self.take("|"):
            branches.append(self.sequence())
        self.flags = flags
        return branches[0] if len(branches) == 1 else Syntax("alt", tuple(branches))

    def sequence(self) -> Syntax:
        parts: list[Syntax] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if self.take(r"\Q"):
                literal = [self.char(_among(c)) for c in self.quoted()]
                parts += [*literal[:-1], *(self.repeated(node) for node in literal[-1:])]
            else:
                parts.append(self.repeated(self.atom()))
        return Syntax("cat", tuple(parts))

    def quoted(self) -> str:
        if r"\E" in self.text[self.at :]:
            return self.until(r"\E")
        rest, self.at = self.text[self.at :], len(self.text)
        return rest

    def repeated(self, node: Syntax) -> Syntax:
        bounds = self.bounds()
        if bounds is None:
            return node
        self.take("?")
        if self.bounds() is not None:
            raise self.fail("repetition of a repetition")
        return Syntax("repeat", (node,), low=bounds[0], high=bounds[1])

    def bounds(self) -> tuple[int, int | None] | None:
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        for sign, found in simple.items():
            if self.take(sign):
                return found
        end = self.text.find("}", self.at)
        if not self.text.startswith("{", self.at) or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None
        self.at = end + 1
        least, most = int(low), int(high) if high else None if comma else int(low)
        if least > MOST_REPEATS or (most is not None and not least <= most <= MOST_REPEATS):
            raise self.fail(f"expected a repetition of at most {MOST_REPEATS}")
        return least, most

    def char(self, test: Test) -> Syntax:
        return Syntax("char", test=_folded(test) if "i" in self.flags else test)

    def atom(self) -> Syntax:
        c = self.next()
        if c == "(":
            return self.group()
        if c == "[":
            return self.char(self.bracket())
        if c == ".":
            return (
                Syntax("char", test=lambda c: True) if "s" in self.flags else Syntax("char", test=lambda c: c != "\n")
            )
        if c in "^$":
            name = {"^": "line_begin", "$": "line_end"} if "m" in self.flags else {"^": "begin", "$": "end"}
            return Syntax("assert", name=name[c])
        if c == "\\":
            return self.escape()
        if c in "*+?":
            raise self.fail("nothing to repeat")
        return self.char(_among(c))

    def group(self) -> Syntax:
        if self.take("?P<") or self.take("?<"):
            if not self.until(">").isidentifier():
                raise self.fail("expected a group name")
        elif self.take("?"):
            on, _, off = self.flag_text().partition("-")
            if set(on + off) - set("imsU"):
                raise self.fail("unknown group or flag")
            outer = self.flags
            self.flags = (self.flags | set(on)) - set(off)
            if self.text[self.at - 1] == ")":
                return Syntax("cat")
            node = self.closed()
            self.flags = outer
            return node
        return self.closed()

    def flag_text(self) -> str:
        begin = self.at
        while self.next() not in ":)":
            pass
        return self.text[begin : self.at - 1]

    def closed(self) -> Syntax:
        node = self.alternatives()
        if not self.take(")"):
            raise self.fail("expected ')'")
        return node

    def escape(self) -> Syntax:
        asserts = {"A": "begin", "z": "end", "b": "word", "B": "not_word"}
        if self.at < len(self.text) and self.text[self.at] in asserts:
            return Syntax("assert", name=asserts[self.next()])
        return self.char(self.escaped())

    def escaped(self) -> Test:
        """Parse the rest of an escape, and return the characters it matches."""
        c = self.next()
        if c.lower() in _PERL:
            return _PERL[c] if c in _PERL else _none_of(_PERL[c.lower()])
        if c in "pP":
            return self.category(negated=c == "P")
        return _among(self.literal(c))

    def category(self, negated: bool) -> Test:
        name = self.until("}") if self.take("{") else self.next()
        negated ^= name.startswith("^")
        name = name.lstrip("^")
        if name not in _CATEGORIES:
            raise errors.NotImplemented(f"pattern {self.text!r}: the Unicode class {name} is not supported")
        return _none_of(_category(name)) if negated else _category(name)

    def literal(self, c: str) -> str:
        """Parse the rest of an escape that starts with `c`, and return the character it denotes."""
        if c in _CONTROL:
            return _CONTROL[c]
        if c == "x":
            digits = self.until("}") if self.take("{") else self.next() + self.next()
        elif c in "01234567" and (c == "0" or self.text[self.at : self.at + 1].isdigit()):
            rest = self.text[self.at : self.at + 2]
            octal = c + "".join(d for i, d in enumerate(rest) if set(rest[: i + 1]) <= set("01234567"))
            self.at += len(octal) - 1
            return chr(int(octal, 8))
        elif c.isalnum() and c.isascii():
            raise self.fail(f"unknown escape \\{c}")
        else:
            return c
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise self.fail(f"unknown character \\x{digits}") from None

    def bracket(self) -> Test:
        negated = self.take("^")
        tests: list[Test] = []
        first = True
        while first or not self.take("]"):
            first = False
            tests.append(self.member())
        inside = _any_of(tests)
        inside = _folded(inside) if "i" in self.flags else inside
        return _none_of(inside) if negated else inside

    def member(self) -> Test:
        if self.take("[:"):
            name = self.until(":]")
            test = _POSIX.get(name.lstrip("^"))
            if test is None:
                raise self.fail(f"unknown class [:{name}:]")
            return _none_of(test) if name.startswith("^") else test
        c = self.next()
        if c == "\\" and self.text[self.at : self.at + 1] in tuple("dDsSwWpP"):
            return self.escaped()
        low = self.literal(self.next()) if c == "\\" else c
        if self.text[self.at : self.at + 1] != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return _among(low)
        self.at += 1
        high = self.next()
        high = self.literal(self.next()) if high == "\\" else high
        if high < low:
            raise self.fail(f"bad range {low}-{high}")
        return _range(low, high)


def parse(pattern: str) -> Syntax:
    """Return the syntax tree of a pattern.

    Raises:
        InvalidGraph: invalid RE2 syntax.
        NotImplemented: a Unicode script class.
    """
    return _Parser(pattern).whole()
