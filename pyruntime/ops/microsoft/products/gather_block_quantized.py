"""GatherBlockQuantized: y = (x[indices] - zero) · scale with packed x. Source: onnxruntime, com.microsoft."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType, ValueType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.kernels.products.packed_weights import unpacked_view
from pyruntime.ops.base import Op, op
from pyruntime.ops.elementwise.elementwise import FLOATS_8
from pyruntime.ops.indexing.indices import check_indices, index_value
from pyruntime.ops.microsoft.products.packed import unpack
from pyruntime.ops.operands import named

_FLOATS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)
_SMALL_FLOATS = FLOATS_8 | {DType.FLOAT4E2M1}


@op("GatherBlockQuantized", opsets=range(1, 2), domain="com.microsoft")
class GatherBlockQuantized(Op):
    """x: int4, uint4, a float of 8 or 4 bits, or uint8, whose last axis packs integers of `bits` bits, low bits first.

    scales: shape of unpacked x with ceil(s / block_size) for the s elements of quantize_axis. zero_points: like scales,
    packed along the last axis if x is; default: 0, or half of the range for uint8. y has the type of scales and the
    shape of Gather. Negative indices count from the end; indices out of range give zeros. block_size 0, for floats: a
    single block.
    """

    operands = named("x indices scales", optional="zeros")

    bits: int = 4
    block_size: int = 128
    gather_axis: int = 0
    quantize_axis: int = 1

    def _shape(self, x: TensorType) -> tuple[int, ...]:
        """Return the shape of unpacked x."""
        return (*x.shape[:-1], x.shape[-1] * 8 // self.bits) if x.dtype is DType.UINT8 else x.shape

    def _layout(self, x: TensorType) -> tuple[tuple[int, ...], int, int, int]:
        """Return the shape of unpacked x, both axes as non-negative indices, and the block size."""
        shape = self._shape(x)
        gather, quantize = (self.axis_of(axis, x.rank) for axis in (self.gather_axis, self.quantize_axis))
        return shape, gather, quantize, self.block_size or max(1, shape[quantize])

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, indices, scales, zeros = self.operands(*inputs)
        check_indices(self, indices)
        if x.dtype not in (DType.UINT8, DType.INT4, DType.UINT4, *_SMALL_FLOATS):
            self.fail("data of int4, uint4, uint8, float8 or float4e2m1", x.dtype.type_string)
        if scales.dtype not in _FLOATS:
            self.fail("scales of float, float16 or bfloat16", scales.dtype.type_string)
        if x.rank == 0:
            self.fail("data of rank 1 or more", x)
        if x.dtype is DType.UINT8 and self.bits not in (2, 4, 8):
            self.fail("integers of 2, 4 or 8 bits", f"bits={self.bits}")
        shape, gather, quantize, block = self._layout(x)
        if x.dtype is DType.UINT8 and self.bits < 8 and gather == x.rank - 1:
            self.fail("packed data to be gathered along another axis than the last", f"gather_axis={self.gather_axis}")
        if self.block_size < 0 or (self.block_size == 0 and x.dtype not in _SMALL_FLOATS):
            self.fail("a positive block_size", self.block_size)
        wanted = (*shape[:quantize], -(-shape[quantize] // block), *shape[quantize + 1 :])
        if scales.shape != wanted:
            self.fail(f"scales of shape {list(wanted)}", scales)
        if zeros is not None:
            packed = (*wanted[:-1], -(-wanted[-1] * self.bits // 8)) if x.dtype is DType.UINT8 else wanted
            if zeros.dtype is not x.dtype or zeros.shape != packed or x.dtype in _SMALL_FLOATS:
                self.fail(f"zero_points of {x.dtype.type_string} {list(packed)}, for integers alone", zeros)
        return (TensorType(scales.dtype, (*shape[:gather], *indices.shape, *shape[gather + 1 :])),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array | None) -> tuple[Array, ...]:
        x, indices, scales, zeros = self.operands(*inputs)
        kind = types[0]
        assert isinstance(kind, TensorType) and x is not None and indices is not None and scales is not None
        shape, gather, quantize, block = self._layout(kind)
        length = shape[gather]
        index = indices.astype(np.int64)
        index = np.where(index < 0, index + length, index)
        valid = (index >= 0) & (index < length)
        index = np.where(valid, index, 0)
        if not length:
            return (np.zeros((*shape[:gather], *index.shape, *shape[gather + 1 :]), scales.dtype),)
        packed = kind.dtype is DType.UINT8
        at = quantize if quantize < gather else quantize + index.ndim - 1

        def spread(values: Array) -> Array:
            """One value for each element gathered."""
            if quantize == gather:
                return np.asarray(np.take(values, index // block, axis=gather)).astype(np.float32)
            rows = np.repeat(np.take(values, index, axis=gather), block, axis=at)
            kept = (*(slice(None),) * at, slice(shape[quantize]))
            return np.asarray(rows[kept]).astype(np.float32)

        q = np.take(x, index, axis=gather)
        q = (unpack(q, self.bits) if packed else q).astype(np.float32)
        if zeros is not None:
            q -= spread(unpack(zeros, self.bits)[..., : scales.shape[-1]] if packed else zeros)
        elif packed:
            q -= np.float32(1 << (self.bits - 1))
        inside = valid.reshape((1,) * gather + valid.shape + (1,) * (len(shape) - gather - 1))
        return (np.where(inside, q * spread(scales), np.float32(0)).astype(scales.dtype),)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        x, indices, scales, zeros = self.operands(*inputs)
        (y,) = self.infer(*inputs)
        shape, gather, quantize, block = self._layout(x)
        packed = x.dtype is DType.UINT8
        sources = [
            Source("x", unpacked_view(inp(0, x), self.bits) if packed else inp(0, x)),
            Source("indices", inp(1, indices)),
            Source("scales", inp(2, scales)),
        ]
        zero, row = "0.0", scales.shape[-1]
        if zeros is not None:
            held = unpacked_view(inp(3, zeros), self.bits) if packed else inp(3, zeros)
            sources.append(Source("zeros", held))
            row = zeros.shape[-1] * 8 // self.bits if packed else row
            zero = "f32(load_zeros(block / params.row * params.zero_row + block % params.row))"
        elif packed:
            zero = f"{1 << (self.bits - 1)}.0"
        element = f"""let pick = i / params.inner;
  let outer = pick / params.picks;
  let given = {index_value(indices.dtype, "load_indices(pick - outer * params.picks)")};
  let index = select(given, given + i32(params.length), given < 0);
  if (index < 0 || index >= i32(params.length)) {{ return 0.0; }}
  let at = (outer * params.length + u32(index)) * params.inner + i - pick * params.inner;
  let line = at / params.within;
  let block = (line / params.axis * params.blocks + line % params.axis / params.block) * params.within
    + at % params.within;
  return (f32(load_x(at)) - {zero}) * load_scales(block);"""
        values = {
            "inner": math.prod(shape[gather + 1 :]),
            "picks": indices.size,
            "length": shape[gather],
            "within": math.prod(shape[quantize + 1 :]),
            "axis": shape[quantize],
            "blocks": scales.shape[quantize],
            "block": block,
            "row": scales.shape[-1],
            "zero_row": row,
        }
        name = f"gather_dequantize_{indices.dtype.onnx_name}"
        return (gather_map(target, name, out(0, y), sources, element, values),)
