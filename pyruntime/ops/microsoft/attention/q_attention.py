"""QAttention: Attention with 8-bit integer input and weights. Source: com.microsoft operator QAttention."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, scratch
from pyruntime.kernels.products.matmul import Matmul, Product
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.microsoft.attention.masks import MaskedHeads
from pyruntime.ops.microsoft.attention.projected import (
    Others,
    attend_projected,
    check_projected,
    lower_projected,
    projected_sizes,
)
from pyruntime.ops.operands import bound, named, types_of

_BYTES = (DType.INT8, DType.UINT8)
_FLOATS = (DType.FLOAT, DType.FLOAT16)


@op("QAttention", opsets=range(1, 2), domain="com.microsoft")
class QAttention(Op):
    """y = softmax(scale · q kᵀ + mask) v, where [q, k, v] = s_x (x - z_x) · s_w (w - z_w) + bias.

    x: int8 or uint8 [B, S, I], w: [I, 3·H·D], bias: [3·H·D]; s_x, z_x: scalars; s_w, z_w: scalars or one per column.
    mask_index, past, present and `do_rotary`: as in com.microsoft's Attention. The integer product is exact; the rest
    is computed in float32 and rounded once.
    """

    operands = named(
        "input weight bias input_scale weight_scale",
        optional="mask_index input_zero_point weight_zero_point past",
    )

    do_rotary: int | None = None
    mask_filter_value: float | None = None
    num_heads: int
    past_present_share_buffer: int | None = None
    scale: float | None = None
    unidirectional: int = 0

    def turning(self, s: MaskedHeads) -> int:
        """Return the number of components of a head to rotate: all."""
        if s.size % 2:
            self.fail("heads of an even number of components with do_rotary", s.size)
        return s.size

    def sizes(self, *inputs: Any) -> MaskedHeads:
        """Return the sizes of the attention. Raises InvalidGraph."""
        given = self.operands(*inputs)
        if self.past_present_share_buffer:
            self.fail("past_present_share_buffer 0 (the operator has no input for the number of valid keys)", 1)
        return projected_sizes(self, given.input, given.weight, (), given.past, False)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = self.operands(*inputs)
        dtype = self.same_dtype(bias, x_scale, w_scale, past)
        s = self.sizes(*inputs)
        if x.dtype not in _BYTES or w.dtype not in _BYTES or dtype not in _FLOATS:
            self.fail("int8 or uint8 input and weights, float or float16 bias and scales", f"{x}, {w}, {bias}")
        width = w.shape[1]
        if bias.shape != (width,):
            self.fail(f"a bias of shape [{width}]", bias)
        for given, counts in ((x_scale, (1,)), (x_zero, (1,)), (w_scale, (1, width)), (w_zero, (1, width))):
            if given is not None and given.size not in counts:
                self.fail(f"scales and zero points of {' or '.join(map(str, counts))} numbers", given)
        self.same_dtype(x, x_zero)
        self.same_dtype(w, w_zero)
        check_projected(self, s, mask, None)
        y = TensorType(dtype, (s.batch, s.queries, s.heads * s.v_size))
        return y, TensorType(dtype, (2, s.batch, s.heads, s.present, s.size))

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = self.operands(*inputs)
        s = self.sizes(*types_of(inputs))
        left = x.astype(np.int64) - (0 if x_zero is None else x_zero.reshape(-1).astype(np.int64))
        right = w.astype(np.int64) - (0 if w_zero is None else w_zero.reshape(-1).astype(np.int64))
        scales = x_scale.reshape(-1).astype(np.float32) * w_scale.reshape(-1).astype(np.float32)
        projected = np.matmul(left, right).astype(np.float32) * scales + bias.astype(np.float32)
        return attend_projected(self, s, projected, bias.dtype, mask, past, None, None)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        given = bound(self.operands, inputs)
        s, outs = self.sizes(*inputs), self.infer(*inputs)
        hidden, width = given.weight.type.shape
        if not s.present or not hidden:
            raise Unsupported("no keys")
        whole = scratch(DType.INT32, s.batch, s.queries, width)
        zeros = (given.input_zero_point, given.weight_zero_point)
        a_zero, b_zero = (None if z is None else (z, int(z.type.size > 1)) for z in zeros)
        product = Product(s.batch * s.queries, width, hidden)
        made = Matmul(product, whole, given.input, given.weight, a_zero=a_zero, b_zero=b_zero).lower(target)
        projected = scratch(DType.FLOAT, s.batch, s.queries, width)
        by_column = given.weight_scale.type.size > 1
        code = f"""let column = i % params.width;
  let scale = load_x_scale(0u) * load_w_scale({"column" if by_column else "0u"});
  return f32(load_x(i)) * scale + load_bias(column);"""
        sources = [Source("x", whole), Source("x_scale", given.input_scale), Source("w_scale", given.weight_scale)]
        sources.append(Source("bias", given.bias))
        name = "attention_projected" + "_columns" * by_column
        scaled = gather_map(target, name, projected, sources, code, {"width": width})
        others = Others(given.mask_index, given.past)
        return (*made, scaled, *lower_projected(self, target, s, projected, outs, others))
