"""TextGenerator on the page's own model: the tokens of onnxruntime's CPU provider, sampling, stops, aborts, memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from playwright.sync_api import Browser

from e2e.demo.test_page_write import talking_folder, write_folder
from e2e.harness.browser import guarded_page
from e2e.harness.script import Script
from e2e.harness.writing import FOLDER, PROMPT, Loop, Writing
from tests.sampling import ALL
from tools.devkit.server import Server


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Script]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        script = Script(page, guard)
        script.watch()
        yield Writing(page, guard)


def log_softmax(logits: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    shifted = logits.astype(np.float64) - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


@pytest.mark.parametrize("prompt", ["It", PROMPT, (PROMPT + " that a single man in possession of ") * 24])
def test_greedy__prompts_of_one_few_and_many_tokens__are_the_tokens_of_onnxruntime(script: Script, prompt: str) -> None:
    found = script(
        """
        const pieces = await write(prompt, { temperature: 0, maxNewTokens: 48, endTokens: [], topLogProbabilities: 3 });
        generator.forget();
        return { prompt: generator.encode(prompt), ids: idsOf(pieces), text: textOf(pieces),
          decoded: generator.decode(idsOf(pieces)), logs: pieces.map(({ logProbability }) => logProbability),
          top: pieces.map(({ top }) => top.map(({ id }) => id)), end: pieces.at(-1).finishReason };
        """,
        prompt=prompt,
    )
    loop = Loop()
    logits = loop.step(found["prompt"])
    for i, id_ in enumerate(found["ids"]):
        order = np.argsort(-logits, kind="stable")
        assert id_ == order[0], f"token {i}"
        assert found["top"][i] == order[:3].tolist()
        np.testing.assert_allclose(found["logs"][i], log_softmax(logits)[id_], atol=1e-3)
        logits = loop.step([id_])
    assert len(found["ids"]) == 48
    assert found["end"] == "length"
    assert found["text"] == found["decoded"]


def test_seed__same_and_another__repeats_and_differs(script: Script) -> None:
    first, second, other = script(
        """
        const options = { temperature: 1, topP: 0.95, topK: 50, maxNewTokens: 24 };
        const texts = [];
        for (const seed of [7, 7, 8]) texts.push(textOf(await write(prompt, { ...options, seed })));
        return texts;
        """,
        prompt=PROMPT,
    )
    assert first == second
    assert first != other


def test_several_at_once__of_one_generator_and_of_two__are_as_alone(script: Script) -> None:
    found = script(
        """
        const other = await TextGenerator.create(new URL('/models/austen/', location.href), { dtype: 'q4' });
        const options = { temperature: 0, maxNewTokens: 16 };
        const alone = [textOf(await write('She was', options)), textOf(await write('He was', options))];
        const together = await Promise.all([
          write('She was', options), write('He was', options),
          write('She was', options, other), write('He was', options, other)]);
        await other.release();
        const released = await failure(() => write('She was', options, other));
        return { alone, together: together.map(textOf), released: released.message };
        """
    )
    assert found["together"] == found["alone"] * 2
    assert found["released"] == "the generator is released"


def test_stop_strings__within_and_across_tokens__cut_exactly(script: Script) -> None:
    found = script(
        """
        const options = { temperature: 0, maxNewTokens: 32, endTokens: [] };
        const whole = textOf(await write(prompt, options));
        const cuts = [];
        for (let at = 1; at < whole.length - 4; at += every) {
          const stop = whole.slice(at, at + 4);
          const pieces = await write(prompt, { ...options, stop: ['never to be seen', stop] });
          cuts.push([stop, textOf(pieces), pieces.at(-1).finishReason]);
        }
        const missed = await write(prompt, { ...options, stop: whole.slice(-6) + '!?' });
        return { whole, cuts, missed: textOf(missed), end: missed.at(-1).finishReason };
        """,
        prompt=PROMPT,
        every=1 if ALL else 7,
    )
    assert len(found["cuts"]) > 10
    for stop, text, reason in found["cuts"]:
        assert text == found["whole"][: found["whole"].index(stop)]
        assert reason == "stop"
    assert (found["missed"], found["end"]) == (found["whole"], "length")


def test_end_tokens__the_callers__end_the_text(script: Script) -> None:
    pieces = script(
        """
        const options = { temperature: 0, maxNewTokens: 12, endTokens: [] };
        const ids = idsOf(await write(prompt, options));
        const pieces = await write(prompt, { ...options, endTokens: [ids[5]] });
        return { first: ids.indexOf(ids[5]), ids: idsOf(pieces), end: pieces.at(-1).finishReason };
        """,
        prompt=PROMPT,
    )
    assert pieces["end"] == "end"
    assert len(pieces["ids"]) == pieces["first"] + 1


def test_prompt__that_begins_like_the_last_text__computes_only_what_is_new(script: Script) -> None:
    found = script(
        """
        const options = { temperature: 0, maxNewTokens: 10, endTokens: [] };
        generator.forget();
        const fresh = async (text) => {
          const pieces = await write(text, { ...options, keepPrompt: false });
          return { text: textOf(pieces), computed: pieces[0].promptTokens };
        };
        const kept = async (text) => {
          const pieces = await write(text, options);
          return { text: textOf(pieces), computed: pieces[0].promptTokens };
        };
        const longer = prompt + textOf(await write(prompt, { ...options, keepPrompt: false })) + ' and then she';
        const other = prompt + ', said Elizabeth';
        const expected = [await fresh(prompt), await fresh(longer), await fresh(other)];
        return { expected, found: [await kept(prompt), await kept(longer), await kept(other)] };
        """,
        prompt=PROMPT,
    )
    assert [turn["text"] for turn in found["found"]] == [turn["text"] for turn in found["expected"]]
    first, longer, other = (turn["computed"] for turn in found["found"])
    whole = [turn["computed"] for turn in found["expected"]]
    assert first == whole[0]
    assert 0 < longer < whole[1] - whole[0]
    assert 0 < other < whole[2]


def test_abort_and_break__in_the_middle__leave_nothing_on_the_gpu(script: Script) -> None:
    found = script(
        """
        generator.forget();
        const run = async (how) => {
          const control = new AbortController();
          const options = { signal: control.signal, seed: 1, maxNewTokens: 30 };
          let count = 0;
          try {
            for await (const { text } of generator.generate(prompt, options)) {
              count += 1;
              if (count === 5 && how === 'abort') control.abort(new Error('enough'));
              if (count === 5 && how === 'break') break;
            }
          } catch (error) {
            return [count, error.message];
          }
          return [count, 'no error'];
        };
        const outcomes = [await run('abort'), await run('break')];
        const held = [await counts()];
        for (let i = 0; i < 10; i++) outcomes.push(await run(i % 2 ? 'abort' : 'break'));
        held.push(await counts());
        return { outcomes, held };
        """,
        prompt=PROMPT,
    )
    assert found["outcomes"][:2] == [[5, "enough"], [5, "no error"]]
    assert found["outcomes"][2:] == [[5, "no error"], [5, "enough"]] * 5
    assert found["held"] == [0, 0]


def test_gpu_bytes__after_many_aborted_texts__are_where_they_were(script: Script) -> None:
    body = """
        for (let i = 0; i < rounds; i++) {
          const control = new AbortController();
          let count = 0;
          const options = { seed: i, maxNewTokens: 20, signal: control.signal };
          await failure(async () => {
            for await (const piece of generator.generate(prompt, options)) {
              count += 1;
              if (count === 10 && i % 2) control.abort();
            }
          });
          generator.forget();
        }
        """
    script(body, prompt=PROMPT, rounds=2)
    before = script.gpu_bytes()
    assert sum(before.values()) > 3_000_000, "the weights are there"
    for _ in range(2):
        script(body, prompt=PROMPT, rounds=6)
        after = script.gpu_bytes()
        # Whether a text begins before the last one's caches are back hangs on the machine; they are kept for the next.
        assert 0 <= after.pop("tensors") - before["tensors"] <= 12 * 16384
        assert after == {label: size for label, size in before.items() if label != "tensors"}


def test_characters__of_several_tokens__are_whole(script: Script) -> None:
    found = script(
        """
        const text = 'naïve 日本語 👩‍👩‍👧 é';
        const ids = generator.encode(text);
        let at = 0;
        // Each token forced, so that the model writes what no tokenizer of its own has whole.
        const force = (logits) => { logits.fill(-100); logits[ids[at++]] = 0; };
        const options = { temperature: 0, maxNewTokens: ids.length, endTokens: [], processLogits: force };
        const pieces = await write('So', options);
        return { text, parts: pieces.map(({ text }) => text), tokens: ids.length };
        """
    )
    assert "".join(found["parts"]) == found["text"]
    assert found["tokens"] > len(found["text"])
    assert not any("\ufffd" in part for part in found["parts"])


def test_draws__of_known_logits__are_distributed_as_their_softmax(script: Script) -> None:
    chances = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01])
    found = script(
        """
        const { draw, rulesOf, uniform, largest } = await import('/src/web/text/sampling.js');
        const count = (options, samples = 20000) => {
          const [rules, counts] = [rulesOf({}, options), Array(logits.length).fill(0)];
          for (let i = 0; i < samples; i++) counts[draw(Float32Array.from(logits), rules, () => uniform(i, 1))] += 1;
          return counts;
        };
        const many = Float32Array.from({ length: 5000 }, (_, i) => uniform(9, i));
        return { plain: count({}), halved: count({ temperature: 0.5 }), k: count({ topK: 3 }), p: count({ topP: 0.7 }),
          minP: count({ minP: 0.3 }), greedy: count({ temperature: 0 }, 10), kp: count({ topK: 4, topP: 0.5 }),
          many: [...many], order: largest(many, 300) };
        """,
        logits=np.log(chances).tolist(),
    )
    expected = {
        "plain": chances, "halved": chances**2, "k": chances * (np.arange(7) < 3), "p": chances * (np.arange(7) < 3),
        "minP": chances * (chances >= 0.12), "kp": chances * (np.arange(7) < 2),
    }  # fmt: skip
    for name, weights in expected.items():
        counts, share = np.array(found[name]), weights / weights.sum()
        assert counts[share == 0].sum() == 0, name
        kept = share > 0
        statistic = ((counts - 20000 * share)[kept] ** 2 / (20000 * share)[kept]).sum()
        assert statistic < 24, f"{name}: chi-square {statistic:.1f} of {kept.sum() - 1} degrees of freedom (p = 0.0005)"
    assert found["greedy"] == [10, 0, 0, 0, 0, 0, 0]
    assert found["order"] == np.argsort(-np.array(found["many"]), kind="stable")[:300].tolist()


def test_penalties__of_known_logits__are_as_transformers_and_openai_define_them(script: Script) -> None:
    found = script(
        """
        const { penalize, rulesOf } = await import('/src/web/text/sampling.js');
        const logits = Float32Array.of(1, -1, 2, 0.5);
        const rules = rulesOf({}, { repetitionPenalty: 2, presencePenalty: 0.5, frequencyPenalty: 0.25 });
        penalize(logits, rules, [0, 1, 2, 2], 2);
        return [...logits];
        """
    )
    assert found == [1 / 2, -1 * 2, 2 / 2 - 0.5 - 2 * 0.25, 0.5]


@pytest.mark.parametrize("open_axes", [(), (3,), (1, 3)], ids=["sized caches", "open components", "open heads"])
def test_genai_folder__with_weights_next_to_the_graph__writes_the_same(
    script: Script, site_server: Server, tmp_path: Path, open_axes: tuple[int, ...]
) -> None:
    model = onnx.load(FOLDER / "onnx" / "model_q4.onnx")
    known = json.loads((FOLDER / "config.json").read_text())
    for value in (*model.graph.input, *model.graph.output):
        for axis in open_axes if value.name.startswith(("past", "present")) else ():
            value.type.tensor_type.shape.dim[axis].dim_param = f"size_{axis}"
    names = [f"{part}_layer_%d.{kind}" for part in ("past", "present") for kind in ("key", "value")]
    for value in (*model.graph.input, *model.graph.output):
        value.name = renamed(value.name)
    for node in model.graph.node:
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    inputs = {"input_ids": "ids", "attention_mask": "mask", "past_key_names": names[0], "past_value_names": names[1]}
    outputs = {"logits": "scores", "present_key_names": names[2], "present_value_names": names[3]}
    sizes = {"num_key_value_heads": known["num_key_value_heads"], "head_size": known["head_dim"]}
    decoder = {"filename": "model.onnx", "inputs": inputs, "outputs": outputs, **sizes}
    parts = {"decoder": decoder, "context_length": 1024, "eos_token_id": [0]}
    config = {"model": parts, "search": {"do_sample": False}}
    (tmp_path / "genai_config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    site_server.mounts["/e2e/genai/"] = tmp_path
    script.guard.allow("404")  # config.json
    found = script(
        """
        const seen = new Set();
        const onProgress = ({ phase, file }) => { if (phase === 'file') seen.add(file); };
        const other = await TextGenerator.create('/e2e/genai/', { onProgress });
        const texts = [textOf(await write(prompt, { maxNewTokens: 12 }, other)), other.contextLength];
        await other.release();
        return [...texts, textOf(await write(prompt, { temperature: 0, maxNewTokens: 12 })), [...seen].sort()];
        """,
        prompt=PROMPT,
    )
    assert found[0] == found[2]
    assert found[1] == 1024
    assert found[3] == ["model.onnx", "model.onnx.data"]


def renamed(name: str) -> str:
    """A name of the model's, as another exporter may write it."""
    known = {"input_ids": "ids", "attention_mask": "mask", "logits": "scores"}
    return re.sub(r"^(past|present)(?:_key_values)?\.(\d+)\.(key|value)$", r"\1_layer_\2.\3", known.get(name, name))


