"""Texts longer than what the model looks back at: each token is what onnxruntime says behind the window alone."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidArgument
from pyruntime.generate.beams import beam_search
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.generate.window import in_window
from pyruntime.ir import Array
from tests.generate.test_generator import greedy, model, written


def windowed(prompt: list[int], steps: int, window: int, sinks: int) -> list[int]:
    """onnxruntime's greedy tokens, each behind the window: as its definition says, and nothing else."""
    context, made = in_window(prompt, window, sinks), list[int]()
    for _ in range(steps):
        if len(context) > window:
            context = [*context[:sinks], *context[-((window - sinks) // 2) :]]
        made += greedy(context, 1)
        context.append(made[-1])
    return made


def tokens(length: int) -> list[int]:
    found: list[int] = np.random.default_rng(length).integers(0, 50, length).tolist()
    return found


@pytest.mark.parametrize(("window", "sinks"), [(12, 4), (9, 0), (7, 5), (2, 0), (16, 3)])
@pytest.mark.parametrize("length", [1, 5, 12, 13, 40])
def test_greedy__three_windows_of_text__tokens_of_onnxruntime_behind_the_window(
    length: int, window: int, sinks: int
) -> None:
    prompt, steps = tokens(length), 3 * window + 5
    expected = windowed(prompt, steps, window, sinks)
    options: dict[str, Any] = {"window": window, "sinks": sinks, "max_new_tokens": steps}
    assert written(TextGenerator(model()), prompt, **options) == [expected]
    assert written(TextGenerator(model()), prompt, **options, ahead=1, prefill_chunk=3) == [expected]
    assert written(TextGenerator(model()), prompt, **options, lookup=4) == [expected]


def test_batch__prompts_of_different_lengths__each_as_alone_where_all_start_over_together() -> None:
    prompts = [tokens(11), tokens(11)[::-1]]
    found = written(TextGenerator(model()), prompts, window=12, sinks=2, max_new_tokens=30)
    assert found == [windowed(p, 30, 12, 2) for p in prompts]
    ragged = written(TextGenerator(model()), [tokens(11), tokens(3)], window=12, sinks=2, max_new_tokens=30)
    assert ragged[0] == windowed(tokens(11), 30, 12, 2)
    assert len(ragged[1]) == 30


def test_draws__same_seed__same_text_over_windows() -> None:
    options: dict[str, Any] = {"window": 10, "max_new_tokens": 40, "do_sample": True, "seed": 5, "ahead": 3}
    first = written(TextGenerator(model()), [1, 2, 3], **options)
    assert written(TextGenerator(model()), [1, 2, 3], **{**options, "ahead": 1}) == first
    assert written(TextGenerator(model()), [1, 2, 3], **{**options, "seed": 6}) != first


def test_caches__text_of_many_windows__never_have_more_rows_than_the_window() -> None:
    generator, rows = TextGenerator(model()), list[int]()

    class Watched(Decoding):
        async def compute(self, ids: Any) -> None:
            await super().compute(ids)
            rows.extend(value.shape()[2] for value in self.cache.values.values())

    decoding = Watched(generator.model, GenerationOptions(window=10, sinks=2, max_new_tokens=60))

    async def write() -> None:
        await decoding.append([tokens(25)])
        while not decoding.done:
            await decoding.next()
            rows.extend(value.shape()[2] for value in decoding.cache.values.values())

    asyncio.run(write())
    assert len(decoding.sequences[0]) == 85
    assert 5 <= max(rows) <= 10


def test_penalties_and_processors__see_the_whole_text() -> None:
    seen: list[int] = []

    def processor(ids: Array, logits: Array) -> Array:
        seen.append(ids.shape[1])
        return logits

    written(TextGenerator(model()), [1, 2, 3], window=8, max_new_tokens=30, processors=[processor])
    assert seen == list(range(3, 33))


def test_step_by_step__appending_and_going_back__is_the_window_of_what_is_left() -> None:
    decoding = Decoding(model(), GenerationOptions(window=12, sinks=4, max_length=200))

    async def take(count: int) -> list[int]:
        return [(await decoding.next())[0][0] for _ in range(count)]

    asyncio.run(decoding.append([tokens(5)]))
    first = asyncio.run(take(20))
    assert first == windowed(tokens(5), 20, 12, 4)
    asyncio.run(decoding.rewind(10))
    assert asyncio.run(take(6)) == windowed(tokens(5) + first[:5], 6, 12, 4)
    asyncio.run(decoding.catch_up())
    asyncio.run(decoding.append([[7, 8, 9]]))
    assert decoding.sequences[0][-3:] == [7, 8, 9]
    assert len(decoding.contexts[0]) <= 12


def test_prefix__of_a_text_over_windows__is_used_only_as_far_as_it_is_there() -> None:
    generator = TextGenerator(model())
    first = written(generator, [1, 2, 3, 4, 5, 6], window=10, sinks=4, max_new_tokens=30)[0]
    assert written(generator, [1, 2, 3, 4, 9], max_new_tokens=8) == [greedy([1, 2, 3, 4, 9], 8)]
    assert generator.reused == 4
    again = [1, 2, 3, 4, 5, 6, *first]
    assert written(generator, again, window=10, sinks=4, max_new_tokens=8) == [windowed(again, 8, 10, 4)]


def test_window__too_small_or_with_beams__says_so() -> None:
    with pytest.raises(InvalidArgument, match="window=5 is out of its range"):
        GenerationOptions(window=5, sinks=4)
    with pytest.raises(InvalidArgument, match="window=0"):
        asyncio.run(beam_search(model(), [1], 2, GenerationOptions(window=9, max_new_tokens=3)))
