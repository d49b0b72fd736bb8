"""MatMulBnb4: y = a @ b^T with weights b in 4-bit codes of bitsandbytes. Source: onnxruntime, com.microsoft."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.nbits import product_with_packed
from pyruntime.kernels.products.packed_weights import codes
from pyruntime.ops.base import Op, op
from pyruntime.ops.microsoft.products.packed import PIECE

FP4, NF4 = 0, 1
_MAGNITUDES = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_TABLES = {
    FP4: np.array([*_MAGNITUDES, *(-x for x in _MAGNITUDES)], np.float32),
    NF4: np.array(
        [
            *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
            *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
            *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023),
            1.0,
        ],
        np.float32,
    ),
}


@op("MatMulBnb4", opsets=range(1, 2), domain="com.microsoft")
class MatMulBnb4(Op):
    """a: [..., K], float32, float16 or bfloat16; y: [..., N] of the same type. With transB = 0, they are exchanged.

    b: uint8 [ceil(N · K / 2)], the codes of [N, K] in row-major order, high bits of a byte first. absmax: scales in a's
    type, one for each block_size consecutive codes (blocks may span rows). quant_type: 0: FP4, 1: NF4. transB = 0: y
    [..., K] = a [..., N] @ b.
    """

    K: int
    N: int
    block_size: int
    quant_type: Annotated[int, 0, 1]
    training_mode: int = 0
    transB: int = 1  # noqa: N815

    @property
    def _sides(self) -> tuple[int, int]:
        """Columns of a and of y."""
        return (self.K, self.N) if self.transB else (self.N, self.K)

    def infer(self, a: TensorType, b: TensorType, absmax: TensorType) -> tuple[TensorType, ...]:
        if self.block_size < 1:
            self.fail("a positive block_size", self.block_size)
        if a.dtype not in (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16):
            self.fail("an A of float, float16 or bfloat16", a.dtype.type_string)
        self.same_dtype(a, absmax)
        columns, made = self._sides
        if not a.rank or a.shape[-1] != columns:
            self.fail(f"an A of {columns} columns", a)
        size = self.N * self.K
        if b.dtype is not DType.UINT8 or b.size != -(-size // 2):
            self.fail(f"a B of uint8[{-(-size // 2)}]", b)
        if absmax.size != -(-size // self.block_size):
            self.fail(f"an absmax of {-(-size // self.block_size)} elements", absmax)
        return (a.with_shape(*a.shape[:-1], made),)

    def evaluate(self, a: Array, b: Array, absmax: Array) -> tuple[Array, ...]:
        columns, made = self._sides
        rows = a.reshape(-1, columns).astype(np.float32, copy=False)
        flat, scales = b.reshape(-1), absmax.reshape(-1).astype(np.float32)
        y = np.zeros((rows.shape[0], made), np.float32)
        step = max(1, PIECE // self.K)
        for first in range(0, self.N, step):
            last = min(first + step, self.N)
            part = self._rows(flat, scales, first * self.K, last * self.K).reshape(last - first, self.K)
            if self.transB:
                y[:, first:last] = rows @ part.T
            else:
                y += rows[:, first:last] @ part
        return (y.reshape(*a.shape[:-1], made).astype(a.dtype, copy=False),)

    def _rows(self, flat: Array, scales: Array, first: int, last: int) -> Array:
        """Return the dequantized weights `first` to `last` in row-major order, as float32."""
        held = flat[first // 2 : -(-last // 2)]
        found = np.stack([held >> np.uint8(4), held & np.uint8(15)], axis=-1).reshape(-1)
        values = _TABLES[self.quant_type][found[first % 2 :][: last - first]]
        made: Array = values * scales[np.arange(first, last) // self.block_size]
        return made

    def lower(self, target: Target, a: TensorType, b: TensorType, absmax: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(a, b, absmax)
        k, n = self._sides
        packed = codes(inp(1, b), inp(2, absmax), self.quant_type == NF4, self.block_size)
        product = Product(y.size // n, n, k, trans_b=bool(self.transB))
        return product_with_packed(target, out(0, y), inp(0, a), packed, product)
