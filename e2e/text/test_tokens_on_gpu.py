"""TextGenerator's tokens chosen on the GPU: what that takes, the same texts as one by one, what stays allocated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from e2e.harness.script import watched
from e2e.harness.writing import PROMPT, Writing
from tests.genai.packed import SHAPES, prompt_of, write_packed_folder
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

DATA = ROOT / "tests" / "genai" / "data"

COUNTS = "() => ({ ...submits, ...created, readbacks })"

QUEUED = """
const { pace } = await import('/src/web/text/tokens.js');
const { Decoder } = await import('/src/web/text/decoder.js');
const usual = globalThis.usualPace ??= { ...pace };
Object.assign(pace, usual, given);
const steps = [];
globalThis.step ??= Decoder.prototype.step;
Decoder.prototype.step = function counted(...args) {
  steps.push(args[1].length);
  return step.apply(this, args);
};
"""

BATCHES_OF = {"ms": 1e9, "most": 8}
SUBMITS = 1

LLAMA = SHAPES["llama"]
CACHES = 2 * LLAMA.layers * 4 * LLAMA.groups * LLAMA.size * 256
"""Bytes of the keys and values of a text of at most 256 tokens."""


class Queueing(Writing):
    """A script that says how many tokens are queued at once."""

    def __call__(self, body: str, given: dict[str, float] | None = None, **variables: Any) -> Any:
        return super().__call__(QUEUED + body, given=given or {}, **variables)


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Queueing]:
    with watched(browser, site_url, Queueing) as made:
        yield made


def test_counts__of_forty_tokens_more__one_submit_a_token_and_one_readback_a_batch(script: Queueing) -> None:
    """Texts of 66 and of 106 tokens, both within the first capacity of the caches."""
    body = """
        const pieces = await write(prompt, { temperature: 0, maxNewTokens, endTokens: [] });
        generator.forget();
        return [steps, pieces.length];
        """
    counts = []
    for tokens in (106, 106, 66, 106, 66, 106):  # memory finds its places in the first three
        before = script.worker.evaluate(COUNTS)
        assert script(body, BATCHES_OF, prompt=PROMPT, maxNewTokens=tokens) == [[], tokens]
        after = script.worker.evaluate(COUNTS)
        counts.append({k: after[k] - before[k] for k in after})
    spent = {k: counts[5][k] - counts[4][k] for k in counts[5]}
    tokens, batches = 40, 5
    # Which memory a text's first tokens find hangs on when batches arrive; bind groups are made for each memory once,
    # while new ones for each token would be more than ten times as many.
    assert spent.pop("groups") < tokens
    # Batches have one token until an answer says that the caches grow in place; a text may begin with one more of them.
    assert abs(spent.pop("readbacks") - batches) <= 1
    assert spent == {
        "all": SUBMITS * tokens,
        "withoutPython": SUBMITS * tokens,
        "buffers": 0,
        "pipelines": 0,
    }


@pytest.mark.parametrize("kind", list(SHAPES))
def test_greedy__int4_decoders_and_prompts_of_1_to_1000_tokens__are_the_ids_of_onnxruntime_genai(
    kind: str, script: Queueing, site_server: Server, tmp_path: Path
) -> None:
    """Also with what the text before has left, cut back to where the prompts part."""
    shape = SHAPES[kind]
    wanted = json.loads((DATA / "greedy.json").read_text())[kind]
    site_server.mounts[f"/e2e/{kind}/"] = write_packed_folder(tmp_path, shape)
    script.guard.allow("404")  # config.json
    prompts = {tokens: prompt_of(int(tokens), shape.words) for tokens in wanted}
    found = script(
        """
        const other = await TextGenerator.create(`/e2e/${kind}/`);
        const found = {};
        const before = await counts();
        for (const [tokens, ids] of Object.entries(prompts)) {
          const prompt = other.decode(ids);
          const pieces = await write(prompt, { maxNewTokens: 128, endTokens: [] }, other);
          const longer = other.decode([...ids, ...idsOf(pieces).slice(0, 9)]);
          const part = await write(longer, { maxNewTokens: 20, endTokens: [] }, other);
          found[tokens] = [idsOf(pieces), pieces[0].promptTokens, idsOf(part), part[0].promptTokens];
        }
        other.forget();
        const after = await counts();
        await other.release();
        return { found, steps, left: after - before };
        """,
        BATCHES_OF,
        kind=kind,
        prompts=prompts,
    )
    assert found["steps"] == []
    assert found["left"] == 0
    for tokens, ids in wanted.items():
        whole, computed, part, rest = found["found"][tokens]
        assert whole == ids, tokens
        assert part == ids[9:29], tokens
        assert rest == 1, "but for its last token the prompt is what the text before began with"
        assert 0 < computed <= int(tokens)


RULES: dict[str, dict[str, Any]] = {
    "softmax": {"temperature": 1.5},
    "k": {"temperature": 0.8, "topK": 12},
    "p": {"temperature": 1, "topP": 0.7},
    "k_p_min": {"temperature": 1.2, "topK": 100, "topP": 0.95, "minP": 0.02},
    "penalties": {
        "temperature": 0.7,
        "topK": 50,
        "repetitionPenalty": 1.3,
        "presencePenalty": 0.4,
        "frequencyPenalty": 0.2,
    },
    "greedy_penalties": {"temperature": 0, "repetitionPenalty": 1.5, "frequencyPenalty": 0.5},
    "top": {"temperature": 0, "topLogProbabilities": 5},
}


@pytest.fixture(scope="module")
def packed_script(shared_script: Queueing, site_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Queueing:
    """With `globalThis.packed`, a generator of a small int4 decoder."""
    folder = tmp_path_factory.mktemp("packed")
    site_server.mounts["/e2e/packed/"] = write_packed_folder(folder, SHAPES["llama"])
    shared_script.guard.allow("404")
    shared_script("globalThis.packed = await TextGenerator.create('/e2e/packed/');")
    return shared_script


@pytest.mark.parametrize("name", list(RULES))
def test_rules__on_the_gpu_and_in_javascript__the_same_draws_give_the_same_text(
    name: str, packed_script: Queueing
) -> None:
    """Seeds repeat, and another one gives another text where something is drawn."""
    rules = RULES[name]
    found = packed_script(
        """
        const prompt = packed.decode(ids);
        const options = { ...rules, maxNewTokens: 40, endTokens: [], keepPrompt: false };
        const texts = [];
        for (const seed of [5, 5, 6]) texts.push(await write(prompt, { ...options, seed }, packed));
        const queued = steps.length;
        texts.push(await write(prompt, { ...options, seed: 5, processLogits() {} }, packed));
        return { queued, texts: texts.map((pieces) => ({ ids: idsOf(pieces),
          logs: pieces.map(({ logProbability }) => logProbability), top: pieces.map(({ top }) => top ?? []) })) };
        """,
        BATCHES_OF,
        ids=prompt_of(20, SHAPES["llama"].words),
        rules=rules,
    )
    first, again, other, host = found["texts"]
    assert found["queued"] == 0
    assert first == again
    assert (first["ids"] == other["ids"]) == (rules["temperature"] == 0)
    assert first["ids"] == host["ids"]
    np.testing.assert_allclose(first["logs"], host["logs"], atol=1e-4)
    for mine, wanted in zip(first["top"], host["top"], strict=True):
        assert [one["id"] for one in mine] == [one["id"] for one in wanted]
        assert len(mine) == rules.get("topLogProbabilities", 0)
        logs, wanted_logs = ([one["logProbability"] for one in top] for top in (mine, wanted))
        np.testing.assert_allclose(logs, wanted_logs, atol=1e-4)


@pytest.mark.parametrize("top", [0, 2])
def test_log_probabilities__not_wanted__the_same_ids_without_them(top: int, packed_script: Queueing) -> None:
    found = packed_script(
        """
        const prompt = packed.decode(ids);
        const always = { temperature: 0, maxNewTokens: 24, endTokens: [], keepPrompt: false };
        const options = { ...always, topLogProbabilities: top };
        const texts = [];
        for (const more of [{}, { logProbabilities: false }, { logProbabilities: false, processLogits() {} }]) {
          texts.push(await write(prompt, { ...options, ...more }, packed));
        }
        return texts.map((pieces) => ({ ids: idsOf(pieces), top: pieces.map(({ top }) => (top ?? []).length),
          logs: pieces.filter(({ logProbability }) => logProbability !== undefined).length }));
        """,
        BATCHES_OF,
        ids=prompt_of(20, SHAPES["llama"].words),
        top=top,
    )
    assert [text["logs"] for text in found] == [24, 0, 0]
    assert all(text["ids"] == found[0]["ids"] and text["top"] == [top] * 24 for text in found)


def test_ends__in_the_middle_of_what_was_queued__cut_what_is_beyond(packed_script: Queueing) -> None:
    """End tokens, stop strings, a signal and a break; what is kept of the text before is right, what is not is gone."""
    found = packed_script(
        """
        const prompt = packed.decode(ids);
        const options = { temperature: 0, endTokens: [], keepPrompt: true };
        const whole = await write(prompt, { ...options, maxNewTokens: 60 }, packed);
        packed.forget();
        const held = [await counts()];
        const found = [];
        for (const at of [0, 1, 5, 9, 17, 30]) {
          const { id, text } = whole[at];
          for (const end of [{ endTokens: [id] }, { stop: text }]) {
            const pieces = await write(prompt, { ...options, maxNewTokens: 60, ...end }, packed);
            // The next text begins with this one, so it goes on from its caches.
            const longer = packed.decode([...ids, ...idsOf(whole).slice(0, pieces.length + 3)]);
            const next = await write(longer, { ...options, maxNewTokens: 12 }, packed);
            found.push([idsOf(pieces), pieces.at(-1).finishReason, idsOf(next), next[0].promptTokens]);
            packed.forget();
          }
          const control = new AbortController();
          let count = 0;
          const stopped = await failure(async () => {
            const { signal } = control;
            for await (const piece of packed.generate(prompt, { ...options, maxNewTokens: 60, signal })) {
              if (count === at) control.abort(new Error('enough'));
              count += 1;
            }
          });
          found.push([count, stopped.message]);
          for await (const piece of packed.generate(prompt, { ...options, maxNewTokens: 60 })) if (count-- <= 1) break;
          packed.forget();
          held.push(await counts());
        }
        return { whole: idsOf(whole), found, held, queued: steps.length };
        """,
        BATCHES_OF,
        ids=prompt_of(12, SHAPES["llama"].words),
    )
    whole = found["whole"]
    assert found["queued"] == 0
    assert set(found["held"]) == {found["held"][0]}
    for i, at in enumerate([0, 1, 5, 9, 17, 30]):
        first = whole.index(whole[at])
        *ends, (count, stopped) = found["found"][3 * i : 3 * i + 3]
        for (ids, reason, following, computed), wanted in zip(ends, ["end", "stop"], strict=True):
            assert (ids, reason) == (whole[: first + 1], wanted)
            assert following == whole[first + 4 : first + 16]
            assert computed == 4, "the last token of the text before, and three that are new"
        assert (count, stopped) == (at + 1, "enough")


@pytest.mark.parametrize(
    ("options", "queued"),
    [({}, True), ({"extra": {"pyruntime.disable": "grow_in_place"}}, True), ({"executionProviders": ["wasm"]}, False)],
    ids=["growing", "copied", "host"],
)
def test_caches__in_place_or_new_or_on_the_host__the_same_texts_and_what_is_kept_of_them(
    options: dict[str, Any], queued: bool, script: Queueing, site_server: Server, tmp_path: Path
) -> None:
    """A session on the host chooses its tokens step by step; so does a caller who changes logits."""
    shape = SHAPES["qwen2"]
    wanted = json.loads((DATA / "greedy.json").read_text())["qwen2"]["7"]
    site_server.mounts["/e2e/kinds/"] = write_packed_folder(tmp_path, shape)
    script.guard.allow("404")
    found = script(
        """
        const before = await counts();
        const other = await TextGenerator.create('/e2e/kinds/', { sessionOptions });
        const found = [];
        for (const processLogits of [undefined, () => {}]) {
          const options = { endTokens: [], processLogits };
          const at = steps.length;
          const first = await write(other.decode(ids), { ...options, maxNewTokens: 21 }, other);
          const longer = other.decode([...ids, ...idsOf(first).slice(0, 13)]);
          const next = await write(longer, { ...options, maxNewTokens: 10 }, other);
          found.push([idsOf(first), idsOf(next), next[0].promptTokens, steps.length - at]);
          other.forget();
        }
        await other.release();
        return [found, await counts() - before];
        """,
        BATCHES_OF,
        ids=prompt_of(7, shape.words),
        sessionOptions=options,
    )
    (mine, theirs), left = found
    assert left == 0
    assert (mine[3], theirs[3]) == (0 if queued else 31, 31)
    for first, following, computed, _ in (mine, theirs):
        assert first == wanted[:21]
        assert following == wanted[13:23]
        assert computed == 1


FAULTS = ["map rejects", "mapped range throws", "no encoder", "out of memory", "not valid", "scope rejects"]
FAULTS += ["queue takes no bytes", "queue takes no commands", "no pass", "pass takes no dispatch", "no copy"]


def test_gpu__fails_in_the_middle__the_text_goes_on_on_the_host(packed_script: Queueing) -> None:
    """Each fault happens once; the next text is queued again, and nothing of what was given up is left."""
    script = packed_script
    script.page.expose_function("fault", lambda name: script.worker.evaluate("(name) => injectFault(name, 1)", name))
    script.page.expose_function("restore", lambda: script.worker.evaluate("() => restoreFaults()"))
    script.guard.allow("on the host from here on")
    found = script(
        """
        const prompt = packed.decode(ids);
        const options = { temperature: 0, endTokens: [], maxNewTokens: 40 };
        const whole = idsOf(await write(prompt, options, packed));
        packed.forget();
        const found = {};
        for (const name of faults) {
          const held = await counts();
          const written = [];
          for await (const { id } of packed.generate(prompt, options)) {
            written.push(id);
            if (written.length === 12) await fault(name);
          }
          await restore();
          const stepwise = steps.length;
          const next = idsOf(await write(prompt, { ...options, keepPrompt: false }, packed));
          packed.forget();
          found[name] = [written, stepwise > 0, next, steps.length - stepwise, await counts() - held];
          steps.length = 0;
        }
        return { whole, found };
        """,
        BATCHES_OF,
        ids=prompt_of(12, SHAPES["llama"].words),
        faults=FAULTS,
    )
    assert len(found["whole"]) == 40
    for name, (ids, _, following, stepwise, left) in found["found"].items():
        assert (name, ids) == (name, found["whole"])
        assert (name, following, stepwise, left) == (name, found["whole"], 0, 0)
    assert sum(fell for _, fell, *_ in found["found"].values()) > len(FAULTS) / 2


def test_several_texts__at_once_and_given_up__are_as_alone_and_leave_no_bytes(packed_script: Queueing) -> None:
    """Twenty texts given up take no more than one does; with the generator goes all that it and they had."""
    script, ids = packed_script, prompt_of(20, SHAPES["llama"].words)
    script.guard.allow("404")  # config.json
    given_up = """
        for (let round = 0; round < rounds; round++) {
          const control = new AbortController();
          const { signal } = control;
          const options = { signal, seed: round, topK: 20, endTokens: [], maxNewTokens: 200, keepPrompt: false };
          let count = 0;
          await failure(async () => {
            for await (const piece of several.generate(several.decode(ids.slice(round % 4)), options)) {
              if (++count === 100) control.abort();
            }
          });
        }
        several.forget();
        """
    whole = """
        globalThis.several = await TextGenerator.create('/e2e/packed/');
        const prompts = [0, 1, 2, 3].map((n) => several.decode(ids.slice(n)));
        const options = { temperature: 0, endTokens: [], maxNewTokens: 50, keepPrompt: false };
        const alone = [];
        for (const prompt of prompts) alone.push(idsOf(await write(prompt, options, several)));
        const together = await Promise.all(prompts.map((prompt) => write(prompt, options, several)));
        several.forget();
        return { alone, together: together.map(idsOf), queued: steps.length };
        """
    release = "await several.release(); return counts();"
    without = []
    for rounds in (2, 20):
        found = script(whole, BATCHES_OF, ids=ids)
        assert (found["together"], found["queued"]) == (found["alone"], 0)
        script(given_up, BATCHES_OF, ids=ids, rounds=2)
        before = script.gpu_bytes()
        script(given_up, BATCHES_OF, ids=ids, rounds=rounds)
        after = script.gpu_bytes()
        # How many ids wait to be read, and whether a text begins before the last one's caches are back, hangs on the
        # machine; their buffers are kept for the next ones.
        assert 0 <= after.pop("tensors") - before.pop("tensors") <= CACHES + 16 * 256
        assert after == before
        held = script(release, BATCHES_OF)
        without.append((held, script.gpu_bytes()))
    assert without[0] == without[1]
