"""Runs begun before they are asked for: the same bits, whatever the caller feeds, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from playwright.sync_api import Browser

from e2e.harness.script import Script, watched
from tests.genai.packed import SHAPES, packed_model, prompt_of

LLAMA = SHAPES["llama"]

LOOP = """
env.runAhead = ahead;
const caches = Array.from({ length: shape.layers }, (_, i) => ['key', 'value'].map((kind) => `${i}.${kind}`)).flat();
const places = Object.fromEntries(caches.map((name) => [`present.${name}`, 'gpu-buffer']));
const open = () => InferenceSession.create(decode(model), { preferredOutputLocation: places });
const session = globalThis.kept ??= await open();
const none = () => Object.fromEntries(caches.map((name) => [
  `past_key_values.${name}`, new Tensor('float32', new Float32Array(0), [1, shape.groups, 0, shape.size])]));
const next = (made) => Object.fromEntries(caches.map((name) => [`past_key_values.${name}`, made[`present.${name}`]]));
const idsOf = (ids) => new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]);
const maskOf = (length) => new Tensor('int64', new BigInt64Array(length).fill(1n), [1, length]);
const bits = ({ data: { buffer, byteLength } }) => [...new Uint32Array(buffer, byteLength - 4 * shape.words)];
const likeliest = ({ data }) => {
  const row = data.subarray(data.length - shape.words);
  return row.indexOf(Math.max(...row));
};
const placesOf = (ids, length) => (rows ? { position_ids: idsOf(ids.map((_, i) => length - ids.length + i)) } : {});
const step = (past, ids, length) => (
  session.run({ ...past, ...placesOf(ids, length), input_ids: idsOf(ids), attention_mask: maskOf(length) }));
