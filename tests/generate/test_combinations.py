"""Any two settings of a generation together: every sequence comes to its end, and keeps to what was asked for."""

from __future__ import annotations

import asyncio
import re
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime.generate.beams import beam_search
from pyruntime.generate.constraints import TokenTable, constraint_of
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.ir import Array
from tests.contrib.decoder import decoder

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TEXTS = [None, *LETTERS, *[None] * (49 - len(LETTERS))]
PATTERN = "[a-f]{2,9}"


def without_e(ids: Array, logits: Array) -> Array:
    made = np.array(logits)
    made[:, TEXTS.index("e")] = -np.inf
    return made


SETTINGS: dict[str, dict[str, Any]] = {
    "draws": {"do_sample": True, "seed": 1, "temperature": 2.0, "top_k": 20},
    "constraint": {"constraint": constraint_of("regex", PATTERN, TokenTable(TEXTS, [0]))},
    "sequences": {"num_sequences": 3},
    "processor": {"processors": (without_e,)},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.2, "frequency_penalty": 0.1},
    "ngrams": {"no_repeat_ngram_size": 2},
    "least": {"min_new_tokens": 3},
    "lookup": {"lookup": 3},
    "window": {"window": 6, "sinks": 2},
}
PAIRS = list(combinations(SETTINGS, 2))


@pytest.fixture(scope="module")
def model() -> DecoderModel:
    return DecoderModel(pyruntime.InferenceSession(decoder().model))


def check(ids: list[int], pair: tuple[str, str]) -> None:
    """What one sequence generated, its end token with it."""
    text = "".join(TEXTS[token] or "?" for token in ids if token)
    assert 1 <= len(ids) <= 10
    if "constraint" in pair:
        assert re.fullmatch(PATTERN, text), text
    if "processor" in pair:
        assert "e" not in text
    if "ngrams" in pair:
        assert len({*pairwise(ids)}) == len(ids) - 1
    if "least" in pair:
        assert 0 not in ids[:3]


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
@pytest.mark.parametrize("prompts", [[[3, 1, 2]], [[3, 1, 2], [4, 5]]], ids=["one", "two"])
def test_pairs__of_settings__hold(pair: tuple[str, str], prompts: list[list[int]], model: DecoderModel) -> None:
    options = GenerationOptions(max_new_tokens=10, end_tokens=(0,), **SETTINGS[pair[0]], **SETTINGS[pair[1]])
    pieces = list(TextGenerator(model).generate_sync(prompts, options))
    sequences = range(len(prompts) * options.num_sequences)
    for sequence in sequences:
        own = [piece for piece in pieces if piece.sequence == sequence]
        assert [bool(piece.finish) for piece in own] == [False] * (len(own) - 1) + [True]
        new = [piece.id for piece in own]
        if "ngrams" in pair:
            prompt = prompts[sequence // options.num_sequences]
            new_pairs = {*zip([prompt[-1], *new], new, strict=False)}
            assert not new_pairs & {*pairwise(prompt)}
        check(new, pair)


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_pairs__of_settings_with_beams__hold_or_are_refused(pair: tuple[str, str], model: DecoderModel) -> None:
    options = GenerationOptions(max_new_tokens=10, end_tokens=(0,), **SETTINGS[pair[0]], **SETTINGS[pair[1]])
    if "draws" in pair:
        with pytest.raises(pyruntime.InvalidArgument, match="does not sample"):
            asyncio.run(beam_search(model, [3, 1, 2], 4, options))
        return
    found = asyncio.run(beam_search(model, [3, 1, 2], 4, options))
    assert len(found) == options.num_sequences
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    for ids, score in found:
        assert np.isfinite(score)
        assert score > -1e6
        check(ids[3:], pair)
