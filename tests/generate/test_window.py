"""Texts longer than the model's context: each token against onnxruntime, which is given anew what the window has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime
from pyruntime import genai
from pyruntime.device.null import NullDevice
from pyruntime.generate.beams import beam_search
from pyruntime.generate.constraints import TokenTable, constraint_of
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.generate.tokenizer import Tokenizer
from pyruntime.generate.window import Window
from tests.contrib.decoder import decoder
from tests.genai.folder import write_folder
from tests.genai.packed import SHAPES, prompt_of, write_packed_folder
from tests.genai.precisions import SEEDS
from tests.generate.test_decoder_forms import summing
from tests.session.doubles import on_device

POSITIONS = 32
"""All that the model can look back at: beyond, it has no angles for its rotary embedding."""

MADE = decoder(positions=POSITIONS)
WINDOWS = [(32, 4), (16, 0), (17, 4), (7, 5), (9, 1), (2, 0)]
RECORDED = Path(__file__).parents[1] / "genai" / "data" / "windows.json"


@cache
def model() -> DecoderModel:
    return DecoderModel(pyruntime.InferenceSession(MADE.model))


@cache
def oracle() -> Any:
    return onnxruntime.InferenceSession(MADE.model, providers=["CPUExecutionProvider"])


def next_of(ids: Sequence[int]) -> int:
    """The most probable token after ids that onnxruntime has never seen."""
    feed = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, len(ids)), np.int64)}
    return int(oracle().run(["logits"], feed | MADE.empty(1))[0][0, -1].argmax())


def greedy(prompt: Sequence[int], steps: int, size: int, sinks: int, following: Any = next_of) -> list[int]:
    """The tokens of a text that loses all but its sinks and half of the rest whenever it is longer than the window."""
    seen, made, read = list[int](), list[int](), list(prompt)
    for _ in range(steps):
        for token in read:
            seen.append(token)
            if len(seen) > size:
                del seen[sinks : len(seen) - (size - sinks) // 2]
        made.append(following(seen))
        read = made[-1:]
    return made


def written(generator: TextGenerator, prompt: Any, **options: Any) -> list[list[int]]:
    """Ids by sequence."""
    made: dict[int, list[int]] = {}
    for piece in generator.generate_sync(prompt, GenerationOptions(**options)):
        made.setdefault(piece.sequence, []).append(piece.id)
    return [made[b] for b in sorted(made)]


def prompt_of_length(length: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(length).integers(0, 50, length)]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Tokens of each run of the model."""
    made: list[int] = []
    step = DecoderModel.step

    async def counted(self: DecoderModel, ids: Any, *given: Any, **options: Any) -> Any:
        made.append(ids.shape()[1] if isinstance(ids, pyruntime.OrtValue) else ids.shape[1])
        return await step(self, ids, *given, **options)

    monkeypatch.setattr(DecoderModel, "step", counted)
    yield made


@pytest.mark.parametrize(("size", "sinks"), [(8, 0), (8, 3), (9, 7), (7, 2), (64, 4), (2, 0)])
def test_window__texts_of_any_length__its_bounds(size: int, sinks: int) -> None:
    window = Window(size, sinks)
    for length in range(1, 4 * size):
        ids = list(range(length))
        context = window.context(ids)
        assert sinks + (size - sinks) // 2 <= len(context) <= size or context == ids
        assert context[:sinks] == ids[:sinks] and context[-1] == ids[-1]
        dropped = length - len(context)
        assert dropped == window.dropped(length) and dropped % window.block == 0
        assert window.dropped(length + window.remaining(length, dropped)) == dropped
        assert window.dropped(length + window.remaining(length, dropped) + 1) > dropped


@pytest.mark.parametrize(("size", "sinks"), WINDOWS)
@pytest.mark.parametrize("length", [1, 7, 32, 33, 70])
def test_greedy__three_windows_of_text__tokens_of_onnxruntime(size: int, sinks: int, length: int) -> None:
    prompt = prompt_of_length(length)
    options: dict[str, Any] = {"max_new_tokens": 3 * size + 5, "window": size, "sinks": sinks}
    wanted = [greedy(prompt, 3 * size + 5, size, sinks)]
    assert written(TextGenerator(model()), prompt, **options) == wanted
    assert written(TextGenerator(model()), prompt, **options, prefill_chunk=3) == wanted


def test_caches__text_of_many_windows__never_have_more_rows_than_the_window() -> None:
    async def rows() -> list[int]:
        decoding, made = Decoding(model(), GenerationOptions(window=10, sinks=2, max_new_tokens=60)), list[int]()
        await decoding.append([prompt_of_length(25)])
        while not decoding.done:
            await decoding.next()
            made += [value.shape()[2] for value in decoding.cache.values.values()]
        return made

    assert max(asyncio.run(rows())) == 10


