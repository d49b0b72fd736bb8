"""Tokenizer: split strings into words or characters. Source: com.microsoft.Tokenizer, as sklearn-onnx writes it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType, of_element
from pyruntime.ops.base import Op, op
from pyruntime.ops.text.re2 import Pattern, compiled

_START, _END = "\x02", "\x03"


def _matches(pattern: Pattern, text: str) -> Iterator[tuple[int, int, int]]:
    """Yield (search start, match start, match end) of non-overlapping matches, from left to right."""
    start = 0
    while start <= len(text):
        found = pattern.search(text, start)
        if found is None:
            return
        begin, end = found
        yield start, begin, end
        start = end if end > begin else start + 1


@op("Tokenizer", opsets=range(1, 2), domain="com.microsoft")
class Tokenizer(Op):
    """x: strings [C] or [N, C]; y: strings with a further dimension for the tokens, padded with `pad_value`.

    `tokenexp` (RE2 syntax): each match is a token, the longest one at its position; ".": each character. `separators`
    (RE2 syntax): split by each separator in turn; a single empty one: each character. Tokens of fewer than `mincharnum`
    characters are dropped. `mark`: put "\\x02" before and "\\x03" after the tokens of a row. Without any tokens the new
    dimension is 0.
    """

    data_dependent = True
    mark: int
    mincharnum: int
    pad_value: str
    separators: tuple[str, ...] | None = None
    tokenexp: str | None = None

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        if x.dtype is not DType.STRING or x.rank not in (1, 2):
            self.fail("a string tensor of shape [C] or [N, C]", x)
        if bool(self.separators) == bool(self.tokenexp):
            self.fail("one of the attributes `separators` and `tokenexp`", "both" if self.tokenexp else "none")
        if self.mincharnum < 1 or (self._characters and self.mincharnum != 1):
            self.fail("mincharnum of at least 1, and 1 for characters", self.mincharnum)
        return (of_element(DType.STRING, self.evaluate(x.value())[0]),)

    @property
    def _characters(self) -> bool:
        return self.separators == ("",) or self.tokenexp == "."

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rows = [self._tokens(text) for text in x.reshape(-1)]
        longest = max(map(len, rows), default=0)
        if self.mark and longest:
            rows = [[_START, *row, _END] for row in rows]
            longest += 2
        y = np.full((len(rows), longest), self.pad_value, object)
        for line, row in zip(y, rows, strict=True):
            line[: len(row)] = row
        return (y.reshape(*x.shape, longest),)

    def _tokens(self, text: str) -> list[str]:
        if self._characters:
            return list(text)
        if self.tokenexp:
            found = _matches(compiled(self.tokenexp), text)
            return [text[begin:end] for _, begin, end in found if end - begin >= self.mincharnum]
        parts = [text]
        for separator in self.separators or ():
            parts = [piece for part in parts for piece in self._between(compiled(separator), part)]
        return parts

    def _between(self, separator: Pattern, text: str) -> list[str]:
        pieces, rest = [], 0
        for start, begin, end in _matches(separator, text):
            pieces.append(text[start:begin])
            rest = end if end > begin else start + 1
        pieces.append(text[rest:])
        return [piece for piece in pieces if len(piece) >= self.mincharnum]
