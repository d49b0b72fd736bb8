"""FlexAttention: attention with graphs that modify scores and probabilities. Source: ai.onnx.preview.FlexAttention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, DType, Graph, TensorType, ValueType, conform, known
from pyruntime.kernels import Dispatch, Target
from pyruntime.ops.attention.attention import Attention
from pyruntime.ops.base import Unsupported, op
from pyruntime.ops.control.body import Body, BodyOp
from pyruntime.ops.normalization.softmax import softmax


@op("FlexAttention", domain="ai.onnx.preview", opsets=range(1, 2))
class FlexAttention(BodyOp):
    """y = prob_mod(softmax(score_mod(scale · q kᵀ))) v.

    q: [B, H, L, E], k: [B, G, S, E], v: [B, G, S, D], y: [B, H, L, D]; H is a multiple of G, and query head h reads
    head h div (H / G) of k and v. The graphs `score_mod` and `prob_mod` map a tensor [B, H, L, S] to one of the same
    type. Scores and probabilities have type `softmax_precision` (default: float; double for double inputs). `scale`
    defaults to 1/√E.
    """

    data_dependent = False
    prob_mod: Graph | None = None
    scale: float | None = None
    score_mod: Graph | None = None
    softmax_precision: int | None = None

    def infer(self, *inputs: Any) -> tuple[ValueType, ...]:
        own, _ = self.split(inputs)
        if len(own) != 3 or not all(isinstance(x, TensorType) and x.rank == 4 and x.dtype.is_float for x in own):
            self.fail("three float tensors of rank 4", [str(x) for x in own])
        q, k, v = own
        assert isinstance(q, TensorType) and isinstance(k, TensorType) and isinstance(v, TensorType)
        self.same_dtype(q, k, v)
        (batch, heads, length, size), (groups, keys) = q.shape, k.shape[1:3]
        if k.shape != (batch, groups, keys, size) or v.shape[:3] != (batch, groups, keys):
            self.fail("q [B, H, L, E], k [B, G, S, E], v [B, G, S, D]", f"{q}, {k}, {v}")
        if groups == 0 or heads % groups:
            self.fail(f"a multiple of {groups} query heads", heads)
        return (q.with_shape(batch, heads, length, v.shape[3]),)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Any, ...]:
        given = [t if t is None or t.is_known else known(t, x) for t, x in zip(types, inputs, strict=True)]
        (q, k, v), outer = self.split(given)
        assert isinstance(q, TensorType) and isinstance(k, TensorType) and isinstance(v, TensorType)
        wide = DType.DOUBLE if q.dtype is DType.DOUBLE else DType.FLOAT
        precision = wide if self.softmax_precision is None else DType.from_code(self.softmax_precision)
        scale = 1 / math.sqrt(max(q.shape[3], 1)) if self.scale is None else self.scale
        repeat = q.shape[1] // k.shape[1]
        queries, keys, values = (x.value().astype(wide.numpy) for x in (q, k, v))
        keys, values = np.repeat(keys, repeat, axis=1), np.repeat(values, repeat, axis=1)
        scores = queries @ keys.swapaxes(2, 3) * wide.numpy.type(scale)
        scores = self._modified(self.score_mod, outer, scores, precision)
        probabilities = self._modified(self.prob_mod, outer, softmax(scores, 3), precision)
        return (probabilities.astype(wide.numpy) @ values,)

    def _modified(self, graph: Graph | None, outer: dict[str, ValueType], x: Array, precision: DType) -> Array:
        type = TensorType(precision, x.shape)
        value = known(type, conform(type, x))
        if graph is not None:
            (value,) = Body(self, graph, outer)(value)
            if value != type:
                raise errors.RuntimeException(f"expected the body '{graph.name}' to give {type}, got {value}")
        array: Array = value.value()
        return array

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        if self.score_mod is not None or self.prob_mod is not None:
            raise Unsupported("score_mod and prob_mod run on the host")
        return Attention(scale=self.scale, present=self.present).lower(target, *inputs)
