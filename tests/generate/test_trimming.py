"""Models that look back at so many tokens: texts of any length with short caches, against onnxruntime.

The oracle is the same model with a table of angles for a thousand tokens, which is given the whole text for each token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime
from pyruntime import genai
from pyruntime.device.null import NullDevice
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.generate.trimming import LocalCaches, _Turn, turning_model
from pyruntime.ir import DType
from pyruntime.ir.constant import Constant
from tests.contrib.decoder import Decoder, decoder
from tests.genai.folder import write_folder
from tests.session.doubles import on_device

LOCAL, POSITIONS = 12, 48
FORMS: dict[str, dict[str, Any]] = {
    "plain": {"local": LOCAL},
    "interleaved": {"local": LOCAL, "interleaved": True},
    "placed": {"local": LOCAL, "placed": True},
    "several": {"local": (5, LOCAL)},
    "one token": {"local": 1},
}


@cache
def made(form: str, positions: int = POSITIONS) -> Decoder:
    return decoder(positions=positions, **FORMS[form])


@cache
def model(form: str = "plain") -> DecoderModel:
    return DecoderModel(pyruntime.InferenceSession(made(form).model))


@cache
def oracle(form: str) -> Any:
    return onnxruntime.InferenceSession(made(form, 1024).model, providers=["CPUExecutionProvider"])


def greedy(prompt: Sequence[int], steps: int, form: str = "plain") -> list[int]:
    """onnxruntime's greedy tokens; the whole text is computed anew for each."""
    ids = list(prompt)
    for _ in range(steps):
        feed = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, len(ids)), np.int64)}
        if "placed" in FORMS[form]:
            feed["position_ids"] = np.arange(len(ids))[None]
        ids.append(int(oracle(form).run(["logits"], feed | made(form).empty(1))[0][0, -1].argmax()))
    return ids[len(prompt) :]


def written(generator: TextGenerator, prompt: Any, **options: Any) -> list[list[int]]:
    """Ids by sequence."""
    found: dict[int, list[int]] = {}
    for piece in generator.generate_sync(prompt, GenerationOptions(**options)):
        found.setdefault(piece.sequence, []).append(piece.id)
    return [found[b] for b in sorted(found)]


def prompt_of(length: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(length).integers(0, 50, length)]


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("length", [1, 7, 130])
def test_greedy__far_beyond_the_table_of_angles__tokens_of_whole_caches(form: str, length: int) -> None:
    prompt = prompt_of(length)
    found = written(TextGenerator(model(form)), prompt, max_new_tokens=100)
    assert found == [greedy(prompt, 100, form)]


@pytest.mark.parametrize("options", [{"prefill_chunk": 5}, {"lookup": 4}, {"lookup": 20}], ids=str)
def test_greedy__prompts_in_chunks_and_predictions__the_same_tokens(options: dict[str, Any]) -> None:
    prompt = [5, 6, 7, 8, 9] * 15
    assert written(TextGenerator(model()), prompt, max_new_tokens=80, **options) == [greedy(prompt, 80)]


def test_sequences__of_one_length__each_as_alone() -> None:
    prompts = [prompt_of(20), prompt_of(20)[::-1]]
    assert written(TextGenerator(model()), prompts, max_new_tokens=90) == [greedy(p, 90) for p in prompts]


def test_prefix__of_a_long_text__is_used_while_its_rows_are_there() -> None:
    generator = TextGenerator(model())
    text = prompt_of(9)
    text += written(generator, text, max_new_tokens=80)[0]
    assert written(generator, [*text, 4], max_new_tokens=9) == [greedy([*text, 4], 9)]
    assert generator.reused >= 87
    assert written(generator, text[:30], max_new_tokens=9) == [greedy(text[:30], 9)]
    assert generator.reused == 0


def test_rewind__near_and_far__goes_on_as_before() -> None:
    async def run() -> None:
        decoding = Decoding(model(), GenerationOptions())
        await decoding.append([[9, 8, 7]])
        for _ in range(60):
            await decoding.next()
        (whole,) = decoding.sequences
        for length in (61, 58, 20, 2):
            await decoding.rewind(length)
            for _ in range(15):
                await decoding.next()
            assert decoding.sequences[0][length:] == greedy(whole[:length], 15)

    asyncio.run(run())


