"""DynamicTimeWarping: the minimum-cost path through a matrix. Source: com.microsoft.DynamicTimeWarping.

sum[i, j] = x[i, j] + min(sum[i - 1, j - 1], sum[i - 1, j], sum[i, j - 1]), in float32. The predecessor is (i - 1, j -
1) or else (i - 1, j) where its sum is less than both others, and (i, j - 1) otherwise, also for ties.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType, of_element
from pyruntime.ops.base import Op, op

_DIAGONAL, _UP, _LEFT = 0, 1, 2


@op("DynamicTimeWarping", opsets=range(1, 2), domain="com.microsoft")
class DynamicTimeWarping(Op):
    """x: float32 [M, N] or [1, M, N]; y: int32 [2, steps], the rows and columns from (0, 0) to (M - 1, N - 1).

    Backtracking stops at row 0 or column 0. With infinite costs that may be before (0, 0). y is empty for empty x.
    """

    data_dependent = True

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        if x.dtype is not DType.FLOAT or not (x.rank == 2 or (x.rank == 3 and x.shape[0] == 1)):
            self.fail("a tensor(float) of shape [M, N] or [1, M, N]", x)
        return (of_element(DType.INT32, self.evaluate(x.value())[0]),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        rows, columns = x.shape[-2:]
        came = _directions(x.reshape(rows, columns)) if x.size else np.zeros((1, 1), np.uint8)
        path = []
        i, j = (rows, columns) if x.size else (0, 0)
        while i > 0 and j > 0:
            path.append((i - 1, j - 1))
            way = came[i, j]
            i, j = i - (way != _LEFT), j - (way != _UP)
        return (np.array(path[::-1], np.int32).reshape(-1, 2).T,)


def _directions(x: Array) -> Array:
    """Return the predecessor of each element, [M + 1, N + 1]; row and column 0 are before the first ones."""
    rows, columns = x.shape
    sums = np.full((rows + 1, columns + 1), np.inf, np.float32)
    sums[0, 0], sums[1:, 1:] = 0, x
    came = np.zeros(sums.shape, np.uint8)
    flat, ways = sums.reshape(-1), came.reshape(-1)
    for total in range(2, rows + columns + 1):  # elements with i + j = total lie `columns` apart
        first, last = max(1, total - columns), min(rows, total - 1)
        start, stop = total + first * columns, total + last * columns + 1

        def earlier(offset: int, start: int = start, stop: int = stop) -> Array:
            return flat[start - offset : stop - offset : columns]

        diagonal, up, left = earlier(columns + 2), earlier(columns + 1), earlier(1)
        way = np.where((up < diagonal) & (up < left), _UP, _LEFT)
        way = np.where((diagonal < up) & (diagonal < left), _DIAGONAL, way)
        ways[start:stop:columns] = way
        with np.errstate(over="ignore", invalid="ignore"):
            flat[start:stop:columns] += np.choose(way, (diagonal, up, left))
    return came
