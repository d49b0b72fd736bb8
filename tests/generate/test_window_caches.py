"""Caches of a window's rows alone (`sliding_window_cache`): the tokens of onnxruntime, whose caches grow.

As onnxruntime-genai's builder writes them for CPU and CUDA, with `sliding_window` in genai_config.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime
from pyruntime import genai
from pyruntime.generate.decoder import SLACK, DecoderModel
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from tests.contrib.decoder import Decoder, decoder
from tests.genai.folder import write_folder

WINDOW = 8
LOCALS: dict[str, int | tuple[int, ...]] = {"all": WINDOW, "every other layer": (WINDOW, -1), "two sizes": (3, WINDOW)}


@cache
def made(local: str, windowed: bool = True) -> Decoder:
    return decoder(local=LOCALS[local], windowed=windowed)


@cache
def oracle(local: str) -> Any:
    return onnxruntime.InferenceSession(made(local, False).model, providers=["CPUExecutionProvider"])


def greedy(prompt: Sequence[int], steps: int, local: str) -> list[int]:
    """onnxruntime's tokens after whole caches; the text is computed anew for each."""
    ids = list(prompt)
    for _ in range(steps):
        feed = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, len(ids)), np.int64)}
        ids.append(int(oracle(local).run(["logits"], feed | made(local).empty(1))[0][0, -1].argmax()))
    return ids[len(prompt) :]


def written(model: DecoderModel, prompt: Any, **options: Any) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for piece in TextGenerator(model).generate_sync(prompt, GenerationOptions(**options)):
        found.setdefault(piece.sequence, []).append(piece.id)
    return [found[b] for b in sorted(found)]


def prompt_of(length: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(length).integers(0, 50, length)]


@pytest.mark.parametrize("local", list(LOCALS))
@pytest.mark.parametrize("slack", [0, 3, SLACK])
@pytest.mark.parametrize("length", [1, 7, 60])
def test_greedy__over_many_windows__tokens_of_whole_caches(local: str, slack: int, length: int) -> None:
    model = DecoderModel(pyruntime.InferenceSession(made(local).model), slack=slack)
    prompt = prompt_of(length)
    assert written(model, prompt, max_new_tokens=50) == [greedy(prompt, 50, local)]
    assert written(model, prompt, max_new_tokens=9, prefill_chunk=5) == [greedy(prompt, 9, local)]


def test_rows__of_caches__are_the_windows_and_the_slack() -> None:
    model = DecoderModel(pyruntime.InferenceSession(made("every other layer").model), slack=3)
    rows = {name: value.shape()[2] for name, value in model.cache(1).values.items()}
    assert rows == {"past.0.key": WINDOW + 3, "past.0.value": WINDOW + 3, "past.1.key": 0, "past.1.value": 0}
    assert not model.rewindable and model.local is None


def test_sequences__of_a_batch__each_as_alone() -> None:
    model = DecoderModel(pyruntime.InferenceSession(made("all").model))
    prompts = [prompt_of(20), prompt_of(20)[::-1]]
    assert written(model, prompts, max_new_tokens=30) == [greedy(p, 30, "all") for p in prompts]


def folder_of(path: Path, model: bytes, sliding: dict[str, Any] | None) -> genai.Config:
    folder = write_folder(path)
    (folder / "model.onnx").write_bytes(model)
    config = genai.Config(str(folder))
    config.overlay(json.dumps({"model": {"eos_token_id": 49, "decoder": {"sliding_window": sliding}}}))
    return config


@pytest.mark.parametrize("slack", [{}, {"cache_slack": 0}, {"cache_slack": 5}], ids=str)
def test_genai__sliding_window_of_the_builder__is_followed(slack: dict[str, int], tmp_path: Path) -> None:
    sliding = {"window_size": WINDOW, "slide_key_value_cache": False, "slide_inputs": False, "layers": [0], **slack}
    config = folder_of(tmp_path, made("every other layer").model, sliding)
    model = genai.Model(config)
    shape = model.decoder.cache(1).values["past.0.key"].shape()
    assert shape[2] == WINDOW + (slack.get("cache_slack") or SLACK)
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=60)
    generator = genai.Generator(model, params)
    generator.append_tokens([4, 6])
    while not generator.is_done():
        generator.generate_next_token()
    made_of = generator.get_sequence(0)[2:].tolist()
    assert made_of == greedy([4, 6], 58, "every other layer")[: len(made_of)]
    assert len(made_of) > WINDOW + SLACK


@pytest.mark.parametrize("field", ["slide_inputs", "slide_key_value_cache"])
def test_genai__inputs_in_windows_of_a_fixed_size__are_refused_by_the_fields_name(field: str, tmp_path: Path) -> None:
    """A field that is not there is true."""
    others = {"slide_inputs", "slide_key_value_cache"} - {field}
    sliding = {"window_size": WINDOW, **dict.fromkeys(others, False)}
    config = folder_of(tmp_path, decoder(rows=64).model, sliding)
    with pytest.raises(pyruntime.NotImplemented, match=rf"model\.decoder\.sliding_window\.{field} is not followed"):
        genai.Model(config)


def test_genai__windows_over_a_model_of_any_size__is_as_without(tmp_path: Path) -> None:
    """How a prompt is cut into runs does not matter where the model takes runs of any length."""
    prompt = prompt_of(30)
    texts = []
    for name, sliding in (("plain", None), ("windows", {"window_size": WINDOW})):
        model = genai.Model(folder_of(tmp_path / name, decoder().model, sliding))
        texts.append(written(model.decoder, prompt, max_new_tokens=20))
    assert texts[0] == texts[1]