def test_conversation__next_turn__is_rendered_by_the_template_and_computes_only_what_is_new(
    script: Script, site_server: Server, tmp_path: Path
) -> None:
    site_server.mounts["/e2e/talks/"] = write_folder(tmp_path, talking_folder())
    script.guard.allow("404")  # a template next to the configuration, which the page's own model has not
    found = script(
        """
        const talks = await TextGenerator.create('/e2e/talks/');
        const seen = [];
        const processLogits = (logits, ids) => { if (seen.length < 1) seen.push([...ids]); };
        const options = { temperature: 0, maxNewTokens: 8, endTokens: [], processLogits };
        const messages = [{ role: 'user', content: 'Who is Emma?' }];
        const first = await write(messages, options, talks);
        const prompts = [seen.pop()];
        messages.push({ role: 'assistant', content: textOf(first) }, { role: 'user', content: 'And Harriet?' });
        const second = await write(messages, options, talks);
        prompts.push(seen.pop());
        const fresh = (await failure(() => write(messages, options))).message;
        const texts = prompts.map((ids) => talks.decode(ids));
        await talks.release();
        return { texts, answer: textOf(first), computed: [first[0].promptTokens, second[0].promptTokens],
          lengths: prompts.map(({ length }) => length), fresh };
        """
    )
    first = "user: Who is Emma?\nassistant:"
    assert found["texts"][0] == first
    second = f"user: Who is Emma?\nassistant: {found['answer']}\nuser: And Harriet?\nassistant:"
    assert found["texts"][1] == second
    assert found["computed"][0] == found["lengths"][0]
    assert found["computed"][1] < found["lengths"][1] - 5
    assert "chat template" in found["fresh"], "the page's own model has none"