async function write(count, pick = (logits) => likeliest(logits)) {
  let [past, ids, length] = [none(), prompt, 0];
  const made = { ids: [], logits: [] };
  for (let at = 0; at < count; at++) {
    length += ids.length;
    const results = await step(past, ids, length);
    for (const cache of Object.values(past)) cache.dispose();
    past = next(results);
    ids = [pick(results.logits, at)];
    made.ids.push(ids[0]);
    made.logits.push(bits(results.logits));
  }
  for (const cache of Object.values(past)) cache.dispose();
  return made;
}
const end = async () => {
  await session.release();
  delete globalThis.kept;
};
"""


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Script]:
    with watched(browser, site_url, Script) as made:
        yield made


def given(ahead: bool, rows: int = 0, **others: Any) -> dict[str, Any]:
    """What `LOOP` reads; `rows`: of a table of positions that the model has."""
    shape = {"layers": LLAMA.layers, "groups": LLAMA.groups, "size": LLAMA.size, "words": LLAMA.words}
    model = with_positions(rows) if rows else packed_model(LLAMA)
    return {"model": model, "shape": shape, "prompt": prompt_of(7, LLAMA.words), "ahead": ahead, "rows": rows, **others}


def with_positions(rows: int) -> bytes:
    """The decoder with learned positions, as GPT-2 has them: another input, position_ids."""
    model = onnx.load_model_from_string(packed_model(LLAMA))
    at, embedding = next((i, n) for i, n in enumerate(model.graph.node) if "input_ids" in n.input)
    words, embedding.output[0] = embedding.output[0], "words"
    table = np.random.default_rng(0).normal(size=(rows, LLAMA.width)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "positions"))
    model.graph.input.append(helper.make_tensor_value_info("position_ids", onnx.TensorProto.INT64, ["b", "s"]))
    model.graph.node.insert(at + 1, helper.make_node("Gather", ["positions", "position_ids"], ["places"], "places"))
    model.graph.node.insert(at + 2, helper.make_node("Add", ["words", "places"], [words]))
    return bytes(model.SerializeToString())


def counts(script: Script) -> dict[str, int]:
    found: dict[str, int] = script.worker.evaluate("() => ({ ...submits, ...created })")
    return found


KEPT = "const { client } = await import('/src/web/api/client.js'); return client().call('keptTensors', {});"

PICKS = {
    "likeliest": "(logits) => likeliest(logits)",
    "another each sixth": "(logits, at) => (at % 6 === 5 ? (likeliest(logits) + 1) % shape.words : likeliest(logits))",
    "never": "(logits, at) => (likeliest(logits) + 1 + at) % shape.words",
}


@pytest.mark.parametrize("pick", list(PICKS))
def test_writing__ahead__gives_the_same_bits(pick: str, script: Script) -> None:
    """Longer than the first capacity of the caches, then a second text."""
    writes = f"[await write(40, {PICKS[pick]}), await write(30, {PICKS[pick]})]"
    body = f"{LOOP} const made = {writes}; await end(); return made;"
    wanted = script(body, **given(False))
    assert script(body, **given(True)) == wanted
    assert script(KEPT) == 0


def test_writing__ahead__takes_one_submit_a_token_and_what_was_begun_last(script: Script) -> None:
    """Memory, bind groups and pipelines are those of the first texts."""
    write = f"{LOOP} return (await write(20, {PICKS['likeliest']})).ids.length;"
    spent = {}
    for ahead in (False, True):
        for text in range(12):
            before = counts(script)
            assert script(write, **given(ahead)) == 20
            after = counts(script)
            spent[ahead] = {k: after[k] - before[k] for k in after}
            # How many runs are begun follows from how long they take: the first text with more of them needs more.
            if text >= 3 and not spent[ahead]["buffers"] + spent[ahead]["groups"]:
                break
        script(f"{LOOP} await end()", **given(ahead))
    more = {k: spent[True][k] - spent[False][k] for k in spent[True]}
    assert more.pop("all") == more.pop("withoutPython") in range(2, 8)  # the first token's, and one to six runs
    assert more == {"buffers": 0, "groups": 0, "pipelines": 0}


SPY = """async () => {
    const { Chooser } = await import('/src/web/speculation/chooser.js');
    const { create } = Chooser;
    globalThis.choosers = [];
    Chooser.create = (...given) => {
        const made = { logits: given[1], there: false };
        choosers.push(made);
        return create.apply(Chooser, given).then((chooser) => { made.there = true; return chooser; });
    };
}"""


def test_create__decoder__what_chooses_is_there_before_the_first_run(script: Script) -> None:
    script.worker.evaluate(SPY)
    script(f"{LOOP} return 0;", **given(True))
    for _ in range(100):
        before = script.worker.evaluate("() => choosers")
        if before and before[0]["there"]:
            break
        script.page.wait_for_timeout(50)
    logits = {"name": "logits", "type": "float32", "dims": [1, 1, LLAMA.words], "ids": "int64"}
    assert before == [{"logits": logits, "there": True}]
    wanted = script(f"{LOOP} const made = await write(12); await end(); return made;", **given(True))
    assert script.worker.evaluate("() => choosers") == before
    assert script(f"{LOOP} const made = await write(12); await end(); return made;", **given(False)) == wanted
    assert script(KEPT) == 0


def test_pace__runs_that_follow_or_do_not__begins_more_or_takes_longer(script: Script) -> None:
    """How many runs have to follow from one another before some are begun, and how many these are."""
    found = script(
        """const { Pace } = await import('/src/web/speculation/pace.js');
        const pace = new Pace();
        const untilSteady = () => {
          for (let runs = 0; ; runs++) {
            if (pace.isSteady) return runs;
            pace.asked(true);
          }
        };
        const depths = (hits) => Array.from({ length: hits }, () => { pace.hit(); return pace.depth; });
        const miss = () => { pace.missed(); return [pace.isFollowing, pace.depth, untilSteady()]; };
        pace.ran(5);
        const made = [untilSteady(), depths(6), miss(), miss(), depths(1), miss()];
        pace.ran(10);
        made.push(depths(4));
        pace.ran(41);
        made.push(pace.isSteady);
        pace.asked(false);
        made.push(pace.isFollowing);
        return made;"""
    )
    assert found == [
        2,
        [2, 3, 4, 5, 5, 5],
        [False, 1, 4],
        [False, 1, 8],
        [2],
        [False, 1, 8],
        [2, 3, 3, 3],
        False,
        False,
    ]


def test_caches__fed_again_while_runs_are_ahead__are_as_they_were(script: Script) -> None:
    """A branch off an earlier token, and the caches' rows themselves."""
    body = f"""{LOOP}
    let [past, ids, length] = [none(), prompt, 0];
    const texts = [];
    for (let at = 0; at < 12; at++) {{
      length += ids.length;
      const results = await step(past, ids, length);
      texts.push({{ past: next(results), length, ids: [likeliest(results.logits)] }});
      [{{ past, ids }}] = texts.slice(-1);
    }}
    const kept = [];
    for (const at of [11, 5]) {{
      const keys = await texts[at].past['past_key_values.1.key'].getData();
      kept.push([...new Uint32Array(keys.buffer)]);
    }}
    const branch = await step(texts[5].past, [9], texts[5].length + 1);
    const straight = await step(texts[11].past, texts[11].ids, texts[11].length + 1);
    const made = [kept, bits(branch.logits), bits(straight.logits)];
    for (const {{ past: caches }} of texts) for (const cache of Object.values(caches)) cache.dispose();
    for (const results of [branch, straight]) for (const cache of Object.values(next(results))) cache.dispose();
    await end();
    return made;
    """
    assert script(body, **given(True)) == script(body, **given(False))
    assert script(KEPT) == 0


