"""Steps of a `Decoding` on a GPU, whose logits are computed while the ids before them are read back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from pyruntime.errors import OutOfMemory
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.options import GenerationOptions
from pyruntime.session import InferenceSession, OrtValue
from tests.contrib.decoder import decoder
from tests.desktop import on_desktop

PROMPTS = [[3, 4, 5, 6], [7, 8]]

Use = Callable[[Decoding], Coroutine[Any, Any, None]]


async def plain(decoding: Decoding) -> None:
    while not decoding.done:
        await decoding.next()


async def rewound(decoding: Decoding) -> None:
    for _ in range(5):
        await decoding.next()
    await decoding.rewind(6)
    await plain(decoding)


async def continued(decoding: Decoding) -> None:
    for _ in range(3):
        await decoding.next()
    await decoding.catch_up()
    await decoding.append([[9, 2]] * decoding.batch)
    await plain(decoding)


async def with_given_logits(decoding: Decoding) -> None:
    """Between steps the caller sets logits: the last ids are then computed with the next ones."""
    for _ in range(3):
        await decoding.next()
    row = np.zeros((decoding.batch, 1, 50), decoding.model.logits_dtype)
    row[..., 11] = 9
    decoding.set_logits(OrtValue.ortvalue_from_numpy(row))
    await plain(decoding)


async def looked_at(decoding: Decoding) -> None:
    """Between steps the caller asks for logits."""
    while not decoding.done:
        await decoding.next()
        if not decoding.done:
            await decoding.catch_up()


def made(use: Use, prompts: list[list[int]], **options: Any) -> tuple[list[list[int]], list[Any], int]:
    """The sequences, the cache at the end, and the number of steps that were computed."""
    model = DecoderModel(InferenceSession(decoder().model))
    steps, step = [], model.step

    async def counted(*given: Any) -> Any:
        steps.append(1)
        return await step(*given)

    model.step = counted  # type: ignore[method-assign, assignment]

    async def main() -> tuple[list[list[int]], list[Any], int]:
        decoding = Decoding(model, GenerationOptions(**options), len(prompts))
        await decoding.append(prompts)
        await use(decoding)
        values = [await value.numpy_async() for value in decoding.cache.values.values()]
        # Shorter prompts are padded on the right: rows after a sequence's own are none of it.
        own = [v[b, :, : len(s) - 1] for v in values for b, s in enumerate(decoding.sequences)]
        return decoding.sequences, own, len(steps)

    return asyncio.run(main())


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("use", [plain, rewound, continued, with_given_logits, looked_at])
@pytest.mark.parametrize("options", [{}, {"do_sample": True, "top_k": 8, "seed": 4, "repetition_penalty": 1.1}])
def test_next__on_a_gpu__gives_the_ids_of_numpy(use: Use, options: dict[str, Any], batch: int) -> None:
    if use is rewound and batch > 1:
        prompts = [PROMPTS[0]] * batch
    else:
        prompts = PROMPTS[:batch]
    wanted, cache, _ = made(use, prompts, max_new_tokens=16, **options)
    with on_desktop():
        got, got_cache, _ = made(use, prompts, max_new_tokens=16, **options)
    assert got == wanted
    for a, b in zip(got_cache, cache, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-3)


def test_next__ends__computes_at_most_one_step_more() -> None:
    wanted, _, _ = made(plain, PROMPTS[:1], max_new_tokens=16)
    end = wanted[0][9]
    steps = wanted[0].index(end, len(PROMPTS[0])) - len(PROMPTS[0]) + 1
    with on_desktop():
        got, _, computed = made(plain, PROMPTS[:1], max_new_tokens=16, end_tokens=(end,))
        assert got[0] == wanted[0][: len(PROMPTS[0]) + steps]
        assert computed == 1 + steps, "the prompt, and a step for each id, the last of which is in vain"
        _, _, computed = made(plain, PROMPTS[:1], max_new_tokens=5)
        assert computed == 5, "none after the last id that may come"


def test_next__window_that_moves__gives_the_ids_of_numpy() -> None:
    options = {"max_new_tokens": 30, "window": 16}
    wanted, _, _ = made(plain, PROMPTS[:1], **options)
    with on_desktop():
        assert made(plain, PROMPTS[:1], **options)[0] == wanted


def test_next__step_that_fails__is_reported_when_it_is_wanted() -> None:
    """The ids before it are there first, and it is computed again."""

    async def use(decoding: Decoding) -> None:
        step, failed = decoding.model.step, list[int]()

        async def failing(*given: Any) -> Any:
            if decoding.cache.length == 6 and not failed:
                failed.append(1)
                raise OutOfMemory("no memory")
            return await step(*given)

        decoding.model.step = failing  # type: ignore[method-assign, assignment]
        await plain(decoding)
        assert failed

    wanted, _, _ = made(plain, PROMPTS[:1], max_new_tokens=8)
    with on_desktop():
        assert made(use, PROMPTS[:1], max_new_tokens=8)[0] == wanted
