"""Attention with input projection: y = attention(x W + b). Source: com.microsoft operator Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, scratch
from pyruntime.kernels.ir.epilogue import linear
from pyruntime.kernels.products.matmul import Product, matmul
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

_FLOATS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)


@op("Attention", opsets=range(1, 2), domain="com.microsoft")
class Attention(Op):
    """y = softmax(scale · q kᵀ + mask + attention_bias) v, where [q, k, v] = input · weights + bias.

    input: [B, S, I], weights: [I, 2·H·D + H·E], bias: [2·H·D + H·E]. `qkv_hidden_sizes` gives the widths of q, k and v
    where they differ. mask_index: see `masks.py`. past: [2, B, H, P, D]; with `past_present_share_buffer` a buffer of P
    rows, of which past_sequence_length (int32 [1]) are valid. attention_bias: [B or 1, H or 1, S, T]. `unidirectional`
    is causal masking. `do_rotary` rotates q and k by position / 10000^(2j / R) in pairs (j, j + R / 2), where R is
    rotary_embedding_dim or D. Outputs: y [B, S, H·E], present [2, B, H, T, D]. Computed in float32 and rounded once.
    """

    operands = named("input weights", optional="bias mask_index past attention_bias past_sequence_length")

    do_rotary: int | None = None
    mask_filter_value: float | None = None
    num_heads: int
    past_present_share_buffer: int | None = None
    qkv_hidden_sizes: tuple[int, ...] | None = None
    rotary_embedding_dim: int | None = None
    scale: float | None = None
    unidirectional: int = 0

    def turning(self, s: MaskedHeads) -> int:
        """Return the number of components of a head to rotate."""
        turning = self.rotary_embedding_dim or s.size
        if turning % 2 or turning > s.size:
            self.fail(f"an even rotary_embedding_dim of at most {s.size}", turning)
        return turning

    def sizes(self, *inputs: Any) -> MaskedHeads:
        """Return the sizes of the attention. Raises InvalidGraph."""
        x, weights, _, _, past, _, length = self.operands(*inputs)
        shared = bool(self.past_present_share_buffer)
        if shared and (past is None or length is None or length.size != 1):
            self.fail("past and past_sequence_length, one int32, with past_present_share_buffer", length)
        widths = self.qkv_hidden_sizes or ()
        if len(widths) not in (0, 3):
            self.fail("three qkv_hidden_sizes", widths)
        return projected_sizes(self, x, weights, widths, past, shared)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, weights, bias, mask_index, past, attention_bias, _ = self.operands(*inputs)
        dtype = self.same_dtype(x, weights, bias, past, attention_bias)
        s = self.sizes(*inputs)
        if dtype not in _FLOATS:
            self.fail("an input of float, float16 or bfloat16", x)
        if bias is not None and bias.shape != weights.shape[1:]:
            self.fail(f"a bias of shape {list(weights.shape[1:])}", bias)
        check_projected(self, s, mask_index, attention_bias)
        if self.do_rotary:
            self.turning(s)
        y = TensorType(dtype, (s.batch, s.queries, s.heads * s.v_size))
        return y, TensorType(dtype, (2, s.batch, s.heads, s.present, s.size))

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, weights, bias, mask, past, attention_bias, length = self.operands(*inputs)
        s = self.sizes(*types_of(inputs))
        projected = np.matmul(x.astype(np.float32), weights.astype(np.float32))
        if bias is not None:
            projected = projected + bias.astype(np.float32)
        return attend_projected(self, s, projected, x.dtype, mask, past, attention_bias, length)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        given = bound(self.operands, inputs)
        s, outs = self.sizes(*inputs), self.infer(*inputs)
        hidden, width = given.weights.type.shape
        if not s.present or not hidden:
            raise Unsupported("no keys")
        projected = scratch(DType.FLOAT, s.batch, s.queries, width)
        added = None if given.bias is None else linear(given.bias, width, 1.0, 1.0, 0, 1)
        product = Product(s.batch * s.queries, width, hidden)
        made = matmul(target, projected, given.input, given.weights, product, added)
        others = Others(given.mask_index, given.past, given.attention_bias, given.past_sequence_length)
        return (*made, *lower_projected(self, target, s, projected, outs, others))
