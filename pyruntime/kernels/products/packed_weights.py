"""Right operands of matrix products that stay packed in memory: weights of a few bits with scales.

integers   [n][blocks][block weights of 2, 4 or 8 bits], a scale, and a zero point or not, for each block
codes      4-bit codes of a table (NF4, FP4), a scale for each block of all weights in a row
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyruntime.ir import DType, TensorType
from pyruntime.kernels.ir.dispatch import Operand

__all__ = ["Packed", "codes", "in_words", "integers", "unpacked_view"]


@dataclass(frozen=True, slots=True)
class Packed:
    """What `shaders/products/matmul_packed_tiled.wgsl` and the kernels of `kernels.products.nbits` need to unpack b.

    Attributes:
        name: what kernels are called.
        operand: the packed weights in words.
        operands: scales, zero points, groups, by the names that the shaders use.
        bits, block: of a weight; weights that share a scale.
        blocks: blocks of a row (codes: of all).
        defines: conditions and constants of the shaders.
        zero_pitch: bytes of a row of packed zero points.
    """

    name: str
    operand: Operand
    operands: Mapping[str, Operand]
    bits: int
    block: int
    blocks: int
    defines: Mapping[str, int]
    zero_pitch: int = 0

    @property
    def fields(self) -> dict[str, int]:
        """Values of the Params fields that tiles add for packed weights."""
        words = self.blocks * self.block * self.bits // 32
        return {"b_words": words, "b_blocks": self.blocks, "zero_pitch": self.zero_pitch}

    @property
    def is_codes(self) -> bool:
        """True where weights are indices into a table of numbers."""
        return "CODES" in self.defines

    @property
    def is_grouped(self) -> bool:
        """True where a tensor says which scale every k has."""
        return "GROUPED" in self.defines


def in_words(operand: Operand, width: int = 1) -> Operand:
    """The same bytes as 32-bit words, or units of `width` of them: 2, an element of 64 bits; 4, loaded by fours."""
    words = -(-operand.type.nbytes // (4 * width)) * width
    kind = TensorType(DType.UINT64, (words // 2,)) if width == 2 else TensorType(DType.UINT32, (words,))
    return Operand(operand.role, operand.index, kind, operand.data)


def integers(
    b: Operand, scales: Operand, zeros: Operand | None, group_of: Operand | None, bits: int, block: int, k: int
) -> Packed:
    """Weights of `bits` bits, low bits of a byte first, in blocks along k whose last one is padded.

    Args:
        b: uint8 [n, ceil(k / block), block * bits / 8].
        scales: [n, ceil(k / block)].
        zeros: of a float type as `scales`, in steps of a weight; or uint8, packed as weights, every row from a byte on.
            None: half of the range.
        group_of: int32 [k], the scale and zero point of every k instead of k // block.
    """
    blocks = -(-k // block)
    operands = {"scales": scales}
    defines = {"BITS": bits, "BLOCK": block}
    if bits != 4:
        defines[f"BITS{bits}"] = 1
    if zeros is not None:
        operands["zeros"] = zeros
        defines["FLOAT_ZEROS" if zeros.type.dtype.is_float else "ZEROS"] = 1
    if group_of is not None:
        operands["group_of"] = group_of
        defines["GROUPED"] = 1
    pitch = -(-blocks * bits // 8)
    return Packed(f"matmul_{bits}bits", in_words(b), operands, bits, block, blocks, defines, pitch)


def codes(b: Operand, scales: Operand, nf4: bool, block: int) -> Packed:
    """4-bit codes, high bits of a byte first; `block` of them in a row, over the ends of rows, share a scale."""
    defines = {"BLOCK": block, "CODES": 1, **({"NF4": 1} if nf4 else {})}
    name = "matmul_nf4" if nf4 else "matmul_fp4"
    return Packed(name, in_words(b), {"scales": scales}, 4, block, scales.type.size, defines)


def unpacked_view(operand: Operand, bits: int) -> Operand:
    """Bytes as the integers of `bits` bits that are packed in them, low bits first."""
    dtype = {2: DType.UINT2, 4: DType.UINT4, 8: DType.UINT8}[bits]
    return Operand(operand.role, operand.index, TensorType(dtype, (operand.type.size * 8 // bits,)), operand.data)
