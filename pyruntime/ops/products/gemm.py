"""Gemm: y = alpha · op(a) @ op(b) + beta · c. Source: ONNX operator Gemm."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out, scratch
from pyruntime.kernels.ir.epilogue import linear
from pyruntime.kernels.ir.indexing import broadcast_strides
from pyruntime.kernels.products.matmul import matmul, product_of
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, broadcasts_to, op, refuse_float64
from pyruntime.ops.operands import optional


@attributes
class _Gemm(Op):
    """a: [M, K] or transposed, b: [K, N] or transposed, c: broadcasts to [M, N] (optional from opset 11)."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0  # noqa: N815
    transB: int = 0  # noqa: N815

    def infer(self, a: TensorType, b: TensorType, c: TensorType | None = None) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(a, b, c)
        if a.rank != 2 or b.rank != 2:
            self.fail("two matrices", f"{a} and {b}")
        m, k = a.shape[::-1] if self.transA else a.shape
        rows, n = b.shape[::-1] if self.transB else b.shape
        if k != rows:
            self.fail("inner dimensions that agree", f"{a} and {b} with transA={self.transA}, transB={self.transB}")
        if c is not None and not broadcasts_to(c.shape, (m, n)):
            self.fail(f"c to broadcast to [{m}, {n}]", c)
        return (TensorType(dtype, (m, n)),)

    def evaluate(self, a: Array, b: Array, c: Array | None = None) -> tuple[Array, ...]:
        dtype = a.dtype
        if dtype.kind == "f":
            # 16-bit floats are summed and scaled in float32 and rounded once.
            wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
        else:
            wide = dtype if self.alpha == self.beta == 1 else np.dtype(np.float64)
        left, right = (x.astype(wide, copy=False) for x in (a, b))
        y = np.matmul(left.T if self.transA else left, right.T if self.transB else right)
        if self.alpha != 1:
            y = y * wide.type(self.alpha)
        if c is not None and self.beta != 0:
            y = y + (c.astype(wide) * wide.type(self.beta) if self.beta != 1 else c.astype(wide))
        return (y.astype(dtype, copy=False),)

    def lower(self, target: Target, a: TensorType, b: TensorType, c: TensorType | None = None) -> tuple[Dispatch, ...]:
        (y,) = self.infer(a, b, c)
        refuse_float64(a)
        if a.dtype.is_integer and (self.alpha != 1 or (c is not None and self.beta != 1)):
            raise Unsupported("integers scaled by alpha or beta are rounded on the host")
        product = product_of(a.shape, b.shape, bool(self.transA), bool(self.transB))
        if a.dtype.is_wide and c is not None:
            middle = scratch(y.dtype, *y.shape)
            made = matmul(target, middle, inp(0, a), inp(1, b), product)
            return (*made, elementwise(target, "add_64", {"x": middle, "c": inp(2, c)}, out(0, y), "i64_add(x, c)"))
        epilogue = None
        if not a.dtype.is_wide:
            row, col = broadcast_strides(c.shape, y.shape) if c is not None else (0, 0)
            bias = optional(2, c)
            epilogue = linear(bias, product.n, self.alpha, self.beta, row, col)
        return matmul(target, out(0, y), inp(0, a), inp(1, b), product, epilogue)


@op("Gemm", opsets=range(7, LATEST + 1))
class Gemm(_Gemm):
    """Gemm from opset 7 on, where c broadcasts."""


@op("Gemm", opsets=range(1, 7))
class Gemm1(_Gemm):
    """Gemm before opset 7, where c broadcasts only if `broadcast` is 1."""

    broadcast: int = 0
