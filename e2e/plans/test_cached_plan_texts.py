"""Text on the second visit: plans of the decoder and of what chooses tokens are kept, Python is not needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from e2e.conftest import mounts
from e2e.harness.browser import fresh_page
from e2e.harness.script import Script
from e2e.harness.visits import Visits
from tests.genai.packed import SHAPES, write_packed_folder
from tests.genai.precisions import SEEDS
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

pytestmark = pytest.mark.unguarded

WRITE = """
const { TextGenerator } = await import('/src/web/pyruntime.js');
const warned = [];
console.warn = (text) => warned.push(String(text));
const generator = await TextGenerator.create(`/x/${folder}/`, { kvCacheBits, sessionOptions: { cachePlan: true } });
const texts = [];
for (const [prompt, options] of prompts) {
  const ids = [];
  for await (const { id } of generator.generate(prompt, { endTokens: [], ...options })) ids.push(id);
  texts.push(ids);
}
await generator.release();
const fetched = performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname);
return { texts, said, warned, queued: fetched.includes('/src/web/worker/decoding.js') };
"""

PROMPT = "It is a truth universally acknowledged"
GREEDY: dict[str, Any] = {"temperature": 0}
WARM: dict[str, Any] = {"temperature": 0.9, "topK": 40, "seed": 7}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, each in a folder."""
    folder = tmp_path_factory.mktemp("texts")
    shutil.copytree(ROOT / "models" / "austen", folder / "austen")
    for kind, shape in SHAPES.items():
        (folder / kind).mkdir()
        write_packed_folder(folder / kind, shape, SEEDS[kind, "int4"])
    return folder


@pytest.fixture
def visits(context: BrowserContext, site: Path, folders: Path) -> Iterator[Visits]:
    with Server(mounts(site) | {"/x/": folders}) as server, fresh_page(context, server.url) as (page, guard):
        guard.allow("404")  # config.json of genai's folders, and the icon of a page that has none
        yield Visits(Script(page, guard), server, folders)
        guard.allow("404")


def texts(visits: Visits, folder: str, *prompts: tuple[str, dict[str, Any]], bits: int | None = None) -> Any:
    visits.script.guard.allow("404")
    return visits(WRITE, folder=folder, prompts=[list(p) for p in prompts], kvCacheBits=bits)


def test_same_prompt_again__second_visit__begins_with_what_is_kept_of_the_last_text(visits: Visits) -> None:
    """Caches are cut in their memory."""
    drawn = [(PROMPT, {**WARM, "seed": seed, "maxNewTokens": 12}) for seed in (7, 8)]
    apart = [texts(visits, "austen", one)["texts"][0] for one in drawn]
    visits.without_pyodide()
    found = texts(visits, "austen", *drawn, *drawn)
    assert found["texts"] == [*apart, *apart]
    assert found["said"] == found["warned"] == [] and not visits.has_python()


def test_packed_caches__second_visit__have_plans_of_their_own(visits: Visits) -> None:
    prompt = (PROMPT, {**GREEDY, "maxNewTokens": 8})
    first = texts(visits, "austen", prompt, bits=8)["texts"]
    visits.without_pyodide()
    found = texts(visits, "austen", prompt, bits=8)
    assert found["texts"] == first
    assert found["said"] == found["warned"] == [] and not visits.has_python()


@pytest.mark.parametrize("folder", ["austen", *SHAPES])
def test_text__second_visit__has_the_same_ids_without_python(folder: str, visits: Visits) -> None:
    """Greedy over the doubling of the caches' capacity, and drawn."""
    prompts = [(PROMPT, {**GREEDY, "maxNewTokens": 280}), (PROMPT, {**WARM, "maxNewTokens": 20})]
    first = texts(visits, folder, *prompts)
    assert visits.has_python()
    assert [len(ids) for ids in first["texts"]] == [280, 20]
    visits.without_pyodide()
    second = texts(visits, folder, *prompts)
    assert second["said"] == second["warned"] == [] and not visits.has_python()
    assert second["queued"], "tokens are chosen on the GPU"
    assert second["texts"] == first["texts"]


