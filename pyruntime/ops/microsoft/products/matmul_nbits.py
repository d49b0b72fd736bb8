"""MatMulNBits: y = a @ ((q - zero point) · scale)^T + bias, q of 2, 4 or 8 bits. Source: onnxruntime, com.microsoft."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, inp, out
from pyruntime.kernels.ir.dispatch import Partials
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.nbits import Normed, merging_product, normed_product, product_with_packed
from pyruntime.kernels.products.packed_weights import Packed, integers
from pyruntime.ops.base import Op, op
from pyruntime.ops.microsoft.products.packed import PIECE, dequantized, pack, zero_points
from pyruntime.ops.operands import named, optional

FLOATS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)

INT8 = 4
"""Value of accuracy_level that permits quantizing A to 8 bits."""


@op("MatMulNBits", opsets=range(1, 2), domain="com.microsoft")
class MatMulNBits(Op):
    """a: [..., K], float32, float16 or bfloat16; y: [..., N] of the same type.

    q: uint8 [N, ceil(K / block_size), block_size · bits / 8], low bits first, the last block of a row padded.
    block_size is a power of two, at least 16. scales: [N, blocks], flat or not, in a's type. zero_points: packed like
    q, [N, ceil(blocks · bits / 8)], or floats [N, blocks] in units of q; default 2^(bits - 1). g_idx: [K], the block
    whose scale and zero point apply to k; default k // block_size. bias: [N]. accuracy_level 4 permits quantizing A to
    8 bits, which GPU kernels do for more than eight rows.
    """

    operands = named("a b scales", optional="zeros groups bias")

    K: int
    N: int
    block_size: int
    bits: Annotated[int, 2, 4, 8] = 4
    accuracy_level: int = 0
    weight_prepacked: int = 0

    @property
    def blocks(self) -> int:
        """Number of blocks in a row."""
        return -(-self.K // self.block_size)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        a, b, scales, zeros, groups, bias = self.operands(*inputs)
        if self.block_size < 16 or self.block_size & (self.block_size - 1):
            self.fail("a block_size that is a power of two, 16 or more", self.block_size)
        if self.weight_prepacked:
            self.fail("weights as they are in the file (weight_prepacked=0); export the model without", 1)
        if a.dtype not in FLOATS:
            self.fail("an A of float, float16 or bfloat16", a.dtype.type_string)
        self.same_dtype(a, scales, bias)
        if not a.rank or a.shape[-1] != self.K:
            self.fail(f"an A of K={self.K} columns", a)
        self._check(b, scales, zeros, groups, bias)
        return (a.with_shape(*a.shape[:-1], self.N),)

    def _check(
        self,
        b: TensorType,
        scales: TensorType,
        zeros: TensorType | None,
        groups: TensorType | None,
        bias: TensorType | None,
    ) -> None:
        """Check the shapes of all inputs except A. Raises InvalidGraph."""
        size = self.N * self.blocks
        blob = self.block_size * self.bits // 8
        if b.dtype is not DType.UINT8 or b.size != size * blob:
            self.fail(f"a B of uint8[{self.N},{self.blocks},{blob}]", b)
        if scales.size != size:
            self.fail(f"scales of shape [{self.N},{self.blocks}]", scales)
        if zeros is not None:
            packed = zeros.dtype is DType.UINT8
            wanted = self.N * -(-self.blocks * self.bits // 8) if packed else size
            if not (packed or zeros.dtype in FLOATS) or zeros.size != wanted:
                self.fail(f"{wanted} zero_points, packed in uint8 or of a float type", zeros)
        if groups is not None and (groups.dtype is not DType.INT32 or groups.size < self.K):
            self.fail(f"a g_idx of int32[{self.K}]", groups)
        if bias is not None and bias.size != self.N:
            self.fail(f"a bias of {self.N} elements", bias)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        a, b, scales, zeros, groups, bias = self.operands(*inputs)
        rows = a.reshape(-1, self.K).astype(np.float32, copy=False)
        data, scales = b.reshape(self.N, self.blocks, -1), scales.reshape(self.N, self.blocks)
        zero = zero_points(zeros, self.N, self.blocks, self.bits)
        of = groups.reshape(-1)[: self.K] if groups is not None else None
        y = np.empty((rows.shape[0], self.N), np.float32)
        step = max(1, PIECE // self.K)
        for first in range(0, self.N, step):
            piece = slice(first, first + step)
            part = zero[piece] if zeros is not None else zero
            y[:, piece] = rows @ dequantized(data[piece], scales[piece], part, self.bits, of, self.K).T
        if bias is not None:
            y += bias.reshape(-1).astype(np.float32)
        return (y.reshape(*a.shape[:-1], self.N).astype(a.dtype, copy=False),)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        y, packed, product, add = self._operands(*inputs)
        return product_with_packed(target, y, inp(0, inputs[0]), packed, product, add, self.accuracy_level == INT8)

    def normed(self, target: Target, rows: Normed, *inputs: TensorType | None) -> tuple[Dispatch, ...] | None:
        """Return dispatches of a product that also normalizes its rows, or None without such a kernel.

        Args:
            inputs: input types; the first is that of the normalized rows.
        """
        y, packed, product, add = self._operands(*inputs)
        return normed_product(target, y, rows, packed, product, add)

    def reducing(self, target: Target, rows: Partials, *inputs: TensorType | None) -> tuple[Dispatch, ...] | None:
        """Return dispatches of a product that also reduces partial results to its rows, or None without such a kernel.

        Args:
            inputs: input types; the first is that of the reduced rows.
        """
        assert inputs[0] is not None
        y, packed, product, add = self._operands(*inputs)
        return merging_product(target, y, rows, inputs[0].dtype, packed, product, add)

    def _operands(self, *inputs: Any) -> tuple[Operand, Packed, Product, Operand | None]:
        """Return y, the packed weights, the sizes of the product, and the bias."""
        _, b, scales, zeros, groups, bias = self.operands(*inputs)
        (y,) = self.infer(*inputs)
        return out(0, y), self.packed(b, scales, zeros, groups), self.product(y), optional(5, bias)

    def product(self, y: TensorType) -> Product:
        """Return the sizes of the product with result y, [..., N]."""
        return Product(y.size // self.N, self.N, self.K, trans_b=True)

    def packed(self, b: TensorType, scales: TensorType, zeros: TensorType | None, groups: TensorType | None) -> Packed:
        """Return the weights (inputs 1 to 4) in the form that kernels take."""
        if zeros is not None and zeros.is_known and self._is_default(zeros.value()):
            zeros = None
        tensors = inp(1, b), inp(2, scales), optional(3, zeros), optional(4, groups)
        return integers(*tensors, self.bits, self.block_size, self.K)

    def _is_default(self, zeros: Array) -> bool:
        """Whether `zeros` has the default value everywhere."""
        half = 1 << (self.bits - 1)
        if zeros.dtype != np.uint8:
            return bool((zeros == half).all())
        row = pack(np.full(self.blocks, half, np.uint8), self.bits)
        found = zeros.reshape(self.N, -1)
        # Ignore the padding bits after the last zero point of a row.
        spare = np.uint8(0xFF >> (-self.blocks * self.bits % 8))
        return bool((found[:, :-1] == row[:-1]).all() and ((found[:, -1] & spare) == row[-1]).all())
