"""The decoding loop on a decoder with GroupQueryAttention, against onnxruntime fed by hand."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime
from pyruntime.device.null import NullDevice
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.generate.speculation import predicted_tokens
from pyruntime.generate.stopping import StopStrings
from pyruntime.ir import Array
from tests.contrib.decoder import decoder
from tests.session.doubles import on_device

MADE = decoder()


@cache
def model() -> DecoderModel:
    return DecoderModel(pyruntime.InferenceSession(MADE.model))


@cache
def oracle() -> Any:
    return onnxruntime.InferenceSession(MADE.model, providers=["CPUExecutionProvider"])


def greedy(prompt: list[int], steps: int) -> list[int]:
    """onnxruntime's greedy tokens; the whole text is computed anew for each."""
    ids = list(prompt)
    for _ in range(steps):
        feed = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, len(ids)), np.int64)}
        logits = oracle().run(["logits"], feed | MADE.empty(1))[0]
        ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt) :]


def written(generator: TextGenerator, prompt: Any, **options: Any) -> list[list[int]]:
    """Ids by sequence."""
    made: dict[int, list[int]] = {}
    for piece in generator.generate_sync(prompt, GenerationOptions(**options)):
        made.setdefault(piece.sequence, []).append(piece.id)
    return list(made.values())


@pytest.mark.parametrize("length", [1, 7, 60])
@pytest.mark.parametrize("chunk", [3, 512])
def test_greedy__prompts_in_chunks__tokens_of_onnxruntime(length: int, chunk: int) -> None:
    prompt = np.random.default_rng(length).integers(0, 50, length).tolist()
    assert written(TextGenerator(model()), prompt, max_new_tokens=24, prefill_chunk=chunk) == [greedy(prompt, 24)]


def test_greedy__prompts_of_different_lengths__each_as_alone() -> None:
    prompts = [[3, 7, 1, 12, 5], [4], [9, 8]]
    assert written(TextGenerator(model()), prompts, max_new_tokens=12) == [greedy(p, 12) for p in prompts]


def test_prefix__prompt_that_begins_alike__computes_what_is_new() -> None:
    generator = TextGenerator(model())
    first = written(generator, [5, 6, 7, 8], max_new_tokens=10)[0]
    assert generator.reused == 0
    longer = [5, 6, 7, 8, *first[:6], 1, 2]
    assert written(generator, longer, max_new_tokens=10) == [greedy(longer, 10)]
    assert generator.reused == 10
    assert written(generator, [5, 6, 9], max_new_tokens=5) == [greedy([5, 6, 9], 5)]
    assert generator.reused == 2


def test_end_tokens__one_comes__it_is_the_last() -> None:
    expected = greedy([1, 2, 3], 20)
    end = expected[7]
    made = list(
        TextGenerator(model()).generate_sync([1, 2, 3], GenerationOptions(max_new_tokens=20, end_tokens=(end,)))
    )
    assert [p.id for p in made] == expected[: expected.index(end) + 1]
    assert [p.finish for p in made][-1] == "end"
    later = written(TextGenerator(model()), [1, 2, 3], max_new_tokens=20, min_new_tokens=15, end_tokens=(end,))[0]
    assert end not in later[:15]


@pytest.mark.parametrize("penalties", [{}, {"repetition_penalty": 1.3, "presence_penalty": 0.5}])
@pytest.mark.parametrize("filters", [{}, {"top_k": 8}, {"top_p": 0.8}])
def test_sampling__same_seed__same_tokens(penalties: dict[str, float], filters: dict[str, Any]) -> None:
    options: dict[str, Any] = {"max_new_tokens": 16, "do_sample": True, "num_sequences": 2, **penalties, **filters}
    runs = [written(TextGenerator(model()), [1, 2], seed=seed, **options) for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1]


def test_processors__of_the_users_own__decide() -> None:
    seen = []

    def only_even(ids: Array, logits: Array) -> Array:
        seen.append(ids.shape[1])
        return np.where(np.arange(logits.shape[1]) % 2, -np.inf, logits)

    made = written(TextGenerator(model()), [1, 2], max_new_tokens=8, processors=(only_even,))[0]
    assert all(t % 2 == 0 for t in made) and seen == list(range(2, 10))