def test_positions__beyond_those_of_the_model__end_the_text_at_the_run_that_is_requested(script: Script) -> None:
    """Runs that begin before they are requested reach the end first; the session writes another text afterwards."""
    body = f"""{LOOP}
    let [past, ids, length] = [none(), prompt, 0];
    const logits = [];
    const refused = [];
    while (refused.length < 2) {{
      try {{
        const results = await step(past, ids, length + ids.length);
        for (const cache of Object.values(past)) cache.dispose();
        length += ids.length;
        past = next(results);
        ids = [likeliest(results.logits)];
        logits.push(bits(results.logits));
      }} catch ({{ name, message }}) {{
        refused.push(`${{name}}: ${{message}}`);
      }}
    }}
    for (const cache of Object.values(past)) cache.dispose();
    const after = await write(12);
    await end();
    return [logits, refused, after];
    """
    made = script(body, **given(True, rows=20))
    assert made == script(body, **given(False, rows=20))
    logits, refused, _ = made
    assert len(logits) == 20 - 7 + 1
    expected = "expected indices in [-20, 19], the elements of axis 0, got 20 at [0, 0] of the indices"
    assert all(error.startswith("RuntimeException: 'places' (Gather)") and expected in error for error in refused)
    assert script(KEPT) == 0


def test_text__that_has_ended__gives_its_caches_back(script: Script) -> None:
    """A second after its last run, not only with the session."""
    script(f"{LOOP} await write(12);", **given(True))
    for _ in range(400):
        if script(KEPT) == 0:
            break
        script.page.wait_for_timeout(50)
    assert script(KEPT) == 0
    script(f"{LOOP} await write(12); await end();", **given(True))


def test_session__released_while_runs_are_ahead__leaves_nothing(script: Script) -> None:
    before = script.gpu_bytes()
    script(f"{LOOP} await write(12); await end();", **given(True))
    assert script.gpu_bytes() == before


@pytest.mark.parametrize(("tokens", "by_python"), [(12, 2), (200, 3)])
def test_writing__first_text_of_a_session__python_runs_a_token(tokens: int, by_python: int, script: Script) -> None:
    """How a prompt and tokens are run is described with the session, which has memory for the caches of the prompt.

    Python moves these to memory with spare capacity and runs the first token. A longer prompt than was expected is
    Python's, too.
    """
    prompt = prompt_of(tokens, LLAMA.words)
    script(f"{LOOP}", **given(False, prompt=prompt))
    before = counts(script)
    script(f"{LOOP} return (await write(20, {PICKS['likeliest']})).ids.length;", **given(False, prompt=prompt))
    after = counts(script)
    script(f"{LOOP} await end()", **given(False))
    spent = {k: after[k] - before[k] for k in after}
    assert spent["all"] - spent["withoutPython"] == by_python
