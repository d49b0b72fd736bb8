"""Look up elements of parallel lists by a pair of integers, such as a node by tree id and node id."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array

__all__ = ["Places"]

_SPREAD = 8
"""Largest ratio of table size to number of elements for which a lookup table is used."""


class _Ranks:
    """Ranks of integers: the difference to the minimum; for widely spread values, the index in the sorted values."""

    def __init__(self, values: Array) -> None:
        self._least = int(values.min(initial=0))
        self.size = int(values.max(initial=0)) - self._least + 1
        self._distinct: Array | None = None
        if self.size > _SPREAD * (len(values) + 1):
            self._distinct = np.unique(values)
            self.size = len(self._distinct)

    def of(self, values: Array) -> Array:
        """Return the ranks, int64; -1 for unknown values."""
        if self._distinct is None:
            rank = values.astype(np.int64)
            inside = (rank >= self._least) & (rank < self._least + self.size)
            return np.where(inside, rank - self._least, -1)
        rank = np.minimum(np.searchsorted(self._distinct, values), self.size - 1)
        return np.where(self._distinct[rank] == values, rank.astype(np.int64), -1)


class Places:
    """Index of each pair (first[i], second[i]); of equal pairs the first one counts."""

    def __init__(self, first: Array, second: Array) -> None:
        self._first, self._second = _Ranks(first), _Ranks(second)
        keys = self._keys(first, second)
        size, count = self._first.size * self._second.size, len(keys)
        self._table: Array | None = None
        if size <= _SPREAD * (count + 1):
            self._table = np.full(size, -1, np.int32)
            self._table[keys[::-1]] = np.arange(count - 1, -1, -1, dtype=np.int32)
            return
        self._sorted, self._places = np.unique(keys, return_index=True)

    def _keys(self, first: Array, second: Array) -> Array:
        high, low = self._first.of(first), self._second.of(second)
        return np.where((high < 0) | (low < 0), -1, high * self._second.size + low)

    def of(self, first: Array, second: Array) -> Array:
        """Return the indices of pairs; -1 for unknown ones."""
        keys = self._keys(first, second)
        if self._table is not None:
            return np.where(keys < 0, -1, self._table[keys]) if self._table.size else keys
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[at] == keys, self._places[at], -1)
