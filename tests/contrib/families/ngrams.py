"""NGramHashMapping, VarlenNGramHashMapping and NGramRepeatBlock."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import F32, chance, floats, pick

EOS = 7


def _ids(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Ids with eos among them, or of all bits."""
    limits = np.iinfo(dtype)
    if chance(rng, 0.2):
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    ids = rng.integers(0, 1000, shape)
    return np.where(rng.random(shape) < 0.2, EOS, ids).astype(dtype)


def _tables(rng: np.random.Generator, dtype: Any, wraps: bool) -> tuple[list[Array | None], Array | None, Any]:
    """Multipliers and vocabularies, offsets, and attributes."""
    limits = np.iinfo(dtype)
    most, heads = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    multipliers = rng.integers(limits.min, limits.max, most + int(rng.integers(2)), dtype, endpoint=True)
    vocab = rng.integers(1, pick(rng, 20, 100003), (most - 1) * heads).astype(dtype)
    offsets = rng.integers(0, 1 << 20, vocab.shape).astype(dtype)
    if wraps and chance(rng):
        offsets = rng.integers(limits.min, limits.max, vocab.shape, dtype, endpoint=True)
    attributes = {"max_ngram_size": most, "n_head_per_ngram": heads, "pad_id": int(pick(rng, 0, 2, -1))}
    attributes |= {"reset_on_eos": int(chance(rng, 0.7))} if chance(rng, 0.8) else {}
    return [multipliers, vocab], offsets if chance(rng) else None, attributes


def draw_hashes(rng: np.random.Generator) -> Case:
    dtype = pick(rng, np.int32, np.int64)
    tables, offsets, attributes = _tables(rng, dtype, False)
    shape = (int(rng.integers(1, 4)), int(pick(rng, 0, 1, 2, 5, 17)))
    past = _ids(rng, dtype, shape[0], attributes["max_ngram_size"] - 1) if chance(rng) else None
    eos = np.array(EOS, dtype) if chance(rng, 0.7) else None
    segments = np.cumsum(rng.random(shape) < 0.3, axis=1).astype(np.int32) if chance(rng) else None
    inputs = [_ids(rng, dtype, *shape), *tables, past, offsets, eos, segments]
    return Case("NGramHashMapping", inputs, int(pick(rng, 1, 2)), attributes, host=True)


def draw_packed_hashes(rng: np.random.Generator) -> Case:
    dtype = pick(rng, np.int32, np.int64)
    tables, offsets, attributes = _tables(rng, dtype, True)
    lengths = rng.integers(1, 8, int(rng.integers(1, 5)))
    batch, total, before = len(lengths), int(lengths.sum()), attributes["max_ngram_size"] - 1
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    past = _ids(rng, dtype, batch, before) if chance(rng) else None
    eos = np.array(EOS, dtype) if chance(rng, 0.7) else None
    segments = rng.integers(0, 2, total).astype(np.int32) if chance(rng, 0.7) else None
    earlier = rng.integers(0, 2, (batch, before)).astype(np.int32) if segments is not None and chance(rng) else None
    counts = None
    if chance(rng):
        attributes["state_update_capacity"] = int(rng.integers(1, 9))
        counts = rng.integers(-1, 10, batch).astype(np.int32)
    inputs = [_ids(rng, dtype, total), *tables, ends, past, offsets, eos, segments, earlier, counts]
    # onnxruntime has no third output without segments.
    return Case("VarlenNGramHashMapping", inputs, 2 if segments is None else 4, attributes, host=True)


def draw_repeat_block(rng: np.random.Generator) -> Case:
    batch, length, vocab = int(rng.integers(1, 5)), int(pick(rng, 0, 1, 4, 30)), int(pick(rng, 2, 5, 40))
    inputs: list[Array | None] = [rng.integers(0, vocab, (batch, length)), floats(rng, (batch, vocab), F32)]
    return Case("NGramRepeatBlock", inputs, 1, {"ngram_size": int(pick(rng, 1, 2, 3, 4))}, host=True)


DRAWS: dict[str, Draw] = {
    "NGramHashMapping": draw_hashes,
    "VarlenNGramHashMapping": draw_packed_hashes,
    "NGramRepeatBlock": draw_repeat_block,
}
