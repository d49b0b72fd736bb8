"""TextGenerator's tokens chosen on the GPU: what that takes, the same texts as one by one, what is left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.test_generate import PROMPT, Writing
from tests.genai.packed import SHAPES, prompt_of, write_packed_folder
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

DATA = ROOT / "tests" / "genai" / "data"

COUNTS = "() => ({ ...submits, ...created, readbacks })"

QUEUED = """
const { pace } = await import('/web/generate/tokens.js');
const { Decoder } = await import('/web/generate/decoder.js');
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


class Queueing(Writing):
    """A script that says how many tokens are queued at once."""

    def __call__(self, body: str, given: dict[str, float] | None = None, **variables: Any) -> Any:
        return super().__call__(QUEUED + body, given=given or {}, **variables)


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Queueing]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        script = Queueing(page, guard)
        script.watch()
        yield script


def test_counts__of_forty_tokens_more__one_submit_a_token_and_one_readback_a_batch(script: Queueing) -> None:
    """Texts of 66 and of 106 tokens, both within what the caches are first given room for."""
    body = """
        const pieces = await write(prompt, { temperature: 0, maxNewTokens, endTokens: [] });
        generator.forget();
        return [steps, pieces.length];
        """
    counts = []
    for tokens in (106, 106, 66, 106):
        before = script.worker.evaluate(COUNTS)
        assert script(body, BATCHES_OF, prompt=PROMPT, maxNewTokens=tokens) == [[], tokens]
        after = script.worker.evaluate(COUNTS)
        counts.append({k: after[k] - before[k] for k in after})
    spent = {k: counts[3][k] - counts[2][k] for k in counts[3]}
    tokens, batches = 40, 5
    assert spent == {
        "all": SUBMITS * tokens,
        "withoutPython": SUBMITS * tokens,
        "readbacks": batches,
        "buffers": 0,
        "groups": 0,
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