@pytest.mark.skipif(not os.environ.get("PYRUNTIME_SOAK"), reason="half a minute, near what the next test sees")
def test_text__longer_than_any_plan__goes_on_in_python_with_the_same_ids(visits: Visits) -> None:
    """The ranges of the plans kept end at 1,024 rows where a text was shorter: here one ends at the first chunk's."""
    short, long_prompt = (PROMPT, {**GREEDY, "maxNewTokens": 12}), " ".join([PROMPT] * 30)
    texts(visits, "austen", short)
    alone = [(PROMPT, {**WARM, "maxNewTokens": 30}), (long_prompt, {**GREEDY, "maxNewTokens": 20}), short]
    wanted = visits(
        WRITE.replace("cachePlan: true", "cachePlan: false"),
        folder="austen",
        prompts=list(map(list, alone)),
        kvCacheBits=None,
    )
    found = texts(visits, "austen", short, *alone)
    assert visits.has_python() and found["warned"] == []
    assert found["said"] and all("goes on with Python" in text for text in found["said"])
    assert found["texts"][1:] == wanted["texts"]
    assert found["texts"][0] == wanted["texts"][2]
    visits.without_pyodide()
    third = texts(visits, "austen", *alone)
    assert third["said"] == third["warned"] == [] and not visits.has_python()
    assert third["texts"] == wanted["texts"]


def test_text__that_outgrows_its_plan_on_the_way__goes_on_in_python_with_its_caches(visits: Visits) -> None:
    """Caches of more than 1,024 rows are another plan's."""
    short = (PROMPT, {**GREEDY, "maxNewTokens": 12})
    long_one = (PROMPT, {**GREEDY, "maxNewTokens": 1040})
    plain = WRITE.replace("cachePlan: true", "cachePlan: false")
    visits.script.guard.allow("404")
    wanted = visits(plain, folder="llama", prompts=[list(long_one)], kvCacheBits=None)["texts"]
    texts(visits, "llama", short)
    found = texts(visits, "llama", long_one)
    why = "pyruntime: no plan decodes this text: the session goes on with Python"  # told by the decoder and the sampler
    assert found["said"] == [why, why] and visits.has_python()
    assert found["warned"] == [] and found["queued"] and found["texts"] == wanted
    visits.without_pyodide()
    third = texts(visits, "llama", long_one)
    assert third["said"] == third["warned"] == [] and not visits.has_python() and third["texts"] == wanted


BREAKS = """
await import('/e2e/watch.js');
const { TextGenerator } = await import('/src/web/pyruntime.js');
const generator = await TextGenerator.create('/x/austen/', { sessionOptions: { cachePlan: true } });
const write = async (count, options = {}) => {
  const ids = [];
  const how = { temperature: 0, endTokens: [], maxNewTokens: 40, ...options };
  for await (const { id } of generator.generate(prompt, how)) {
    ids.push(id);
    if (ids.length === count) break;
  }
  return ids;
};
const texts = [await write(40), await write(9)];
const control = new AbortController();
const aborted = write(40, { signal: control.signal }).catch(({ name }) => name);
control.abort();
texts.push(await aborted);
texts.push(...await Promise.all([write(40), write(20)]));
generator.forget();
texts.push(await write(40));
await generator.release();
return { texts, said, left: globalThis.gpuBytes() };
"""


def test_texts__broken_off_aborted_and_at_once__leave_nothing_on_the_gpu(visits: Visits, site_server: Server) -> None:
    visits.server.mounts["/e2e/"] = site_server.mounts["/e2e/"]
    first = visits(BREAKS, prompt=PROMPT)
    visits.without_pyodide()
    second = visits(BREAKS, prompt=PROMPT)
    assert second["said"] == [] and not visits.has_python()
    whole = second["texts"][0]
    assert len(whole) == 40 and second["texts"] == [whole, whole[:9], "AbortError", whole, whole[:20], whole]
    assert first["texts"] == second["texts"]
    assert {k: v for k, v in second["left"].items() if k != "staging"} == {}


WIDGET = """
await import('/src/web/widget.js');
const element = document.createElement('pyruntime-model');
element.generateOptions = { seed: 1, maxNewTokens: 12 };
Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
const told = new Promise((resolve) => { element.addEventListener('text', ({ detail }) => resolve(detail.text)); });
document.body.append(element);
await new Promise((resolve, reject) => {
  element.addEventListener('load', resolve);
  element.addEventListener('error', ({ detail }) => reject(detail?.error ?? new Error('the widget failed')));
});
const area = element.shadowRoot.querySelector('textarea');
area.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
const text = await told;
const { usage } = await import('/src/web/plans/plan_cache.js');
for (const end = performance.now() + 60_000; (await usage()).plans < 3 && performance.now() < end;) {
  await new Promise((resolve) => { setTimeout(resolve, 20); });
}
return { text, said };
"""


def test_widget__second_visit__writes_without_python(visits: Visits) -> None:
    attributes = {"src": "/x/austen/", "input": "text", "prompt": "She was", "loading": "eager", "cache-plan": ""}
    first = visits(WIDGET, attributes=attributes)
    assert visits.has_python() and first["text"]
    visits.without_pyodide()
    second = visits(WIDGET, attributes=attributes)
    assert second == first and not visits.has_python()
