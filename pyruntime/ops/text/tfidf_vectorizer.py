"""TfIdfVectorizer: weighted counts of n-grams. Source: ONNX operator TfIdfVectorizer."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import Annotated

import numpy as np

from pyruntime.ir import Array, DType, Floats, Ints, TensorType
from pyruntime.ops.base import LATEST, Op, op


@op("TfIdfVectorizer", opsets=range(9, LATEST + 1))
class TfIdfVectorizer(Op):
    """y[c] = sum over n-grams i with ngram_indexes[i] = c of f(count of n-gram i in x).

    f(n) is n for TF, weights[i]·[n > 0] for IDF, weights[i]·n for TFIDF. The items of an n-gram are 1 + s apart in x,
    for each s up to `max_skip_count` (1-grams: s = 0). The pool lists the 1-grams, then the 2-grams, ...;
    `ngram_counts[n - 1]` is the start of the n-grams. x: int32, int64 or string, [C] or [N, C]; y: float32,
    [max(ngram_indexes) + 1] or [N, max(ngram_indexes) + 1].
    """

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: Annotated[str, "TF", "IDF", "TFIDF"]
    ngram_counts: tuple[int, ...]
    ngram_indexes: Ints
    pool_int64s: Ints | None = None
    pool_strings: tuple[str, ...] | None = None
    weights: Floats | None = None

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if (self.pool_strings is None) == (self.pool_int64s is None):
            self.fail("one of pool_strings and pool_int64s", "both or neither")
        allowed = (DType.STRING,) if self.pool_strings is not None else (DType.INT32, DType.INT64)
        if x.dtype not in allowed:
            self.fail(" or ".join(d.type_string for d in allowed), x)
        if x.rank not in (1, 2):
            self.fail("a tensor of rank 1 or 2", x)
        if not self.ngram_indexes or self._range[0] < 0:
            self.fail("ngram_indexes of 0 and more", self._range[0] if self.ngram_indexes else "none")
        pool = self.pool_strings if self.pool_strings is not None else self.pool_int64s or ()
        if any(not 0 <= begin <= len(pool) for begin in self.ngram_counts):
            self.fail(f"ngram_counts within the pool of {len(pool)}", list(self.ngram_counts))
        if self.weights is not None and len(self.weights) != len(self.ngram_indexes):
            self.fail(f"{len(self.ngram_indexes)} weights", len(self.weights))
        if not 1 <= self.min_gram_length <= self.max_gram_length or self.max_skip_count < 0:
            self.fail("1 <= min_gram_length <= max_gram_length", f"{self.min_gram_length}, {self.max_gram_length}")
        return (TensorType(DType.FLOAT, self._shape(x.shape)),)

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], self._range[1] + 1)

    @cached_property
    def _range(self) -> tuple[int, int]:
        """Smallest and largest of `ngram_indexes`."""
        return min(self.ngram_indexes), max(self.ngram_indexes)

    @cached_property
    def _numbers(self) -> dict[tuple[Hashable, ...], int]:
        """Return the index of each n-gram of the pool whose length is counted."""
        return {g: i for g, i in self._grams() if self.min_gram_length <= len(g) <= self.max_gram_length}

    def _grams(self) -> Iterator[tuple[tuple[Hashable, ...], int]]:
        """Yield all n-grams of the pool with their indices."""
        pool = self.pool_strings if self.pool_strings is not None else tuple(self.pool_int64s or ())
        number = 0
        for n, begin in enumerate(self.ngram_counts, 1):
            end = self.ngram_counts[n] if n < len(self.ngram_counts) else len(pool)
            for at in range(begin, end - n + 1, n):
                yield pool[at : at + n], number
                number += 1

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        numbers = self._numbers
        rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(x.shape[0] if x.ndim == 2 else 1, 0)
        counts = np.zeros((len(rows), len(self.ngram_indexes)), np.float32)
        for count, row in zip(counts, rows.tolist(), strict=True):
            for gram in self._windows(row):
                if gram in numbers:
                    count[numbers[gram]] += 1
        if self.mode == "IDF":
            counts = np.minimum(counts, 1)
        if self.mode != "TF" and self.weights is not None:
            counts = counts * np.array(self.weights, np.float32)
        y = np.zeros((len(rows), self._range[1] + 1), np.float32)
        np.add.at(y.T, np.array(self.ngram_indexes), counts.T)
        return (y.reshape(self._shape(x.shape)),)

    def _windows(self, row: list[Hashable]) -> Iterator[tuple[Hashable, ...]]:
        for n in range(self.min_gram_length, min(self.max_gram_length, len(row)) + 1):
            farthest = min(self.max_skip_count + 1, (len(row) - 1) // (n - 1)) if n > 1 else 1
            for step in range(1, farthest + 1):
                for begin in range(len(row) - (n - 1) * step):
                    yield tuple(row[begin : begin + (n - 1) * step + 1 : step])