def test_ngrams__of_size_two__come_once() -> None:
    made = written(TextGenerator(model()), [1, 2], max_new_tokens=40, no_repeat_ngram_size=2)[0]
    pairs = list(zip([2, *made], made, strict=False))
    assert len(set(pairs)) == len(pairs)


def test_generate__closed_early__ends_and_can_go_on() -> None:
    generator = TextGenerator(model())

    async def some() -> list[int]:
        pieces, made = generator.generate([4, 4], GenerationOptions(max_new_tokens=50)), []
        async for piece in pieces:
            made.append(piece.id)
            if len(made) == 3:
                break
        await pieces.aclose()  # type: ignore[attr-defined]
        return made

    assert asyncio.run(some()) == greedy([4, 4], 3)
    assert written(generator, [4, 4, *greedy([4, 4], 2)], max_new_tokens=3) == [greedy([4, 4], 5)[2:]]
    assert generator.reused


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize(
    ("stop", "expected"), [(["END"], "ab EN "), (["zz", "EN "], "ab "), (["q"], "ab EN END EE"), ([], None)]
)
def test_stop_strings__text_in_pieces__cut_exactly(size: int, stop: list[str], expected: str | None) -> None:
    text, stops = "ab EN END EE", StopStrings(stop)
    shown = "".join(stops.feed(text[i : i + size]) for i in range(0, len(text), size)) + stops.rest()
    assert shown == (text if expected is None else expected)


@pytest.mark.parametrize("lookup", [1, 4, 10])
def test_lookup__text_that_repeats__same_tokens_in_fewer_runs(lookup: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    step = DecoderModel.step

    async def counted(self: DecoderModel, *given: Any, **options: Any) -> Any:
        runs.append(given)
        return await step(self, *given, **options)

    monkeypatch.setattr(DecoderModel, "step", counted)
    for prompt in ([3], [1, 2, 3, 1, 2], [5, 6, 7, 8, 9] * 5):
        generator = TextGenerator(model())
        assert written(generator, prompt, max_new_tokens=40, lookup=lookup) == [greedy(prompt, 40)]
        assert written(generator, [*prompt, 7], max_new_tokens=5) == [greedy([*prompt, 7], 5)]
    assert len(runs) < 3 * 45


def test_predicted_tokens__last_tokens_further_up__what_followed() -> None:
    assert predicted_tokens([1, 2, 3, 9, 2, 3, 5, 1, 2, 3], 3) == [9, 2, 3]
    assert predicted_tokens([1, 4, 1, 5, 1], 5) == [5, 1]
    assert predicted_tokens([1, 2, 3], 5) == []


def test_loop__on_a_gpu__tensors_stay_and_are_read_together() -> None:
    with on_device(NullDevice()):

        async def run() -> None:
            on_gpu = DecoderModel(await pyruntime.InferenceSession.create(MADE.model))
            generator = TextGenerator(on_gpu)
            for options in (
                GenerationOptions(max_new_tokens=9),
                GenerationOptions(max_new_tokens=9, do_sample=True, top_k=8, repetition_penalty=1.1),
                GenerationOptions(max_new_tokens=9, do_sample=True, processors=(lambda ids, logits: logits,)),
            ):
                assert len([piece async for piece in generator.generate([3, 4, 5, 6], options)]) == 9
                assert generator._kept is not None
                assert {value.device_name() for value in generator._kept[1].values.values()} == {"webgpu"}

        asyncio.run(run())


def test_options__out_of_range__are_refused() -> None:
    with pytest.raises(pyruntime.InvalidArgument, match="top_p=2"):
        GenerationOptions(top_p=2)


def test_decoder__model_without_ids__says_what_is_missing() -> None:
    with pytest.raises(pyruntime.InvalidArgument, match="expected a decoder with input_ids"):
        DecoderModel(pyruntime.InferenceSession("models/digits.onnx"))
