"""RotaryEmbedding."""

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


DRAWS = {"RotaryEmbedding": draw}
