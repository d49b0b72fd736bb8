"""Caches of 8 and 4 bits in generated text: how far the page's model is from itself with caches of floats."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pyruntime import genai
from pyruntime.errors import InvalidArgument
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.ir import Array

AUSTEN = Path(__file__).parents[2] / "models" / "austen"
TEXT = """Their estate was large, and their residence was at Norland Park, in the centre of their property, where, for
many generations, they had lived in so respectable a manner as to engage the general good opinion of their surrounding
acquaintance. The late owner of this estate was a single man, who lived to a very advanced age, and who for many years
of his life, had a constant companion and housekeeper in his sister. But her death, which happened ten years before
his own, produced a great alteration in his home; for to supply her loss, he invited and received into his house the
family of his nephew Mr. Henry Dashwood, the legal inheritor of the Norland estate, and the person to whom he intended
to bequeath it."""


def packed(bits: int) -> genai.Model:
    config = genai.Config(str(AUSTEN))
    config.kv_cache_bits = bits
    return genai.Model(config)


@cache
def log_perplexity(bits: int) -> float:
    model = packed(bits)
    ids = np.array(genai.Tokenizer(model).encode(TEXT.replace("\n", " ")), np.int64)

    async def logits() -> Array:
        made, _ = await model.decoder.step(ids[None], model.decoder.cache(1))
        return np.asarray((await made.numpy_async())[0], np.float64)

    scores = asyncio.run(logits())[:-1]
    top = scores.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
    return float((total - scores[np.arange(len(ids) - 1), ids[1:]]).mean())


@pytest.mark.parametrize(("bits", "most"), [(8, 0.0005), (4, 0.02)])
def test_perplexity__packed_caches__is_nearly_that_of_floats(bits: int, most: float) -> None:
    assert abs(np.exp(log_perplexity(bits) - log_perplexity(0)) - 1) < most


@pytest.mark.parametrize("bits", [8, 4])
def test_text__packed_caches__rewinds_and_goes_on(bits: int) -> None:
    model = packed(bits)
    generator = TextGenerator(model.decoder, genai.Tokenizer(model).inner)
    options = GenerationOptions(max_new_tokens=12)
    first = [piece.id for piece in generator.generate_sync("It is a truth", options)]
    assert [piece.id for piece in generator.generate_sync("It is a truth", options)] == first


def test_model__other_number_of_bits__is_refused() -> None:
    with pytest.raises(InvalidArgument, match="expected 8 or 4, got '16'"):
        packed(16)
