"""What models with hyper-connections have: HyperConnectionPreMix, -PostMix, BranchwiseRMSNorm, EngramGate."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import F16, F32, chance, floats, pick, shape_of

HALF = (2e-3, 2e-3)
"""float16 sums and norms: they are float32 on both sides, which add in different orders, and then rounded."""


def _streams(rng: np.random.Generator, dtype: Any) -> tuple[Array, dict[str, Any], tuple[int, ...], int, int]:
    """Streams, the attribute that says their form, the leading dimensions, C and H."""
    lead, c = shape_of(rng, 0, 3), int(pick(rng, 1, 2, 3, 4, 8))
    h = int(pick(rng, 1, 3, 4, 7, 16, 33, 64))
    while lead and np.prod(lead) * c * h > 20000:
        lead = lead[1:]
    flat = chance(rng)
    x = floats(rng, (*lead, c * h) if flat else (*lead, c, h), dtype, 2)
    named: dict[str, Any] = {"num_branches": c} if flat else {"num_branches": 0} if chance(rng, 0.3) else {}
    return x, named, lead, c, h


def _half(*arrays: Any) -> tuple[float, float] | None:
    return HALF if any(a is not None and a.dtype == F16 for a in arrays) else None


def draw_pre_mix(rng: np.random.Generator) -> Case:
    x, attributes, lead, c, h = _streams(rng, pick(rng, F32, F16))
    shapes = [(*lead, c), (*lead, c, 1), (*lead, c, h), *([x.shape] if attributes.get("num_branches") else [])]
    gate = floats(rng, pick(rng, *shapes), pick(rng, F32, F16))
    attributes |= {"reduction_scale": float(pick(rng, 0.25, -2.0))} if chance(rng) else {}
    return Case("HyperConnectionPreMix", [x, gate], 1, attributes, tolerance=_half(x, gate))


def draw_post_mix(rng: np.random.Generator) -> Case:
    x, attributes, lead, c, h = _streams(rng, pick(rng, F32, F16))
    kind = pick(rng, F32, F16)
    gate = floats(rng, pick(rng, (*lead, c), (*lead, c, 1), (*lead, c, h)), kind)
    inputs: list[Array | None] = [x, floats(rng, (*lead, h), x.dtype), gate]
    if chance(rng, 0.6):
        inputs.append(floats(rng, (*lead, c, c), kind))
    return Case("HyperConnectionPostMix", inputs, 1, attributes, tolerance=_half(x, gate))


def draw_norm(rng: np.random.Generator) -> Case:
    x, attributes, _, c, h = _streams(rng, pick(rng, F32, F16))
    attributes |= {"epsilon": float(pick(rng, 1e-6, 0.1))} if chance(rng) else {}
    inputs: list[Array | None] = [x]
    if chance(rng, 0.8):
        inputs.append(floats(rng, pick(rng, (c * h,), (c, h), (h,)), pick(rng, F32, F16)))
    return Case("BranchwiseRMSNorm", inputs, 1, attributes, tolerance=_half(*inputs))


def draw_engram(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    b, length, c = (int(n) for n in rng.integers(1, 5, 3))
    h = int(pick(rng, 1, 3, 8, 33, 64, 128))
    key, query = (floats(rng, (b, length, c, h), dtype, pick(rng, 0.5, 2)) for _ in range(2))
    scales = [floats(rng, (c, h), dtype) for _ in range(3 if chance(rng) else 2)]
    inputs: list[Array | None] = [key, query, floats(rng, (b, length, h), dtype), *scales]
    attributes = {"epsilon": float(pick(rng, 1e-6, 0.1))} if chance(rng) else {}
    outputs = int(pick(rng, 1, 2)) if len(scales) > 2 else 1
    return Case("EngramGate", inputs, outputs, attributes, tolerance=_half(key))


DRAWS: dict[str, Draw] = {
    "HyperConnectionPreMix": draw_pre_mix,
    "HyperConnectionPostMix": draw_post_mix,
    "BranchwiseRMSNorm": draw_norm,
    "EngramGate": draw_engram,
}
