"""GatedAdd, GatedRMSNorm, LinearAttentionGate."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import BFLOAT16, F16, F32, chance, floats, of, pick, shape_of


def draw_gated_add(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16, BFLOAT16)
    x = floats(rng, shape_of(rng, 1, 4), dtype)
    inputs = [x, floats(rng, x.shape, dtype), floats(rng, (*x.shape[:-1], 1), dtype)]

    def reference(x: Any, y: Any, gate: Any) -> tuple[Array, ...]:
        return ((of(x) + of(y) * of(gate)).astype(x.dtype),)  # type: ignore[operator]

    return Case("GatedAdd", list(inputs), reference=reference if dtype == BFLOAT16 else None)


def draw_gated_rms_norm(rng: np.random.Generator) -> Case:
    dtype, c = pick(rng, F32, F16), int(pick(rng, 1, 3, 8, 64, 100))
    x = floats(rng, shape_of(rng, 2, 3, c * int(rng.integers(1, 4))), dtype)
    inputs = [x, floats(rng, (c,), dtype), floats(rng, x.shape, dtype)]
    attributes = {"activation": pick(rng, "silu", "swish", "sigmoid"), "epsilon": float(pick(rng, 1e-5, 0.1))}
    return Case("GatedRMSNorm", list(inputs), 1, attributes)


def draw_linear_attention_gate(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    a = floats(rng, shape_of(rng, 3, 3), dtype, 3)
    vectors = [floats(rng, a.shape[-1:]) for _ in range(2)]
    if chance(rng):
        return Case("LinearAttentionGate", [a, *vectors])
    return Case("LinearAttentionGate", [a, *vectors, floats(rng, a.shape, dtype)], int(pick(rng, 1, 2)))


DRAWS: dict[str, Draw] = {
    "GatedAdd": draw_gated_add,
    "GatedRMSNorm": draw_gated_rms_norm,
    "LinearAttentionGate": draw_linear_attention_gate,
}