def test_create__aborted__rejects_with_the_reason_and_leaves_no_session(script: Script) -> None:
    script("await generator.encode('x');")
    before = script.gpu_bytes()
    found = script(
        """
        const reasons = [];
        for (const phase of [null, 'file', 'parse']) {
          const control = new AbortController();
          if (!phase) control.abort(new Error('at once'));
          const onProgress = (event) => { if (event.phase === phase) control.abort(new Error(`at ${phase}`)); };
          const options = { signal: control.signal, onProgress };
          reasons.push((await failure(() => TextGenerator.create('/models/austen/', options))).message);
        }
        return reasons;
        """
    )
    assert found == ["at once", "at file", "at parse"]
    script.wait_for_worker()
    assert script.gpu_bytes() == before


def test_wrong_options_and_folders__say_what_is_wrong(script: Script) -> None:
    script.guard.allow("404")
    messages = script(
        """
        const wrong = [
          () => write(prompt, { temperature: -1 }), () => write(prompt, { topP: 2 }),
          () => write([{ role: 'user', content: 'x' }]),
          () => TextGenerator.create('/models/'), () => TextGenerator.create('/models/austen/', { dtype: 'q3' }),
          () => TextGenerator.create('/models/austen/', { dtype: 'fp16' }), () => TextGenerator.create(5),
        ];
        const found = [];
        for (const work of wrong) found.push((await failure(work)).message);
        return found;
        """,
        prompt=PROMPT,
    )
    words = [
        "temperature",
        "topP",
        "chat template",
        "genai_config.json",
        "dtype",
        "onnx/model_fp16.onnx",
        "folder must be",
    ]
    for message, word in zip(messages, words, strict=True):
        assert word in message
