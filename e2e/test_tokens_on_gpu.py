"""TextGenerator's tokens chosen on the GPU: what that takes, the same texts as one by one, what is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.script import Script
from e2e.test_generate import PROMPT, Writing

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
SUBMITS = 3


class Queueing(Writing):
    """A script that says how many tokens are queued at once."""

    def __call__(self, body: str, given: dict[str, float] | None = None, **variables: Any) -> Any:
        return super().__call__(QUEUED + body, given=given or {}, **variables)


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Script]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        script = Queueing(page, guard)
        script.watch()
        yield script


def test_counts__of_forty_tokens_more__one_submit_a_token_and_one_readback_a_batch(script: Script) -> None:
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
