"""Loops written out: `//#unroll` above a loop of constant length.

    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      sums[r] += 1.0;
    }

becomes ROWS blocks `{ const r = 0u; ... }`, so indices into register arrays are constants. The file stays valid WGSL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial

from pyruntime.kernels.wgsl.expressions import value_of

__all__ = ["unroll"]

_WORD = "//#unroll"
_MARK = re.compile(rf"[ ]*{_WORD}[ ]*\n")
_LOOP = re.compile(r"[ ]*for \(var (\w+) = 0u; \1 < ([^;]+); \1\+\+\) \{\n")
_CONST = re.compile(r"const (?<!\wconst )(\w+)\s*(?::\s*\w+)?\s*=\s*([^;]+);")
_BRACE = re.compile(r"[{}]")


def unroll(text: str) -> str:
    """`text` with every marked loop written out.

    Raises:
        ValueError: a mark that is not followed by a loop of constant length.
    """
    if _WORD not in text:
        return text
    # Few bounds are asked for again and again: loops within loops are read once for each time they are written.
    return _written(text, cache(partial(value_of, constants=dict(_CONST.findall(text)))))


def _written(text: str, length: Callable[[str], int]) -> str:
    made, at = list[str](), 0
    while (mark := _mark(text, at)) is not None:
        loop = _LOOP.match(text, mark.end())
        if loop is None:
            raise ValueError(f"{_WORD} without a loop: {text[mark.end() : mark.end() + 60]!r}")
        end = _closing(text, loop.end())
        variable, bound = loop.groups()
        body = _written(text[loop.end() : end], length).rstrip()
        indent = " " * (len(loop.group(0)) - len(loop.group(0).lstrip()))
        made.append(text[at : mark.start()])
        made += [f"{indent}{{\n{indent}  const {variable} = {k}u;\n{body}\n{indent}}}\n" for k in range(length(bound))]
        at = text.index("\n", end) + 1
    return "".join((*made, text[at:]))


def _mark(text: str, start: int) -> re.Match[str] | None:
    """The next mark on a line of its own. The word is searched for first: a regular expression takes longer."""
    word = text.find(_WORD, start)
    while word >= 0:
        mark = _MARK.match(text, text.rfind("\n", 0, word) + 1)
        if mark is not None:
            return mark
        word = text.find(_WORD, word + 1)
    return None


def _closing(text: str, start: int) -> int:
    """Where the brace opened just before `start` is closed."""
    depth = 1
    for found in _BRACE.finditer(text, start):
        depth += 1 if found.group() == "{" else -1
        if depth == 0:
            return found.start()
    raise ValueError(f"{_WORD}: the loop is not closed")
