"""Text on the second visit: plans of the decoder and of what chooses tokens are kept, Python is not needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.script import Script
from e2e.harness.visits import Visits
from tests.genai.packed import SHAPES, write_packed_folder
from tests.genai.precisions import SEEDS
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

WRITE = """
const { TextGenerator } = await import('/web/pyruntime.js');
const order = [];
const generator = await TextGenerator.create(`/x/${folder}/`, { sessionOptions: { keepPlan: true } });
const texts = [];
for (const [prompt, options] of prompts) {
  const ids = [];
  for await (const { id } of generator.generate(prompt, { endTokens: [], ...options })) ids.push(id);
  texts.push(ids);
}
await generator.release();
return { texts, said };
"""

PROMPT = "It is a truth universally acknowledged"
GREEDY, WARM = {"temperature": 0}, {"temperature": 0.9, "topK": 40, "seed": 7}


@pytest.fixture
def visits(browser: Browser, site: Path, tmp_path: Path) -> Iterator[Visits]:
    shutil.copytree(ROOT / "models" / "austen", tmp_path / "austen")
    for kind, shape in SHAPES.items():
        (tmp_path / kind).mkdir()
        write_packed_folder(tmp_path / kind, shape, SEEDS[kind, "int4"])
    with Server({"/x/": tmp_path, "/": site}) as server, guarded_page(browser, server.url) as (page, guard):
        guard.allow("404")  # config.json of genai's folders, and the icon of a page that has none
        yield Visits(Script(page, guard), server.url, tmp_path)
        guard.allow("404")


def texts(visits: Visits, folder: str, *prompts: tuple[str, dict[str, Any]]) -> Any:
    visits.script.guard.allow("404")
    return visits(WRITE, folder=folder, prompts=[list(p) for p in prompts])


@pytest.mark.parametrize("folder", ["austen", *SHAPES])
def test_text__second_visit__has_the_same_ids_without_python(folder: str, visits: Visits) -> None:
    """Greedy over the doubling of the caches' room, and drawn."""
    prompts = [(PROMPT, {**GREEDY, "maxNewTokens": 280}), (PROMPT, {**WARM, "maxNewTokens": 20})]
    first = texts(visits, folder, *prompts)
    assert visits.python
    assert [len(ids) for ids in first["texts"]] == [280, 20]
    visits.without_pyodide()
    second = texts(visits, folder, *prompts)
    assert second["said"] == [] and not visits.python
    assert second["texts"] == first["texts"]
