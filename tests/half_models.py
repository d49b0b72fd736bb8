"""Attention in float16, between casts: a model whose kernels on a device with shader-f16 are others than elsewhere."""

from __future__ import annotations

import numpy as np
import onnx

from pyruntime.ir import Array
from tests.models import text_model

__all__ = ["TOLERANCE", "attention", "attention_in_float64", "feeds"]

TOLERANCE = 2.0**-10
"""A unit in the last place of float16."""


def attention() -> onnx.ModelProto:
    """y [4, 32, 32, 128] = attention of q with 16 keys, by float16; inputs and output are float32."""
    return text_model(
        """
        g (float[4,32,32,128] q, float[4,32,16,128] k, float[4,32,16,128] v) => (float[4,32,32,128] y) {
            q16 = Cast<to = 10>(q)
            k16 = Cast<to = 10>(k)
            v16 = Cast<to = 10>(v)
            y16 = Attention(q16, k16, v16)
            y = Cast<to = 1>(y16)
        }
        """,
        23,
    )


def feeds() -> dict[str, Array]:
    """Numbers that are float16's."""
    random = np.random.default_rng(5)
    shapes = {"q": (4, 32, 32, 128), "k": (4, 32, 16, 128), "v": (4, 32, 16, 128)}
    return {n: random.standard_normal(shape).astype(np.float16).astype(np.float32) for n, shape in shapes.items()}


def attention_in_float64(q: Array, k: Array, v: Array) -> Array:
    """softmax(q kᵀ / sqrt(d)) v."""
    wide = [x.astype(np.float64) for x in (q, k, v)]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True) @ wide[2])
