"""Decoders as onnxruntime-genai's builder writes them in int4, float32 and float16: the tokens of onnxruntime's CPU."""

from __future__ import annotations

import onnxruntime
import pytest

import pyruntime
from tests.genai.greedy import greedy
from tests.genai.packed import SHAPES, packed_model, prompt_of
from tests.genai.precisions import PROMPTS, SEEDS, TOKENS


@pytest.mark.parametrize(("kind", "precision"), SEEDS)
def test_greedy__64_tokens_on_numpy__are_those_of_onnxruntime(kind: str, precision: str) -> None:
    shape = SHAPES[kind]
    data = packed_model(shape, SEEDS[kind, precision], precision)
    mine, theirs = (m.InferenceSession(data, providers=["CPUExecutionProvider"]) for m in (pyruntime, onnxruntime))
    for tokens in PROMPTS:
        prompt = prompt_of(tokens, shape.words)
        assert greedy(mine, shape, prompt, TOKENS)[0] == greedy(theirs, shape, prompt, TOKENS)[0], tokens
