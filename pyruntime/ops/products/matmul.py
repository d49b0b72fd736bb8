"""MatMul: y = a @ b, as in numpy.matmul. Source: ONNX operator MatMul."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, inp, out, scratch, strided_copy
from pyruntime.kernels.ir.indexing import broadcast_shapes, broadcast_strides
from pyruntime.kernels.products.matmul import MAX_BATCH_RANK, Product, matmul, product_of
from pyruntime.ops.base import LATEST, Op, op, refuse_float64


def matmul_shape(node: Op, a: TensorType, b: TensorType) -> tuple[int, ...]:
    """Return the shape of a @ b. Raises InvalidGraph if the shapes do not match."""
    if not a.rank or not b.rank:
        node.fail("operands of at least one dimension", f"{a} and {b}")
    left, right = as_matrices(a.shape, b.shape)
    if left[-1] != right[-2]:
        node.fail("as many columns on the left as rows on the right", f"{a} and {b}")
    try:
        batch = broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        node.fail("batch dimensions that broadcast", f"{a} and {b}")
    return (*batch, *(left[-2:-1] if a.rank > 1 else ()), *(right[-1:] if b.rank > 1 else ()))


def as_matrices(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes with a vector `a` as one row and a vector `b` as one column."""
    return (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b


def stacked(target: Target, a: Operand, b: Operand) -> tuple[Product, Operand, Operand, tuple[Dispatch, ...]]:
    """Return the product of a and b, its operands, and dispatches that prepare these.

    The operands are a and b, or broadcast copies with a single batch dimension where the kernels do not support theirs.
    """
    shapes = as_matrices(a.type.shape, b.type.shape)
    product = product_of(*shapes)
    if len(product.batch) <= MAX_BATCH_RANK:
        return product, a, b, ()
    batch = broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
    wholes = (*batch, *shapes[0][-2:]), (*batch, *shapes[1][-2:])
    left, right = (scratch(x.type.dtype, *whole) for x, whole in zip((a, b), wholes, strict=True))
    copies = (
        strided_copy(target, "spread", y, x, 0, broadcast_strides(shape, whole))
        for y, x, shape, whole in zip((left, right), (a, b), shapes, wholes, strict=True)
    )
    return product_of(*wholes), left, right, tuple(copies)


def multiply(a: Array, b: Array) -> Array:
    """Return a @ b, rounded once: 16-bit floats are summed in float32."""
    if a.dtype == np.float16:
        a, b = a.astype(np.float32), b.astype(np.float32)
        return np.asarray(np.matmul(a, b)).astype(np.float16)
    return np.asarray(np.matmul(a, b))


@op("MatMul", opsets=range(1, LATEST + 1))
class MatMul(Op):
    """a: [..., M, K], b: [..., K, N]; leading dimensions broadcast. A vector `a` is a row, a vector `b` a column."""

    def infer(self, a: TensorType, b: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(self.same_dtype(a, b), matmul_shape(self, a, b)),)

    def evaluate(self, a: Array, b: Array) -> tuple[Array, ...]:
        return (multiply(a, b),)

    def lower(self, target: Target, a: TensorType, b: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(a, b)
        refuse_float64(a)
        product, left, right, copies = stacked(target, inp(0, a), inp(1, b))
        return (*copies, *matmul(target, out(0, y), left, right, product))
