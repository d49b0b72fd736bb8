"""RotaryEmbedding and MRotaryEmbedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case

__all__ = ["DRAWS"]


def draw(rng: np.random.Generator) -> Case:
    """Rank 3 and 4, whole and partial, positions of both forms."""
    kind = str(rng.choice(["float32", "float32", "float16"]))
    batch, heads, length = (int(n) for n in rng.integers(1, 5, 3))
    half = int(rng.choice([1, 2, 3, 4, 16]))
    partial = rng.random() < 0.4
    size = 2 * half + (2 * int(rng.integers(1, 4)) if partial else 0)
    attributes: dict[str, Any] = {"interleaved": int(rng.integers(2))}
    if partial:
        attributes |= {"num_heads": heads, "rotary_embedding_dim": 2 * half}
    elif rng.random() < 0.5:
        attributes["num_heads"] = heads
    if rng.random() < 0.2:
        attributes["scale"] = 2.0
    places = length + int(rng.integers(0, 20))
    positions = rng.integers(0, places, (batch, length))
    if rng.random() < 0.4:
        positions = np.array([int(rng.integers(0, places - length + 1))])
    elif rng.random() < 0.3:
        attributes["is_packed_batching"] = 1
    shape = (batch, heads, length, size) if rng.random() < 0.5 else (batch, length, heads * size)
    angles = rng.uniform(-3, 3, (places, half))
    inputs: list[Array | None] = [rng.standard_normal(shape).astype(kind), positions, np.cos(angles).astype(kind)]
    inputs.append(np.sin(angles).astype(kind))
    # Half: the CPU provider rounds products.
    return Case("RotaryEmbedding", inputs, 1, attributes, tolerance=(5e-3, 5e-3) if kind == "float16" else None)


def draw_sections(rng: np.random.Generator) -> Case:
    """Rank 3 and 4, whole and partial, both layouts, groups of pairs of any sizes."""
    kind = str(rng.choice(["float32", "float32", "float16"]))
    batch, heads, length = (int(n) for n in rng.integers(1, 5, 3))
    half = int(rng.choice([1, 2, 3, 4, 12, 16]))
    partial, flat = rng.random() < 0.4, rng.random() < 0.5
    size = 2 * half + (2 * int(rng.integers(1, 4)) if partial else 0)
    ends = sorted(int(n) for n in rng.integers(0, half + 1, 2))
    attributes: dict[str, Any] = {"mrope_section": [ends[0], ends[1] - ends[0], half - ends[1]]}
    attributes["interleaved"] = int(rng.integers(2))
    if rng.random() < 0.6:
        attributes["mrope_layout"] = int(rng.integers(2))
    if partial:
        attributes["rotary_embedding_dim"] = 2 * half
    if partial or flat:
        attributes["num_heads"] = heads
    if rng.random() < 0.3:
        attributes["scale"] = float(rng.choice([0.5, 1.25, -1.0]))
    if rng.random() < 0.3:
        attributes["is_packed_batching"] = 1
    places = length + int(rng.integers(0, 20))
    shape = (batch, length, heads * size) if flat else (batch, heads, length, size)
    angles = rng.uniform(-3, 3, (places, half))
    inputs: list[Array | None] = [rng.standard_normal(shape).astype(kind), rng.integers(0, places, (3, batch, length))]
    inputs += [np.cos(angles).astype(kind), np.sin(angles).astype(kind)]
    # Half: the CPU provider rounds products.
    return Case("MRotaryEmbedding", inputs, 1, attributes, tolerance=(5e-3, 5e-3) if kind == "float16" else None)


DRAWS = {"RotaryEmbedding": draw, "MRotaryEmbedding": draw_sections}
