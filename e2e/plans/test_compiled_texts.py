"""Text from a plan compiled ahead of time: the tokens that Python writes, before Python starts and afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from e2e.conftest import mounts
from e2e.harness.browser import fresh_page
from e2e.harness.script import Script
from e2e.harness.visits import Visits
from tools.devkit.server import Server

pytestmark = pytest.mark.unguarded

PLAN = "/models/austen/onnx/model_q4.plan"
WRITE = """
const module = await import('/src/web/pyruntime.js');
const generator = await module.TextGenerator.create('/models/austen/', { sessionOptions: plan ? { plan } : {} });
const texts = [];
for (const [prompt, options] of prompts) {
  if (prompt === null) {
    await module.preload();
    continue;
  }
  const pieces = [];
  for await (const { id, logProbability, top } of generator.generate(prompt, { endTokens: [], ...options })) {
    pieces.push([id, Math.round(logProbability * 1e3), top?.map((one) => one.id)]);
  }
  texts.push(pieces);
}
await generator.release();
return { texts, said };
"""
PROMPT = "It is a truth universally acknowledged"
GREEDY: dict[str, Any] = {"temperature": 0, "maxNewTokens": 3}
WARM: dict[str, Any] = {"temperature": 0.9, "topP": 0.95, "seed": 7, "maxNewTokens": 3, "topLogProbabilities": 4}
LONG = PROMPT * 3


@pytest.fixture
def visits(context: BrowserContext, site: Path) -> Iterator[Visits]:
    with Server(mounts(site)) as server, fresh_page(context, server.url) as (page, guard):
        guard.allow("404")  # the icon of a page that has none
        yield Visits(Script(page, guard), server, site)
        guard.allow("404")


def written(visits: Visits, plan: str | None, *prompts: tuple[str | None, dict[str, Any]]) -> Any:
    visits.script.guard.allow("404")
    return visits(WRITE, plan=plan, prompts=[list(p) for p in prompts])


def test_plan__no_python__writes_what_python_writes(visits: Visits) -> None:
    """Prompts of one token, of few and of many; the second goes on from what is left of the first."""
    prompts = [(PROMPT, GREEDY), (PROMPT, WARM), ("It", GREEDY), (LONG, WARM)]
    expected = written(visits, None, *prompts)["texts"]
    visits.without_pyodide()
    found = written(visits, PLAN, *prompts)
    assert found["texts"] == expected and found["said"] == []


def test_plan__python_comes_between_texts__goes_on_the_same(visits: Visits) -> None:
    prompts: list[tuple[str | None, dict[str, Any]]] = [(PROMPT, WARM), (None, {}), (f"{PROMPT},", WARM)]
    expected = written(visits, None, *prompts)["texts"]
    found = written(visits, PLAN, *prompts)
    assert found["texts"] == expected
    assert found["said"] == ["pyruntime: sampler() was asked for: the session goes on with Python"]


def test_plan__packed_caches__are_python_s(visits: Visits) -> None:
    body = WRITE.replace("sessionOptions", "kvCacheBits: 8, sessionOptions")
    visits.script.guard.allow("404")
    found = visits(body, plan=PLAN, prompts=[[PROMPT, GREEDY]])
    (said,) = found["said"]
    assert "the plan is for other options (pyruntime.kv_cache_bits)" in said and len(found["texts"][0]) == 3
