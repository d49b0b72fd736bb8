"""TextGenerator over models that look back at so many tokens: the tokens after the whole text, however long it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from playwright.sync_api import Browser, BrowserContext

from e2e.conftest import mounts
from e2e.harness.browser import fresh_page
from e2e.harness.script import Script, watched
from e2e.harness.visits import Visits
from e2e.plans.test_cached_plan_texts import texts
from e2e.text.test_tokens_on_gpu import BATCHES_OF, Queueing
from tests.contrib.decoder import decoder
from tests.genai.folder import write_folder
from tests.generate import test_trimming as trimming
from tests.generate import test_window_caches as windows
from tools.devkit.server import Server

pytestmark = pytest.mark.unguarded

CREATE = """
globalThis.local ??= {};
local[kind] ??= await TextGenerator.create(`/e2e/local/${kind}/`);
const own = local[kind];
const greedily = async (ids, options = {}) => {
  const pieces = await write(own.decode(ids), { temperature: 0, endTokens: [], ...options }, own);
  const computed = pieces.map(({ promptTokens }) => promptTokens);
  return { ids: idsOf(pieces), computed, end: pieces.at(-1).finishReason };
};
"""
SLIDING = {"window_size": windows.WINDOW, "slide_key_value_cache": False, "slide_inputs": False, "layers": [0]}


def plain_tokenizer(folder: Path) -> None:
    """A token for each of 50 signs, so that ids become a text and the same ids again."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"] = []
    content["model"] |= {"merges": [], "vocab": {chr(ord("0") + i): i for i in range(50)}}
    (folder / "tokenizer.json").write_text(json.dumps(content))


def put(folder: Path, model: bytes, **values: Any) -> None:
    """A folder of a model; `values` are of its configuration's decoder."""
    write_folder(folder)
    plain_tokenizer(folder)
    (folder / "model.onnx").write_bytes(model)
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"] |= {"context_length": trimming.POSITIONS, "decoder": {**config["model"]["decoder"], **values}}
    path.write_text(json.dumps(config))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local")
    for form in trimming.FORMS:
        put(folder / form.replace(" ", "_"), trimming.made(form).model)
    for local in windows.LOCALS:
        put(folder / f"windows_{local.replace(' ', '_')}", windows.made(local).model, sliding_window=SLIDING)
    outside = folder / "outside"
    put(outside, b"")
    onnx.save_model(
        onnx.load_from_string(trimming.made("plain").model),
        outside / "model.onnx",
        save_as_external_data=True,
        location="weights",
        size_threshold=64,
    )
    put(folder / "fixed", decoder(rows=64).model, sliding_window={"window_size": 8, "slide_inputs": False})
    return folder


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str, site_server: Server, folders: Path) -> Iterator[Queueing]:
    site_server.mounts["/e2e/local/"] = folders
    with watched(browser, site_url, Queueing) as made:
        made.guard.allow("404")  # config.json
        yield made


@pytest.fixture
def local(script: Queueing) -> Queueing:
    script.guard.allow("404")
    return script


def run(script: Queueing, body: str, kind: str = "plain", **variables: Any) -> Any:
    return script(CREATE + body, BATCHES_OF, kind=kind.replace(" ", "_"), **variables)


@pytest.mark.parametrize("form", list(trimming.FORMS))
def test_greedy__far_beyond_the_table_of_angles__tokens_of_whole_caches(form: str, local: Queueing) -> None:
    """Queued on the GPU and one by one; prompts within the window and longer than the table."""
    lengths = (1, 7, 130)
    found = run(
        local,
        """
        const found = [];
        for (const ids of prompts) {
          for (const processLogits of [undefined, () => {}]) {
            found.push(await greedily(ids, { maxNewTokens: 70, keepPrompt: false, processLogits }));
          }
        }
        return { found, stepwise: steps.length };
        """,
        form,
        prompts=[trimming.prompt_of(n) for n in lengths],
    )
    expected = [trimming.greedy(trimming.prompt_of(n), 70, form) for n in lengths for _ in range(2)]
    assert [f["ids"] for f in found["found"]] == expected
    assert [f["computed"] for f in found["found"]] == [[n, *[1] * 69] for n in lengths for _ in range(2)]
    assert {f["end"] for f in found["found"]} == {"length"}
    assert found["stepwise"] == 70 * len(lengths), "the others are chosen on the GPU"


