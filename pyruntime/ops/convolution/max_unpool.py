"""MaxUnpool: y = 0 except y[indices[i]] = x[i], the partial inverse of MaxPool.

Indices refer to the shape that kernel, strides and pads imply. With `output_shape`, that block lies at the origin of
the larger output. Of equal indices the last element wins. Source: ONNX operator MaxUnpool (9, 11, 22) and its reference
implementation.
"""

from __future__ import annotations

import math

import numpy as np

from pyruntime.errors import RuntimeException
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, fill, for_each, gather_map, inp, out, scratch
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import LATEST, Op, Unsupported, op, refuse_float64

_MARK = """let index = load_indices(i);
  if (index.y != 0u || index.x >= params.total) { return; }
  let line = index.x / params.block.z;
  let at = vec4<u32>(
    index.x / params.block.w,
    (line / params.block.y) % params.block.x,
    line % params.block.y,
    index.x % params.block.z,
  );
  let place = at * params.strides;
  atomicMax(&marks[place.x + place.y + place.z + place.w], i + 1u);"""


@op("MaxUnpool", opsets=range(9, LATEST + 1))
class MaxUnpool(Op):
    """x, indices (int64): [N, C, D1 .. Dn]; output_shape: int64 [n + 2], whose value planning needs."""

    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def block(self, x: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape before pooling: (D - 1) * stride + kernel - begin - end. Raises InvalidGraph."""
        rank = len(x) - 2
        strides, pads = self.strides or (1,) * rank, self.pads or (0,) * (2 * rank)
        if rank < 1 or len(self.kernel_shape) != rank or len(strides) != rank or len(pads) != 2 * rank:
            self.fail(f"kernel_shape, strides and pads for {rank} spatial axes", (self.kernel_shape, strides, pads))
        spatial = [
            (d - 1) * s + k - b - e
            for d, s, k, b, e in zip(x[2:], strides, self.kernel_shape, pads[:rank], pads[rank:], strict=True)
        ]
        if min(spatial) < 1:
            self.fail("an unpooled shape of at least 1", spatial)
        return (*x[:2], *spatial)

    def infer(self, x: TensorType, indices: TensorType, shape: TensorType | None = None) -> tuple[TensorType, ...]:
        if indices.shape != x.shape or indices.dtype is not DType.INT64:
            self.fail(f"int64 indices {list(x.shape)}", indices)
        block = self.block(x.shape)
        whole = shape.ints() if shape is not None else block
        if len(whole) != x.rank or whole[:2] != x.shape[:2] or any(w < b for w, b in zip(whole, block, strict=True)):
            self.fail(f"an output_shape of at least {list(block)}, of as many images and channels", list(whole))
        return (x.with_shape(*whole),)

    def evaluate(self, x: Array, indices: Array, shape: Array | None = None) -> tuple[Array, ...]:
        block = self.block(x.shape)
        size = math.prod(block)
        if indices.size and not (indices.min() >= 0 and indices.max() < size):
            raise RuntimeException(f"MaxUnpool: expected indices in [0, {size}), got {indices.min()}..{indices.max()}")
        y = np.zeros(block, x.dtype)
        y.reshape(-1)[indices.reshape(-1)] = x.reshape(-1)
        if shape is None:
            return (y,)
        return (np.pad(y, [(0, int(w) - b) for w, b in zip(shape, block, strict=True)]),)

    def lower(
        self, target: Target, x: TensorType, indices: TensorType, shape: TensorType | None = None
    ) -> tuple[Dispatch, ...]:
        """Mark the last source element of each output position, then gather. Indices out of range are dropped."""
        refuse_float64(x)
        (y,) = self.infer(x, indices, shape)
        block = self.block(x.shape)
        if math.prod(block) >= 1 << 32:
            raise Unsupported("indices past 2^32")
        if len(block) > 5:
            raise Unsupported(f"{len(block) - 2} spatial axes; the kernel has 3")
        # Both shapes as [N, C, D, H, W]: missing spatial axes get extent 1.
        missing = (1,) * (5 - len(block))
        strides = contiguous((*y.shape[:2], *missing, *y.shape[2:]))
        marks = scratch(DType.UINT32, y.size)
        values: dict[str, int | list[int]] = {
            "block": [*missing, *block[2:], math.prod(block[2:])],
            "strides": list(strides[1:]),
            "total": math.prod(block),
        }
        reads, writes = {"indices": inp(1, indices)}, {"marks": marks}
        element = """let last = load_marks(i);
  if (last == 0u) { return 0.0; }
  return load_x(last - 1u);"""
        sources = [Source("x", inp(0, x)), Source("marks", marks)]
        return (
            fill(target, "clear", marks, bytes(16)),
            for_each(target, "max_unpool_mark", x.size, reads, writes, _MARK, values),
            gather_map(target, "max_unpool", out(0, y), sources, element),
        )
