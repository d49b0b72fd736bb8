"""Loops written out: `//#unroll` above a loop of constant length in a template.

    //#unroll            or   //#unroll FLAG   (where the define is true)
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

_MARK = re.compile(r"^[ ]*//#unroll(?:[ ]+(\w+))?[ ]*\n", re.M)
_LOOP = re.compile(r"[ ]*for \(var (\w+) = 0u; \1 < ([^;]+); \1\+\+\) \{\n")
_CONST = re.compile(r"^\s*const (\w+)\s*(?::\s*\w+)?\s*=\s*([^;]+);", re.M)


def unroll(text: str, flags: Mapping[str, float | int | bool]) -> str:
    """`text` with every marked loop written out, outermost first.

    Raises:
        ValueError: a mark that is not followed by a loop of constant length.
    """
    constants = dict(_CONST.findall(text))
    at = 0
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.start()
        loop = _LOOP.match(text, mark.end())
        if loop is None:
            raise ValueError(f"//#unroll without a loop: {text[mark.end() : mark.end() + 60]!r}")
        flag = mark.group(1)
        if flag and not flags.get(flag):
            text = text[: mark.start()] + text[mark.end() :]
            continue
        end = _closing(text, loop.end())
        variable, bound = loop.groups()
        body = text[loop.end() : end]
        indent = " " * (len(loop.group(0)) - len(loop.group(0).lstrip()))
        blocks = [
            f"{indent}{{\n{indent}  const {variable} = {k}u;\n{body.rstrip()}\n{indent}}}\n"
            for k in range(value_of(bound, constants))
        ]
        after = text.index("\n", end) + 1
        text = text[: mark.start()] + "".join(blocks) + text[after:]
    return text


def _closing(text: str, start: int) -> int:
    """Where the brace opened just before `start` is closed."""
    depth = 1
    for found in re.finditer(r"[{}]", text[start:]):
        depth += 1 if found.group() == "{" else -1
        if depth == 0:
            return start + found.start()
    raise ValueError("//#unroll: the loop is not closed")
