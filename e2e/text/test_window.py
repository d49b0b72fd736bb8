"""TextGenerator beyond the model's context: each token is what onnxruntime computes after the window alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from e2e.harness.script import watched
from e2e.harness.writing import PROMPT, Loop
from e2e.text.test_tokens_on_gpu import BATCHES_OF, Queueing

pytestmark = pytest.mark.unguarded

WINDOW, SINKS = 24, 4
SENTENCE = PROMPT + " that a single man in possession of a good fortune must be in want of a wife."
LONG = " ".join([SENTENCE] * 3)


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Queueing]:
    with watched(browser, site_url, Queueing) as made:
        yield made


def windowed(prompt: list[int], steps: int, window: int = WINDOW, sinks: int = SINKS) -> list[int]:
    """onnxruntime's greedy tokens, each after the window: as its definition says, and nothing else."""
    made: list[int] = []
    context, read, loop, logits = list[int](), list(prompt), None, None
    for _ in range(steps):
        for token in read:
            context.append(token)
            if len(context) > window:
                context, loop = [*context[:sinks], *context[-((window - sinks) // 2) :]], None
        if loop is None:
            loop = Loop()
            logits = loop.step(context)
        else:
            logits = loop.step(context[-1:])
        made.append(int(logits.argmax()))
        read = made[-1:]
    return made


@pytest.mark.parametrize("prompt", ["It", SENTENCE, LONG], ids=["short", "sentence", "longer than the window"])
def test_greedy__over_windows__tokens_of_onnxruntime_after_the_window(prompt: str, script: Queueing) -> None:
    """Queued on the GPU, and one by one where the caller changes logits."""
    found = script(
        """
        const options = { temperature: 0, maxNewTokens: 90, endTokens: [], window, sinks, keepPrompt: false };
        const texts = [];
        for (const processLogits of [undefined, () => {}]) {
          const pieces = await write(prompt, { ...options, processLogits });
          const computed = pieces.map(({ promptTokens }) => promptTokens);
          texts.push({ ids: idsOf(pieces), text: textOf(pieces), computed,
            end: pieces.at(-1).finishReason, stepwise: steps.splice(0).length });
        }
        return { prompt: generator.encode(prompt), texts, decoded: generator.decode(texts[0].ids) };
        """,
        BATCHES_OF,
        prompt=prompt,
        window=WINDOW,
        sinks=SINKS,
    )
    queued, stepwise = found["texts"]
    assert queued["ids"] == windowed(found["prompt"], 90)
    assert stepwise["ids"] == queued["ids"]
    assert queued["text"] == found["decoded"]
    assert [queued["stepwise"], stepwise["stepwise"]] == [0, 90]
    for text in found["texts"]:
        assert text["end"] == "length"
        assert text["computed"][0] == queued["computed"][0]
        # What a window starts over with, but for its sinks, which are in the caches.
        again = [n for n in text["computed"][1:] if n > 1]
        # On the host more than the sinks may be there already, of a text that repeats itself.
        assert len(again) >= (6 if text is queued else 4)
        assert set(again) == {(WINDOW - SINKS) // 2}


def test_sinks__not_given__are_the_token_that_begins_the_models_texts(script: Queueing) -> None:
    """Queued and one by one; a number of the caller's goes before it."""
    found = script(
        """
        const texts = [];
        for (const [begin, more] of [['<|endoftext|>', {}], ['', {}], ['<|endoftext|>', { sinks: 4 }]]) {
          for (const processLogits of [undefined, () => {}]) {
            const pieces = await write(begin + prompt, {
              temperature: 0, maxNewTokens: 60, endTokens: [], window, keepPrompt: false, processLogits, ...more });
            texts.push([generator.encode(begin + prompt), idsOf(pieces)]);
          }
        }
        return texts;
        """,
        BATCHES_OF,
        prompt=SENTENCE,
        window=WINDOW,
    )
    assert [ids[0] == 0 for ids, _ in found] == [True, True, False, False, True, True]
    for (ids, made), sinks in zip(found, (1, 1, 0, 0, 4, 4), strict=True):
        assert made == windowed(ids, 60, WINDOW, sinks)


def test_draws_and_penalties__over_windows__count_the_whole_text_and_repeat(script: Queueing) -> None:
    found = script(
        """
        const rules = { temperature: 0.9, topK: 40, repetitionPenalty: 1.2, frequencyPenalty: 0.3 };
        const options = { ...rules, maxNewTokens: 70, endTokens: [], window, sinks, keepPrompt: false };
        const texts = [];
        for (const seed of [3, 3, 4]) texts.push(idsOf(await write(prompt, { ...options, seed })));
        const queued = steps.length;
        texts.push(idsOf(await write(prompt, { ...options, seed: 3, processLogits() {} })));
        return { queued, texts };
        """,
        BATCHES_OF,
        prompt=PROMPT,
        window=WINDOW,
        sinks=SINKS,
    )
    first, again, other, host = found["texts"]
    assert found["queued"] == 0
    assert first == again == host
    assert first != other


def test_memory__of_a_text_of_many_windows__stays_where_it_was_after_two(script: Queueing) -> None:
    """Also where the text is aborted while a window starts over, and by leaving the loop there."""
    body = """
        for await (const { promptTokens } of generator.generate(prompt, {
          temperature: 0, maxNewTokens: windows * 11, endTokens: [], window, sinks, keepPrompt: false })) {}
        const kept = await counts();
        const control = new AbortController();
        let [count, said] = [0, ''];
        try {
          for await (const _ of generator.generate(prompt, {
            temperature: 0, maxNewTokens: 200, endTokens: [], window, sinks, signal: control.signal })) {
            count += 1;
            if (count === at) setTimeout(() => control.abort(new Error('enough')), 0);
          }
        } catch (error) { said = error.message; }
        for await (const { promptTokens } of generator.generate(prompt, {
          temperature: 0, maxNewTokens: 200, endTokens: [], window, sinks })) if (promptTokens === 10) break;
        generator.forget();
        return [kept, said, count < 200, await counts()];
        """
    fixed = {"prompt": SENTENCE, "window": WINDOW, "sinks": SINKS}
    before = script("return await counts();")
    for at in (5, 6, 7, 8):
        assert script(body, BATCHES_OF, windows=2, at=at, **fixed) == [before, "enough", True, before]
    assert script(body, BATCHES_OF, windows=6, at=6, **fixed) == [before, "enough", True, before]


def test_context__its_end__ends_the_text_or_is_a_window(script: Queueing) -> None:
    found = script(
        """
        const most = generator.contextLength;
        const near = generator.decode(generator.encode(prompt.repeat(40)).slice(0, most - 6));
        const ids = generator.encode(near);
        const plain = await write(near, { temperature: 0, endTokens: [], maxNewTokens: 20 });
        const beyond = await write(near, { temperature: 0, endTokens: [], maxNewTokens: 20, window: Infinity });
        const refused = await write(prompt.repeat(40), { maxNewTokens: 4 }).catch((error) => error.message);
        const cut = await write(prompt.repeat(40), { maxNewTokens: 4, temperature: 0, window: 64, endTokens: [] });
        const wrong = [];
        const bad = [{ window: 1 }, { window: 5, sinks: 4 }, { window: 0 }, { window: 20, sinks: -1 }, { window: 9.5 }];
        for (const options of bad) {
          wrong.push(await write(prompt, options).catch((error) => error.message));
        }
        generator.forget();
        return { most, near: ids, plain: idsOf(plain), beyond: idsOf(beyond), refused, cut: cut.length, wrong };
        """,
        BATCHES_OF,
        prompt=" " + SENTENCE,
    )
    assert len(found["plain"]) == found["most"] - len(found["near"])
    assert found["beyond"] == windowed(found["near"], 20, found["most"], 0), (
        "its texts begin with no token of their own"
    )
    assert found["beyond"][: len(found["plain"])] == found["plain"]
    assert "with `window` it looks at its end" in found["refused"]
    assert found["cut"] == 4
    assert all("window: expected a whole number from sinks + 2" in message for message in found["wrong"])
