"""Loops written out: `//#unroll` above a loop of constant length.

    //#unroll
    for (var r = 0u; r < ROWS; r++) {
      sums[r] += 1.0;
    }

becomes ROWS blocks `{ const r = 0u; ... }`, so indices into register arrays are constants. The file stays valid WGSL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyruntime.kernels.expressions import value_of

__all__ = ["unroll"]

_WORD = "//#unroll"
_MARK = re.compile(rf"^[ ]*{_WORD}[ ]*\n", re.M)
_LOOP = re.compile(r"[ ]*for \(var (\w+) = 0u; \1 < ([^;]+); \1\+\+\) \{\n")
_CONST = re.compile(r"^\s*const (\w+)\s*(?::\s*\w+)?\s*=\s*([^;]+);", re.M)
_BRACE = re.compile(r"[{}]")


def unroll(text: str) -> str:
    """`text` with every marked loop written out.

    Raises:
        ValueError: a mark that is not followed by a loop of constant length.
    """
    return _written(text, dict(_CONST.findall(text))) if _WORD in text else text


def _written(text: str, constants: Mapping[str, str]) -> str:
    made, at = list[str](), 0
    while (mark := _MARK.search(text, at)) is not None:
        loop = _LOOP.match(text, mark.end())
        if loop is None:
            raise ValueError(f"{_WORD} without a loop: {text[mark.end() : mark.end() + 60]!r}")
        end = _closing(text, loop.end())
        variable, bound = loop.groups()
        body = _written(text[loop.end() : end], constants).rstrip()
        indent = " " * (len(loop.group(0)) - len(loop.group(0).lstrip()))
        made.append(text[at : mark.start()])
        made += [
            f"{indent}{{\n{indent}  const {variable} = {k}u;\n{body}\n{indent}}}\n"
            for k in range(value_of(bound, constants))
        ]
        at = text.index("\n", end) + 1
    return "".join((*made, text[at:]))


def _closing(text: str, start: int) -> int:
    """Where the brace opened just before `start` is closed."""
    depth = 1
    for found in _BRACE.finditer(text, start):
        depth += 1 if found.group() == "{" else -1
        if depth == 0:
            return found.start()
    raise ValueError(f"{_WORD}: the loop is not closed")
