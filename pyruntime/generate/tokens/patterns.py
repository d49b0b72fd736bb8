"""Regular expressions of tokenizer.json for Python's `re`: Unicode properties become character ranges.

\\p{L}, \\p{Lu}, \\pN, \\P{...}, \\p{^...} by general category, \\s and \\S by White_Space. Source: Unicode's general
categories (`unicodedata`), Oniguruma's syntax.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache

from pyruntime.errors import NotImplemented

__all__ = ["category_ranges", "compiled"]

_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
_NOT_SPACE = (
    "\\x00-\\x08\\x0e-\\x1f!-\\x84\\x86-\\x9f\\xa1-\\u167f\\u1681-\\u1fff\\u200b-\\u2027\\u202a-\\u202e\\u2030-\\u205e"
    "\\u2060-\\u2fff\\u3001-\\U0010ffff"
)
_NAMES = {"Letter": "L", "Mark": "M", "Number": "N", "Punctuation": "P", "Symbol": "S", "Separator": "Z", "Other": "C"}
_PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)([A-Za-z_]+)\}|([A-Z]))|\\(.)|(\[\^?)|(\])", re.DOTALL)


@cache
def _categories() -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of code points of each two-letter category."""
    made: dict[str, list[tuple[int, int]]] = {}
    begin, last = 0, unicodedata.category("\0")
    for point in range(1, sys.maxunicode + 2):
        kind = unicodedata.category(chr(point)) if point <= sys.maxunicode else ""
        if kind != last:
            made.setdefault(last, []).append((begin, point - 1))
            begin, last = point, kind
    return made


def _class(runs: Iterable[tuple[int, int]]) -> str:
    return "".join(f"\\U{a:08x}-\\U{b:08x}" if a != b else f"\\U{a:08x}" for a, b in runs)


@cache
def category_ranges(name: str, negated: bool = False) -> str:
    """Return the inside of a character class: the code points of a general category, or all others.

    Raises:
        NotImplemented: not a general category; Python has no data about scripts.
    """
    name = _NAMES.get(name, name)
    runs = sorted(run for kind, of in _categories().items() if kind.startswith(name) for run in of)
    if not runs:
        raise NotImplemented(
            f"the tokenizer's pattern has \\p{{{name}}}, which is no general category; install the tokenizers wheel"
        )
    merged = [runs[0]]
    for begin, end in runs[1:]:
        if begin == merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    if not negated:
        return _class(merged)
    edges = [-1, *(e for run in merged for e in run), sys.maxunicode + 1]
    gaps = [(edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2)]
    return _class((a, b) for a, b in gaps if a <= b)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of tokenizer.json. Raises NotImplemented: `re` cannot express it."""
    inside = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal inside
        kind, caret, name, letter, escaped, opened, closed = match.groups()
        if opened:
            inside += 1
            return str(opened) if inside == 1 else "\\["
        if closed:
            inside = max(0, inside - 1)
            return "]"
        if escaped is not None:
            ranges = {"s": _SPACE, "S": _NOT_SPACE}.get(escaped)
            if ranges is None:
                return match[0] if escaped != "z" else "\\Z"
        else:
            ranges = category_ranges(name or letter, (kind == "P") != bool(caret))
        return ranges if inside else f"[{ranges}]"

    try:
        return re.compile(_PROPERTY.sub(replaced, pattern))
    except re.error as error:
        raise NotImplemented(f"the tokenizer's pattern {pattern!r}: {error}; install the tokenizers wheel") from error
