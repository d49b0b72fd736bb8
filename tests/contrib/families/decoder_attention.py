"""DecoderMaskedMultiHeadAttention.

The CPU provider has cross attention without attention_bias, and caches in shared buffers; of those that grow and of a
packed query MultiHeadAttention with the same inputs is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case
from tests.contrib.drawing import chance, floats, pick
from tests.contrib.families.multi_head_attention import run_with_scores

__all__ = ["DRAWS"]

_NAME = "DecoderMaskedMultiHeadAttention"


def _by_the_other(attributes: dict[str, Any], outputs: list[str], packed: bool) -> Callable[..., tuple[Array, ...]]:
    """MultiHeadAttention with the inputs of this operator."""

    def reference(*inputs: Any) -> tuple[Array, ...]:
        given = [*inputs, *[None] * (11 - len(inputs))]
        query, key, value, mask, added, past_key, past_value, length, _, _, bias = given
        if packed:
            query, key, value = (np.ascontiguousarray(x) for x in np.split(query, 3, axis=2))
        kept = {n: v for n, v in attributes.items() if n in ("num_heads", "scale", "mask_filter_value")}
        rows = length if attributes.get("past_present_share_buffer") else None
        made = [query, key, value, bias, mask, added, past_key, past_value, rows]
        return run_with_scores("MultiHeadAttention", made, outputs, kept)

    return reference


def _itself(attributes: dict[str, Any], outputs: list[str]) -> Callable[..., tuple[Array, ...]]:
    return lambda *inputs: run_with_scores(_NAME, inputs, outputs, attributes)


def _attributes(rng: np.random.Generator, heads: int) -> dict[str, Any]:
    made: dict[str, Any] = {"num_heads": heads}
    if chance(rng, 0.3):
        made["scale"] = float(rng.uniform(0.1, 0.6))
    if chance(rng, 0.3):
        made["mask_filter_value"] = float(pick(rng, -2.0, -1e4, -3.4e38))
    return made


def draw_self(rng: np.random.Generator) -> Case:
    """One token over a shared buffer, of beams or not, or over caches that grow."""
    width = pick(rng, 1, 1, 2, 3)
    batch, heads, size = width * int(rng.integers(1, 3)), int(rng.integers(1, 5)), pick(rng, 4, 8, 5, 64)
    shared = width > 1 or chance(rng)
    past = pick(rng, 0, 1, 6, 70)
    rows = past + int(rng.integers(1, 5)) if shared else past
    packed = chance(rng, 0.2)
    x: list[Array | None] = [floats(rng, (batch, 1, heads * size)) for _ in range(3)]
    if packed:
        x = [floats(rng, (batch, 1, 3 * heads * size)), None, None]
    attributes = _attributes(rng, heads)
    mask = (rng.random((batch, past + 1)) < 0.7).astype(np.int32) if chance(rng, 0.4) else None
    added = None
    if chance(rng, 0.3):
        # With beams the CPU provider takes the bias of entry b / beams for entry b.
        added = floats(rng, (pick(rng, 1, batch) if width == 1 else 1, pick(rng, 1, heads), 1, past + 1))
    caches = [floats(rng, (batch, heads, rows, size)) for _ in range(2)]
    length = np.array([past], np.int32) if shared else None
    beams = None
    if width > 1 or (shared and chance(rng, 0.3)):
        beams = rng.integers(0, width, (batch // width, width, rows)).astype(np.int32)
    count = np.array([width], np.int32) if beams is not None else None
    bias = floats(rng, (3 * heads * size,)) if chance(rng, 0.4) else None
    if shared:
        attributes["past_present_share_buffer"] = 1
    inputs = [*x, mask, added, *caches, length, count, beams, bias]
    outputs = ["y0", "y1", "y2"]
    if chance(rng, 0.3):
        attributes["output_qk"] = 1
        outputs.append("y3")
    reference = _itself(attributes, outputs)
    if packed and width > 1:
        reference = _unpacked(attributes, outputs)
    elif packed or not shared:
        reference = _by_the_other(attributes, outputs, packed)
    # Where all keys are masked, scores are near -10000, of which float32 has three decimals.
    tolerance = (2e-3, 2e-3) if mask is not None else None
    return Case(_NAME, inputs, len(outputs), attributes, reference=reference, tolerance=tolerance)


def _unpacked(attributes: dict[str, Any], outputs: list[str]) -> Callable[..., tuple[Array, ...]]:
    def reference(query: Array, key: None, value: None, *others: Any) -> tuple[Array, ...]:
        parts = [np.ascontiguousarray(x) for x in np.split(query, 3, axis=2)]
        return run_with_scores(_NAME, [*parts, *others], outputs, attributes)

    return reference


def draw_cross(rng: np.random.Generator) -> Case:
    """Keys and values of an encoder."""
    batch, heads, size = int(rng.integers(1, 4)), int(rng.integers(1, 5)), pick(rng, 4, 8, 5, 64)
    keys = pick(rng, 1, 3, 9, 300)
    attributes = _attributes(rng, heads)
    x = [floats(rng, (batch, 1, heads * size)), *(floats(rng, (batch, heads, keys, size)) for _ in range(2))]
    mask = (rng.random((batch, keys)) < 0.7).astype(np.int32) if chance(rng, 0.4) else None
    added = floats(rng, (pick(rng, 1, batch), pick(rng, 1, heads), 1, keys)) if chance(rng, 0.2) else None
    bias = floats(rng, (3 * heads * size,)) if chance(rng, 0.4) else None
    inputs = [*x, mask, added, None, None, None, None, None, bias]
    tolerance = (2e-3, 2e-3) if mask is not None else None
    reference = _itself(attributes, ["y0"]) if added is None else _by_the_other(attributes, ["y0"], False)
    return Case(_NAME, inputs, 1, attributes, reference=reference, tolerance=tolerance)


def _any(rng: np.random.Generator) -> Case:
    return draw_cross(rng) if chance(rng, 0.3) else draw_self(rng)


DRAWS = {_NAME: _any}