def test_greedy__angles_in_a_file_that_arrives_by_itself__tokens_of_whole_caches(
    local: Queueing, folders: Path
) -> None:
    assert (folders / "outside" / "weights").stat().st_size > 2 * 4 * 8 * trimming.POSITIONS
    body = "return (await greedily(ids, { maxNewTokens: 70 })).ids;"
    ids = trimming.prompt_of(9)
    assert run(local, body, "outside", ids=ids) == trimming.greedy(ids, 70)


def test_caches__of_a_text_of_many_windows__have_a_bounded_number_of_rows(local: Queueing) -> None:
    """As many as are kept and dropped, and a run's, on either way; nothing stays allocated."""
    found = run(
        local,
        """
        const rows = [];
        const { restore } = Decoder.prototype;
        Decoder.prototype.restore = function watched(turn, ...rest) {
          restore.call(this, turn, ...rest);
          rows.push(...[...turn.caches.values()].map(({ dims }) => dims[2]));
        };
        const before = await counts();
        for (const processLogits of [undefined, () => {}]) {
          await greedily(ids, { maxNewTokens: 100, keepPrompt: false, processLogits });
        }
        Decoder.prototype.restore = restore;
        return { rows, left: await counts() - before };
        """,
        ids=trimming.prompt_of(100),
    )
    facts = {"kept": trimming.LOCAL - 1, "drop": trimming.LOCAL + 1}
    assert found["left"] == 0
    assert len(found["rows"]) > 4 * 100 / facts["drop"], "loops end to be trimmed"
    assert max(found["rows"]) <= facts["kept"] + facts["drop"]


def test_next_turn__of_a_long_text__computes_what_is_new_while_its_rows_are_there(local: Queueing) -> None:
    first = trimming.prompt_of(9)
    text = first + trimming.greedy(first, 80)
    found = run(
        local,
        """
        const made = [await greedily(first, { maxNewTokens: 80 })];
        for (const ids of [[...text, 4], text.slice(0, 85), text.slice(0, 30)]) {
          made.push(await greedily(ids, { maxNewTokens: 9 }));
        }
        own.forget();
        return made;
        """,
        first=first,
        text=text,
    )
    asked = [first, [*text, 4], text[:85], text[:30]]
    assert [f["ids"] for f in found] == [trimming.greedy(ids, 80 if ids is first else 9) for ids in asked]
    assert [f["computed"][0] for f in found] == [9, 2, 85, 30]


def test_window__of_the_callers__starts_over_as_for_others(local: Queueing) -> None:
    """It counts tokens, so what is seen is less than the model would; Infinity is the whole text."""
    seen, wanted = [1, 2, 3], list[int]()
    for _ in range(90):
        wanted += trimming.greedy(seen, 1)
        seen.append(wanted[-1])
        if len(seen) > 40:
            del seen[4 : len(seen) - 18]
    found = run(
        local,
        """
        const made = [];
        for (const processLogits of [undefined, () => {}]) {
          for (const given of [{ window: 40, sinks: 4 }, { window: Infinity }]) {
            const options = { ...given, maxNewTokens: 90, keepPrompt: false, processLogits };
            made.push((await greedily([1, 2, 3], options)).ids);
          }
        }
        return made;
        """,
    )
    assert found == [wanted, trimming.greedy([1, 2, 3], 90)] * 2


def test_draws_and_penalties__over_many_trims__are_those_chosen_one_by_one(local: Queueing) -> None:
    found = run(
        local,
        """
        const rules = { temperature: 0.9, topK: 20, repetitionPenalty: 1.2, frequencyPenalty: 0.3, seed: 5 };
        const texts = [];
        for (const processLogits of [undefined, undefined, () => {}]) {
          texts.push((await greedily([7, 9], { ...rules, maxNewTokens: 60, keepPrompt: false, processLogits })).ids);
        }
        return texts;
        """,
    )
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) > 10


@pytest.mark.parametrize("kind", list(windows.LOCALS))
def test_greedy__caches_of_a_windows_rows__tokens_of_whole_caches(kind: str, local: Queueing) -> None:
    """`sliding_window` of genai_config.json, as its builder writes it."""
    found = run(
        local,
        "return [await greedily(ids, { maxNewTokens: 20 }), await greedily([...ids, 3], { maxNewTokens: 9 })];",
        f"windows_{kind}",
        ids=windows.prompt_of(20),
    )
    prompt = windows.prompt_of(20)
    assert [f["ids"] for f in found] == [windows.greedy(prompt, 20, kind), windows.greedy([*prompt, 3], 9, kind)]