def test_slides__of_a_long_text__compute_half_a_window_at_a_time(steps: list[int]) -> None:
    written(TextGenerator(model()), [3, 4, 5], max_new_tokens=90, window=24, sinks=4)
    many = [count for count in steps if count > 1]
    assert many == [3, *[(24 - 4) // 2] * 7]
    assert sum(steps) < 2 * 93


def test_prompt__cut_like_the_text__as_if_the_model_had_written_it() -> None:
    options = {"window": 20, "sinks": 4}
    whole = written(TextGenerator(model()), [7, 8, 9], max_new_tokens=80, **options)[0]
    for at in (5, 18, 19, 30, 55):
        rest = written(TextGenerator(model()), [7, 8, 9, *whole[:at]], max_new_tokens=80 - at, **options)[0]
        assert rest == whole[at:]


def test_prefix__a_text_that_goes_on__computes_what_the_window_has_new(steps: list[int]) -> None:
    generator = TextGenerator(model())
    options = {"window": 24, "sinks": 4}
    text = [1, 2, 3]
    for turn in range(8):
        new = written(generator, text, max_new_tokens=9, **options)[0]
        assert new == greedy(text, 9, 24, 4), turn
        text += [*new, 5, turn]
    assert generator.reused >= 4
    assert sum(steps) < 3 * len(text)
    assert written(generator, [1, 2, 9, *text], max_new_tokens=9, **options)[0] == greedy([1, 2, 9, *text], 9, 24, 4)
    assert generator.reused == 2
    assert written(generator, text[:20], max_new_tokens=5) == [greedy(text[:20], 5, 32, 4)]


@pytest.mark.parametrize("options", [{}, {"top_k": 8}, {"repetition_penalty": 1.3, "presence_penalty": 0.5}])
def test_seed__the_same__the_same_text_with_and_without_a_kept_prefix(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"max_new_tokens": 60, "do_sample": True, "window": 20, "sinks": 2, **options}
    generator = TextGenerator(model())
    runs = [written(generator, [1, 2], seed=seed, **given) for seed in (3, 3, 4)]
    assert runs[0] == runs[1] == written(TextGenerator(model()), [1, 2], seed=3, **given)
    assert runs[1] != runs[2]


def test_ngrams_and_processors__across_slides__know_the_whole_text() -> None:
    lengths = []

    def watched(ids: Any, logits: Any) -> Any:
        lengths.append(ids.shape[1])
        return logits

    made = written(
        TextGenerator(model()), [1, 2], max_new_tokens=70, window=12, no_repeat_ngram_size=2, processors=(watched,)
    )[0]
    pairs = list(zip([2, *made], made, strict=False))
    assert len(set(pairs)) == len(pairs)
    assert lengths == list(range(2, 72))


@pytest.mark.parametrize("lookup", [1, 4, 10])
@pytest.mark.parametrize("prompt", [[3], [5, 6, 7, 8, 9] * 5])
def test_lookup__across_slides__the_same_tokens(lookup: int, prompt: list[int], steps: list[int]) -> None:
    made = written(TextGenerator(model()), prompt, max_new_tokens=96, window=24, sinks=4, lookup=lookup)
    assert made == [greedy(prompt, 96, 24, 4)]
    assert len(steps) < 96


def test_constraint__text_longer_than_the_window__is_kept_to() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    texts = [None, *letters, *[None] * (49 - len(letters))]
    constraint = constraint_of("regex", "([a-f]{3}[g-k]){20}", TokenTable(texts, [0]))
    made = written(
        TextGenerator(model()), [1], max_new_tokens=81, window=12, sinks=1, end_tokens=(0,), constraint=constraint
    )[0]
    text = "".join(texts[t] or "" for t in made)
    assert len(text) == 80 and made[-1] == 0
    assert all((c in "ghijk") == (i % 4 == 3) and c in "abcdefghijk" for i, c in enumerate(text))


def test_sequences__of_different_lengths__each_as_alone() -> None:
    prompts = [prompt_of_length(n) for n in (2, 30, 11)]
    options = {"max_new_tokens": 64, "window": 24, "sinks": 3}
    assert written(TextGenerator(model()), prompts, **options) == [greedy(p, 64, 24, 3) for p in prompts]


@pytest.mark.parametrize("state", [False, True])
def test_forms__padding_in_front_and_recurrent_states__each_as_alone(state: bool) -> None:
    """Against a run of the same model that is given each context anew."""
    forms = DecoderModel(pyruntime.InferenceSession(summing(state=state)))

    def following(ids: Sequence[int]) -> int:
        return written(TextGenerator(forms), list(ids), max_new_tokens=1)[0][0]

    prompts = [[3, 4, 5, 6, 7], [8]] if not state else [[3, 4, 5]]
    made = written(TextGenerator(forms), prompts, max_new_tokens=40, window=12, sinks=3, prefill_chunk=5)
    assert made == [greedy(p, 40, 12, 3, following) for p in prompts]


def test_static_caches__as_long_as_the_window__tokens_of_growing_ones() -> None:
    static = DecoderModel(pyruntime.InferenceSession(decoder(positions=POSITIONS, rows=24).model))
    assert not static.rewindable
    for prompt in ([7, 8], prompt_of_length(60)):
        found = written(TextGenerator(static), prompt, max_new_tokens=70, window=24, sinks=4)
        assert found == [greedy(prompt, 70, 24, 4)]


def test_beams__of_one__greedy_tokens_and_several_are_the_best() -> None:
    options = GenerationOptions(max_new_tokens=60, window=16, sinks=2)
    ((ids, _),) = asyncio.run(beam_search(model(), [4, 5], 1, options))
    assert ids[2:] == greedy([4, 5], 60, 16, 2)
    ((better, score),) = asyncio.run(beam_search(model(), [4, 5], 3, options))
    assert len(better) == 62 and np.isfinite(score)


def test_rewind__over_slides__goes_on_as_before() -> None:
    async def run() -> None:
        decoding = Decoding(model(), GenerationOptions(window=16, sinks=3))
        await decoding.append([[9, 8, 7]])
        for _ in range(60):
            await decoding.next()
        (whole,) = decoding.sequences
        for length in (55, 63, 40, 17, 5, 2):
            await decoding.rewind(length)
            for _ in range(20):
                await decoding.next()
            assert decoding.sequences[0][length:] == greedy(whole[:length], 20, 16, 3)

    asyncio.run(run())


def test_failure__in_the_middle_of_a_slide__the_text_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = TextGenerator(model())
    step = DecoderModel.step
    failing = [True]

    async def failed(self: DecoderModel, ids: Any, cache: Any, *given: Any, **options: Any) -> Any:
        if failing and cache.length == 7 and not isinstance(ids, pyruntime.OrtValue):
            failing.clear()
            raise pyruntime.InvalidArgument("injected")
        return await step(self, ids, cache, *given, **options)

    monkeypatch.setattr(DecoderModel, "step", failed)
    options: dict[str, Any] = {"max_new_tokens": 40, "window": 16, "sinks": 4, "prefill_chunk": 3}
    with pytest.raises(pyruntime.InvalidArgument, match="injected"):
        written(generator, [5, 6, 7], **options)
    assert not failing
    assert written(generator, [5, 6, 7], **options) == [greedy([5, 6, 7], 40, 16, 4)]


def test_memory__five_windows_and_an_abort_in_a_slide__bytes_on_the_gpu_stay_flat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = NullDevice()
    step = DecoderModel.step
    cancelled: list[int] = []

    async def cancelling(self: DecoderModel, ids: Any, cache: Any, *given: Any, **options: Any) -> Any:
        if cancelled and cache.length > 4 and not isinstance(ids, pyruntime.OrtValue):
            raise asyncio.CancelledError
        return await step(self, ids, cache, *given, **options)

    def held() -> int:
        return sum(device.ledger.live.values())

    async def run() -> None:
        on_gpu = DecoderModel(await pyruntime.InferenceSession.create(MADE.model))
        generator = TextGenerator(on_gpu)
        options = GenerationOptions(max_new_tokens=32 * 6, window=32, sinks=4, prefill_chunk=6)
        bytes_held = [held() async for _ in generator.generate([3, 4, 5], options)]
        assert len(bytes_held) == 32 * 6
        assert max(bytes_held[32 * 3 :]) <= max(bytes_held[32 : 32 * 3])
        pieces = generator.generate([9, 4, 5], options)
        for _ in range(20):
            await anext(pieces)
        cancelled.append(1)
        with pytest.raises(asyncio.CancelledError):
            async for _ in pieces:
                pass
        assert generator._kept is not None and generator._kept[1].length == 4
        assert held() <= max(bytes_held)
        generator.forget()
        on_gpu.release()
        assert held() == 0

    monkeypatch.setattr(DecoderModel, "step", cancelling)
    with on_device(device):
        asyncio.run(run())


def test_loop__on_a_gpu__as_many_steps_ahead_as_fit_into_the_window(steps: list[int]) -> None:
    async def run() -> list[int]:
        on_gpu = DecoderModel(await pyruntime.InferenceSession.create(MADE.model))
        options = GenerationOptions(max_new_tokens=50, window=16, sinks=2, ahead=4)
        return [piece.id async for piece in TextGenerator(on_gpu).generate([3, 4, 5], options)]

    with on_device(NullDevice()):
        assert len(asyncio.run(run())) == 50
    # 13 tokens fill the window; each slide computes 7 tokens after the sinks and frees space for 7.
    assert steps == [3, *[1] * 13, *([7] + [1] * 7) * 4, 7, 1, 1, 1]


@cache
def recorded() -> dict[str, dict[str, list[int]]]:
    made: dict[str, dict[str, list[int]]] = json.loads(RECORDED.read_text())
    return made


@pytest.mark.parametrize("kind", list(SHAPES))
def test_genai__int4_decoders__ids_of_fresh_generators_given_what_is_kept(kind: str, tmp_path: Path) -> None:
    """data/windows.json: onnxruntime-genai 0.18.0 on the CPU, another Generator whenever a block is dropped."""
    config = genai.Config(str(write_packed_folder(tmp_path, SHAPES[kind], SEEDS[kind, "int4"])))
    config.overlay('{"model": {"eos_token_id": 1}}')  # a token that none of these texts has
    model = genai.Model(config)
    for name, wanted in recorded()[kind].items():
        size, sinks, length = map(int, name.split())
        params = genai.GeneratorParams(model)
        params.set_search_options(window=size, sinks=sinks, max_length=length + 3 * size)
        generator = genai.Generator(model, params)
        generator.append_tokens(prompt_of(length, SHAPES[kind].words))
        while not generator.is_done():
            generator.generate_next_token()
        assert generator.get_sequence(0)[length:].tolist() == wanted, name


def test_genai__window__in_the_folder_and_beyond_the_context(tmp_path: Path) -> None:
    config = genai.Config(str(write_packed_folder(tmp_path, SHAPES["llama"])))
    config.overlay('{"search": {"window": 64}, "model": {"context_length": 96}}')
    params = genai.GeneratorParams(genai.Model(config))
    assert params.options().bounds == Window(64, 0)
    begin = config.values["model"]["bos_token_id"]
    for first, sinks in ((begin, 1), (begin + 1, 0)):
        generator = genai.Generator(params.model, params)
        generator.append_tokens([first, 5])
        assert generator._decoding.options.bounds == Window(64, sinks)
    params.set_search_options(sinks=8)
    assert params.options().bounds == Window(64, 8)
    assert params.get_search_options()["window"] == 64
    params.set_search_options(window=100)
    with pytest.raises(RuntimeError, match="context_length 96"):
        params.options()


@pytest.mark.parametrize(
    ("begin", "sinks"), [(3, 1), (None, 0), (7, 0)], ids=["begins so", "is not known", "does not begin so"]
)
def test_sinks__not_given__are_the_token_that_begins_the_models_texts(begin: int | None, sinks: int) -> None:
    """By the generator, the loop and beams; it is the text's first token or none."""
    prompt = [3, *range(10, 20)]
    wanted = greedy(prompt, 40, 16, sinks)
    options = GenerationOptions(max_new_tokens=40, window=16, begin_token=begin)
    assert written(TextGenerator(model()), prompt, max_new_tokens=40, window=16, begin_token=begin) == [wanted]

    async def run() -> list[int]:
        decoding = Decoding(model(), options)
        await decoding.append([prompt])
        while not decoding.done:
            await decoding.next()
        return decoding.sequences[0][len(prompt) :]

    assert asyncio.run(run()) == wanted
    ((ids, _),) = asyncio.run(beam_search(model(), prompt, 1, options))
    assert ids[len(prompt) :] == wanted


def test_sinks__of_a_tokenizer_that_names_its_first_token__is_kept(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_folder(tmp_path))
    assert tokenizer.begin_token == 1
    generator = TextGenerator(model(), tokenizer)
    for prompt, sinks in (([1, 2, 3], 1), ([2, 1, 3], 0)):
        assert written(generator, prompt, max_new_tokens=50, window=16) == [greedy(prompt, 50, 16, sinks)]


@pytest.mark.parametrize(
    "given",
    [{"window": 1}, {"window": 5, "sinks": 4}, {"window": -1}, {"window": 8, "sinks": 7}, {"window": 8, "sinks": -1}],
)
def test_options__window_without_capacity__are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(pyruntime.InvalidArgument, match=r"(window|sinks)="):
        GenerationOptions(**given)
