"""What a matrix product is: sizes, batches, storage orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyruntime.ir import upper
from pyruntime.kernels.ir.indexing import broadcast_shapes, broadcast_strides, collapse

__all__ = ["Product", "product_of"]


@dataclass(frozen=True, slots=True)
class Product:
    """y[b] = a[b] @ b[b] for b in `batch`: [m, k] @ [k, n].

    Attributes:
        batch: batch dimensions, merged.
        a_strides, b_strides: elements from one batch entry to the next, 0 where broadcast.
        trans_a, trans_b: a is stored [k, m]; b is stored [n, k].
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...] = (1,)
    a_strides: tuple[int, ...] = (0,)
    b_strides: tuple[int, ...] = (0,)
    trans_a: bool = False
    trans_b: bool = False

    def most(self) -> Product:
        """The largest product of this kind within the plan's ranges: what kernels are chosen for."""
        sizes = (upper(self.m), upper(self.n), upper(self.k), tuple(map(upper, self.batch)))
        return replace(self, m=sizes[0], n=sizes[1], k=sizes[2], batch=sizes[3])

    @property
    def batches(self) -> int:
        """Number of matrix products: the product of the batch dimensions."""
        return math.prod(self.batch)

    @property
    def flops(self) -> int:
        """A multiplication and an addition for every m, n, k."""
        return 2 * self.batches * self.m * self.n * self.k


def product_of(a: Sequence[int], b: Sequence[int], trans_a: bool = False, trans_b: bool = False) -> Product:
    """The product of stacks of matrices of shapes `a` and `b`, whose batch dimensions broadcast.

    Raises:
        ValueError: they do not.
    """
    m, k = (a[-1], a[-2]) if trans_a else (a[-2], a[-1])
    n = b[-2] if trans_b else b[-1]
    batch = broadcast_shapes(a[:-2], b[:-2])
    matrix_a, matrix_b = a[-2] * a[-1], b[-2] * b[-1]
    a_strides = [s * matrix_a for s in broadcast_strides(a[:-2], batch)]
    b_strides = [s * matrix_b for s in broadcast_strides(b[:-2], batch)]
    dims, (a_view, b_view) = collapse(batch, a_strides, b_strides)
    if not trans_a and b_view == (0,) and len(dims) == 1 and (a_view == (matrix_a,) or dims == (1,)):
        # One right matrix for all: the rows of all left ones are one tall matrix.
        return Product(m * dims[0], n, k, trans_b=trans_b)
    return Product(m, n, k, dims, a_view, b_view, trans_a, trans_b)