def test_sliding_window__of_inputs_of_a_fixed_size__is_refused_by_the_fields_name(local: Queueing) -> None:
    message = local("return TextGenerator.create('/e2e/local/fixed/').then(() => '', (error) => error.message);")
    assert "model.decoder.sliding_window.slide_key_value_cache is not followed" in message


def test_positions__fewer_than_the_folder_says__end_the_text(local: Queueing, folders: Path) -> None:
    put(folders / "short", decoder(positions=20).model)
    found = run(
        local,
        """
        const { ids, end } = await greedily(prompt, { maxNewTokens: 90 });
        return [own.contextLength, ids.length, end, await greedily(long).catch((error) => error.message)];
        """,
        "short",
        prompt=trimming.prompt_of(9),
        long=trimming.prompt_of(30),
    )
    assert found[:3] == [20, 11, "length"]
    assert "the prompt has 30 tokens, the model can look back at 20" in found[3]


def float_bits(values: np.ndarray[Any, Any], dtype: str) -> list[int]:
    """Elements as JavaScript keeps them where it has no array of the type."""
    if dtype == "float16":
        return [int(x) for x in values.astype(np.float16).view(np.uint16).reshape(-1)]
    return [int(x) for x in (values.astype(np.float32).view(np.uint32) >> 16).reshape(-1)]


def from_bits(bits: Sequence[int], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "float16":
        return np.array(bits, np.uint16).view(np.float16).astype(np.float32)
    return (np.array(bits, np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_turning__of_half_precision__product_in_float32_and_rounded_once(dtype: str, local: Queueing) -> None:
    """Batches and odd rows; float32 is what the texts above have."""
    rng = np.random.default_rng(3)
    values, turn = rng.normal(size=(2, 3, 9, 8)), rng.normal(size=(8, 8)).astype(np.float32)
    bits = float_bits(values, dtype)
    found = local(
        """
        const { Rewinder } = await import('/src/web/text/rewind.js');
        const rewinder = new Rewinder(undefined);
        const all = globalThis.Float16Array && type === 'float16' ? new Float16Array(Uint16Array.from(bits).buffer)
          : Uint16Array.from(bits);
        const made = [];
        for (const y of [await rewinder.turned(new Tensor(type, all, [2, 3, 9, 8]), 4, Float32Array.from(turn)),
          await rewinder.last(new Tensor(type, all, [2, 3, 9, 8]), 4)]) {
          const data = await y.getData(true);
          made.push([y.dims, [...new Uint16Array(data.buffer, data.byteOffset, data.length)]]);
        }
        await rewinder.release();
        return made;
        """,
        BATCHES_OF,
        bits=bits,
        type=dtype,
        turn=turn.reshape(-1).tolist(),
    )
    (dims, turned), (other, last) = found
    x = from_bits(bits, dtype).reshape(2, 3, 9, 8)[:, :, 4:]
    assert dims == other == [2, 3, 5, 8]
    step = 2**-10 if dtype == "float16" else 2**-7
    np.testing.assert_allclose(from_bits(turned, dtype).reshape(x.shape), x @ turn, rtol=step, atol=step)
    np.testing.assert_array_equal(from_bits(last, dtype).reshape(x.shape), x)


def test_text__second_visit__has_the_same_ids_without_python(
    context: BrowserContext, site: Path, folders: Path
) -> None:
    """What the graph says of its caches is kept with its plans."""
    prompt = "".join(chr(ord("0") + t) for t in trimming.prompt_of(9))
    greedy: dict[str, Any] = {"temperature": 0, "maxNewTokens": 90}
    asked = [(prompt, greedy), (prompt, {"temperature": 0.9, "seed": 3, "maxNewTokens": 60})]
    with Server(mounts(site) | {"/x/": folders}) as server, fresh_page(context, server.url) as (page, guard):
        guard.allow("404")
        visits = Visits(Script(page, guard), server, folders)
        first = texts(visits, "plain", *asked)
        assert visits.has_python()
        assert first["texts"][0] == trimming.greedy(trimming.prompt_of(9), 90)
        visits.without_pyodide()
        second = texts(visits, "plain", *asked)
        assert second["said"] == second["warned"] == [] and not visits.has_python()
        assert second["texts"] == first["texts"]
        guard.allow("404")
