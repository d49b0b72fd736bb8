"""Texts longer than the model's context in the browser: ids, what a slide computes, seeds, memory, aborts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from e2e.harness.script import watched
from e2e.text.test_tokens_on_gpu import BATCHES_OF, COUNTS, DATA, Queueing
from tests.genai.packed import SHAPES, prompt_of, write_packed_folder
from tests.genai.precisions import SEEDS
from tools.devkit.server import Server

pytestmark = pytest.mark.unguarded

CONTEXT = 96
RECORDED: dict[str, dict[str, list[int]]] = json.loads((DATA / "windows.json").read_text())

CREATE = """
globalThis.made ??= {};
made[kind] ??= await TextGenerator.create(`/e2e/window_${kind}/`);
const packed = made[kind];
"""


class Windows(Queueing):
    """A script with `packed`, a generator of a small int4 decoder that can look back at 96 tokens."""

    def __call__(self, body: str, given: dict[str, float] | None = None, kind: str = "llama", **variables: Any) -> Any:
        return super().__call__(CREATE + body, given or BATCHES_OF, kind=kind, **variables)


@pytest.fixture(scope="module")
def shared_script(
    browser: Browser, site_url: str, site_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Windows]:
    for kind, shape in SHAPES.items():
        folder = write_packed_folder(tmp_path_factory.mktemp(kind), shape, SEEDS[kind, "int4"])
        config = json.loads((folder / "genai_config.json").read_text())
        config["model"]["context_length"] = CONTEXT
        (folder / "genai_config.json").write_text(json.dumps(config))
        site_server.mounts[f"/e2e/window_{kind}/"] = folder
    with watched(browser, site_url, Windows) as made:
        made.guard.allow("404")  # config.json
        yield made


@pytest.fixture
def windows(script: Windows) -> Windows:
    script.guard.allow("404")
    return script


@pytest.mark.parametrize("way", ["queued", "host", "copied"])
@pytest.mark.parametrize("kind", list(SHAPES))
def test_greedy__three_windows_of_text__ids_of_fresh_generators_of_onnxruntime_genai(
    kind: str, way: str, windows: Windows
) -> None:
    cases: list[tuple[str, int, int, int]] = []
    for name in RECORDED[kind]:
        size, sinks, length = map(int, name.split())
        cases.append((name, size, sinks, length))
    found = windows(
        """
        const sessionOptions = way === 'copied' ? { extra: { 'pyruntime.disable': 'grow_in_place' } } : {};
        const own = way === 'copied' ? await TextGenerator.create(`/e2e/window_${kind}/`, { sessionOptions }) : packed;
        const before = await counts();
        const found = {};
        for (const [name, window, sinks, length] of cases) {
          const processLogits = way === 'host' ? () => {} : undefined;
          const options = { window, sinks, maxNewTokens: 3 * window, endTokens: [], processLogits };
          const pieces = await write(own.decode(prompts[length]), options, own);
          found[name] = [idsOf(pieces), pieces.map(({ promptTokens }) => promptTokens), pieces.at(-1).finishReason];
          own.forget();
        }
        const left = await counts() - before;
        if (way === 'copied') await own.release();
        return { found, left, stepwise: steps.length };
        """,
        kind=kind,
        way=way,
        cases=cases,
        prompts={length: prompt_of(length, SHAPES[kind].words) for _, _, _, length in cases},
    )
    assert found["left"] == 0
    assert (found["stepwise"] > 0) == (way == "host")
    for name, size, sinks, length in cases:
        ids, computed, reason = found["found"][name]
        assert ids == RECORDED[kind][name], name
        assert reason == "length"
        block = size + 1 - sinks - (size - sinks) // 2
        whole = length - block * -(-max(0, length - size) // block)
        # Starting over also keeps what happens to be the same after the sinks.
        assert (computed[0], max(computed[1:])) == (whole, (size - sinks) // 2), name
        assert sum(computed) < 3 * (length + 3 * size)


def test_chat__each_turn_begins_with_the_text_before__computes_what_the_window_has_new(windows: Windows) -> None:
    """Turn by turn as all at once, and what is kept of the turn before is used where the window did not move."""
    found = windows(
        """
        const options = { window: 64, sinks: 4, maxNewTokens: 15, endTokens: [] };
        const found = [];
        let text = [...ids];
        for (let turn = 0; turn < 10; turn++) {
          const pieces = await write(packed.decode(text), options, packed);
          packed.forget();
          const alone = await write(packed.decode(text), options, packed);
          found.push([idsOf(pieces), idsOf(alone), pieces[0].promptTokens, alone[0].promptTokens]);
          text = [...text, ...idsOf(alone), 9, 8 + turn];
          // What is kept is that of `alone`, which is the turn before.
        }
        packed.forget();
        return found;
        """,
        ids=prompt_of(20, SHAPES["llama"].words),
    )
    for mine, alone, computed, whole in found:
        assert mine == alone
        assert computed <= whole <= 64
    assert sum(computed for _, _, computed, _ in found) < sum(whole for _, _, _, whole in found) / 2


def test_memory__twelve_windows_of_text__bytes_on_the_gpu_stay_flat(windows: Windows) -> None:
    """Looked at after each window; a text that is given up leaves nothing allocated."""
    windows.page.expose_function("gpuBytes", lambda: sum(windows.gpu_bytes().values()))
    found = windows(
        """
        const options = { window: 48, sinks: 4, maxNewTokens: 48 * 12, endTokens: [] };
        const prompt = packed.decode(ids);
        for await (const piece of packed.generate(prompt, { ...options, maxNewTokens: 96 })) { /* plans */ }
        packed.forget();
        const before = await counts();
        const bytes = [];
        let count = 0;
        for await (const piece of packed.generate(prompt, options)) {
          count += 1;
          if (count % 48 === 30) bytes.push(await gpuBytes());
        }
        packed.forget();
        return { bytes, count, left: await counts() - before };
        """,
        ids=prompt_of(20, SHAPES["llama"].words),
    )
    assert found["count"] == 48 * 12
    assert found["left"] == 0
    bytes_held = found["bytes"]
    assert len(bytes_held) == 12
    assert max(bytes_held[3:]) <= max(bytes_held[:3]), bytes_held


@pytest.mark.parametrize("host", [False, True], ids=["queued", "host"])
def test_abort__in_the_middle_of_a_slide__leaves_nothing_and_the_next_text_is_right(
    host: bool, windows: Windows
) -> None:
    """The window of 48 is full after a prompt of 20 and 28 tokens: the 30th token's step moves it."""
    found = windows(
        """
        const processLogits = host ? () => {} : undefined;
        const options = { window: 48, sinks: 4, maxNewTokens: 200, endTokens: [], processLogits };
        const prompt = packed.decode(ids);
        const whole = idsOf(await write(prompt, options, packed));
        packed.forget();
        const before = await counts();
        const found = [];
        for (const delay of [0, 0, 1, 2, 4, 8, 16, 30]) {
          const control = new AbortController();
          const pieces = packed.generate(prompt, { ...options, signal: control.signal });
          const written = [];
          for (let i = 0; i < 29; i++) written.push((await pieces.next()).value.id);
          const slide = pieces.next();
          setTimeout(() => control.abort(new Error('enough')), delay); // moments of a slide, on purpose
          const { message } = await failure(async () => {
            await slide;
            for await (const piece of pieces) { /* on */ }
          });
          const left = await counts() - before;
          const next = idsOf(await write(prompt, { ...options, maxNewTokens: 60 }, packed));
          packed.forget();
          const same = (made, count) => made.join() === whole.slice(0, count).join();
          found.push([message, left, same(written, 29), same(next, 60)]);
        }
        return found;
        """,
        ids=prompt_of(20, SHAPES["llama"].words),
        host=host,
    )
    assert found == [["enough", 0, True, True]] * 8


def test_counts__of_two_windows_more__a_submit_a_token_and_one_for_each_start(windows: Windows) -> None:
    """What is computed anew is queued as it was the time before, without Python; a start uploads one token's id."""
    body = """
        const options = { window: 48, sinks: 4, maxNewTokens, endTokens: [] };
        const pieces = await write(packed.decode(ids), options, packed);
        packed.forget();
        return pieces.slice(1).filter(({ promptTokens }) => promptTokens > 1).length;
        """
    counts, starts = [], []
    for tokens in (200, 200, 154, 200, 154, 200):  # memory finds its places in the first ones
        before = windows.worker.evaluate(COUNTS)
        starts.append(windows(body, ids=prompt_of(20, SHAPES["llama"].words), maxNewTokens=tokens))
        after = windows.worker.evaluate(COUNTS)
        counts.append({k: after[k] - before[k] for k in after})
    spent = {k: counts[5][k] - counts[4][k] for k in counts[5]}
    tokens = 46
    assert starts[5] - starts[4] == 2
    assert (spent["all"], spent["withoutPython"]) == (tokens + 2, tokens + 2)
    assert (spent["buffers"], spent["pipelines"]) == (2, 0)
    assert spent["groups"] < tokens
