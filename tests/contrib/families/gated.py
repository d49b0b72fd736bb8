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
    columns = int(pick(rng, 0, 1, 7))
    inputs = [x, floats(rng, x.shape, dtype), floats(rng, (*x.shape[:-1], columns or 1), dtype)]
    if columns:
        inputs.append(floats(rng, (columns, 1), dtype))

    def reference(x: Any, y: Any, gate: Any, weight: Any = None) -> tuple[Array, ...]:
        open_by: Any = of(gate)
        if weight is not None:
            open_by = 1 / (1 + np.exp(-open_by @ of(weight)))
        return ((of(x) + of(y) * open_by).astype(x.dtype),)

    # The CPU provider has neither bfloat16 nor a gate_weight.
    own = dtype == BFLOAT16 or columns
    tolerance = {F32: (1e-5, 1e-5), F16: (4e-3, 4e-3), BFLOAT16: (3e-2, 3e-2)}[dtype] if columns else None
    return Case("GatedAdd", list(inputs), reference=reference if own else None, tolerance=tolerance)


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