def test_window__over_a_model_of_local_attention__starts_over_as_for_others() -> None:
    """A window of the caller's own counts tokens, so what is seen is less than the model would."""
    seen, ids = [1, 2, 3], list[int]()
    for _ in range(90):
        ids += greedy(seen, 1)
        seen.append(ids[-1])
        if len(seen) > 40:
            del seen[4 : len(seen) - 18]
    assert written(TextGenerator(model()), [1, 2, 3], max_new_tokens=90, window=40, sinks=4) == [ids]


def test_genai__max_length_beyond_the_context__text_goes_on(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    (folder / "model.onnx").write_bytes(made("plain").model)
    wanted = greedy([4, 6], 158)
    config = genai.Config(str(folder))
    end = min({*range(50)} - {*wanted})
    config.overlay(f'{{"model": {{"eos_token_id": {end}}}}}')
    params = genai.GeneratorParams(genai.Model(config))
    assert params.get_search_options()["max_length"] == 128
    params.set_search_options(max_length=160)
    generator = genai.Generator(params.model, params)
    generator.append_tokens([4, 6])
    while not generator.is_done():
        generator.generate_next_token()
    assert generator.get_sequence(0)[2:].tolist() == wanted


def test_memory__of_a_text_of_many_windows__is_flat_and_caches_stay_short() -> None:
    device, rows = NullDevice(), list[int]()

    async def run() -> list[int]:
        on_gpu = DecoderModel(await pyruntime.InferenceSession.create(made("plain").model))
        generator = TextGenerator(on_gpu)
        held = []
        decoding = Decoding(on_gpu, GenerationOptions())
        await decoding.append([prompt_of(100)])
        for _ in range(LOCAL * 6):
            await decoding.next()
            rows.extend(value.shape()[2] for value in decoding.cache.values.values())
        del decoding
        async for _ in generator.generate(prompt_of(100), GenerationOptions(max_new_tokens=LOCAL * 12)):
            held.append(sum(device.ledger.live.values()))
        generator.forget()
        on_gpu.release()
        assert sum(device.ledger.live.values()) == 0
        return held

    with on_device(device):
        held = asyncio.run(run())
    after_the_prompt, *others = np.array(rows).reshape(LOCAL * 6, -1).max(axis=1).tolist()
    assert after_the_prompt < POSITIONS
    assert (min(others), max(others)) == (LOCAL, 2 * LOCAL)
    assert max(held[LOCAL * 3 :]) <= max(held[: LOCAL * 3])


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned", [8, 16])
def test_rotation__keys_turned_back__are_those_of_the_position_before(interleaved: bool, turned: int) -> None:
    """Against the definition: pairs (a, b) to (a cos - b sin, b cos + a sin); tables may be scaled by a number."""
    size, scale, half = 16, 1.3, turned // 2
    angles = np.arange(POSITIONS)[:, None] / 100 ** (np.arange(half) / half)
    cos, sin = (Constant.from_array((scale * f(angles)).astype(np.float32)) for f in (np.cos, np.sin))
    caches = LocalCaches(LOCAL, POSITIONS, {"k": _Turn(cos, sin, interleaved)})
    keys = np.random.default_rng(0).normal(size=(5, size))
    first = np.arange(0, turned, 2) if interleaved else np.arange(half)
    second = first + (1 if interleaved else half)

    def at(position: int) -> Any:
        c, s, found = scale * np.cos(angles[position]), scale * np.sin(angles[position]), keys.copy()
        found[:, first] = keys[:, first] * c - keys[:, second] * s
        found[:, second] = keys[:, second] * c + keys[:, first] * s
        return found

    for by in (0, 1, 30):
        np.testing.assert_allclose(at(40) @ caches.rotation("k", by, size), at(40 - by), atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.FLOAT16])
def test_turning__rows_from_one_on__product_in_float32_and_rounded_once(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    x, turn = rng.normal(size=(2, 3, 9, 8)).astype(dtype.numpy), rng.normal(size=(8, 8)).astype(np.float32)
    feeds = {"x": x, "first": np.array([4]), "turn": turn}
    (found,) = pyruntime.InferenceSession(turning_model(dtype)).run(None, feeds)
    expected = (x[:, :, 4:].astype(np.float32) @ turn).astype(dtype.numpy)
    assert found.dtype == x.dtype
    tolerance = {DType.FLOAT: 1e-5, DType.FLOAT16: 5e-3}[dtype]
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), tolerance, tolerance)


@pytest.mark.parametrize("local", [-1, (LOCAL, -1), POSITIONS])
def test_models__that_look_further_back__keep_all_rows(local: Any) -> None:
    far = DecoderModel(pyruntime.InferenceSession(decoder(positions=POSITIONS, local=local).model))
    assert far.local is None
    assert model("several").local is not None
