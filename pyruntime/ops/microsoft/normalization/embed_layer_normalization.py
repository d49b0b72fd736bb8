"""EmbedLayerNormalization: y = LayerNormalization(word[ids] + position[ids] + segment[ids]).

QEmbedLayerNormalization has 8-bit tables, gamma and beta. Source: com.microsoft operators of these names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.operands import named


@op("EmbedLayerNormalization", opsets=range(1, 2), domain="com.microsoft")
class EmbedLayerNormalization(Decomposed):
    """ids: int32 [B, S] (position_ids: [B, S] or [1, S], default 0 .. S - 1); tables: [rows, H]; gamma, beta: [H].

    Outputs: y [B, S, H]; mask_index int32 [B], the number of ones in each row of the mask (0 without a mask); and the
    sum before normalization.
    """

    epsilon: float = 1e-12
    mask_index_type: int | None = None

    operands = named("input_ids segment_ids? word position segment? gamma beta", optional="mask position_ids")

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        input_ids, segment_ids, word, position, segment, gamma, beta, mask, position_ids = self.operands(*inputs)
        if input_ids.rank != 2:
            self.fail("input_ids [batch, sequence]", input_ids)
        if (segment_ids is None) != (segment is None):
            self.fail("segment_ids and segment_embedding together", f"{segment_ids} and {segment}")
        batch, length = input_ids.shape
        for ids, kinds in ((segment_ids, [(batch, length)]), (position_ids, [(batch, length), (1, length)])):
            if ids is not None and ids.shape not in kinds:
                self.fail(f"ids {list(kinds[0])}", ids)
        if position_ids is None and position.shape[0] < length:
            self.fail(f"a position for each of {length} tokens", position)
        if position_ids is None:
            position_ids = body.ints(*range(length))
        total = body("Add", body("Gather", word, input_ids), body("Gather", position, position_ids))
        if segment is not None:
            total = body("Add", total, body("Gather", segment, segment_ids))
        y = body("LayerNormalization", total, gamma, beta, epsilon=self.epsilon)
        return y, self._mask_index(body, mask, batch) if self.wants(1) else None, total

    def _mask_index(self, body: Expansion, mask: TensorType | None, batch: int) -> TensorType:
        """Count the ones in each row of the mask."""
        if mask is None:
            return body.constant(np.zeros(batch, np.int32), DType.INT32)
        ones = body("Equal", mask, body.number(1, mask.dtype))
        return body("ReduceSum", body("Cast", ones, to=DType.INT32.code), body.ints(1), keepdims=0)


@op("QEmbedLayerNormalization", opsets=range(1, 2), domain="com.microsoft")
class QEmbedLayerNormalization(Decomposed):
    """EmbedLayerNormalization with (t - zero) · scale for each t of the tables, gamma and beta; without position_ids.

    t: int8 or uint8, with a scalar float scale and a scalar zero point each. Outputs: y [B, S, H] and mask_index int32
    [B].
    """

    epsilon: float = 1e-12

    operands = named(
        "input_ids segment_ids? word position segment? gamma beta mask?"
        " word_scale position_scale segment_scale? gamma_scale beta_scale"
        " word_zero position_zero segment_zero? gamma_zero beta_zero"
    )

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        given = self.operands(*inputs)

        def dequantized(name: str) -> TensorType | None:
            table, scale = getattr(given, name), getattr(given, f"{name}_scale")
            if table is None:
                return None
            if scale is None or scale.size != 1:
                self.fail("one scale for each table", scale)
            return body("DequantizeLinear", table, scale, getattr(given, f"{name}_zero"))

        tables = map(dequantized, ("word", "position", "segment", "gamma", "beta"))
        inner = EmbedLayerNormalization(epsilon=self.epsilon, present=(self.wants(0), self.wants(1)))
        return inner.expand(body, given.input_ids, given.segment_ids, *tables, given.mask)[:2]
