"""`memory` of decoders with caches on the GPU is what the browser has, in every state, with Python and without."""

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
from tests.genai.packed import Shape, packed_model, write_packed_folder
from tools.devkit.server import Server

DECODER = Shape(layers=2, heads=4, groups=2, size=16, inner=160, words=8192, bias=False, tied=True)
"""Logits have a tenth of the bytes of the weights."""

OTHERS = 64 << 10
"""Most bytes of the session that selects the next token before it is fed."""

BEGIN = """
await import('/e2e/watch.js');
globalThis.created = await InferenceSession.create('/x/model.onnx', { preferredOutputLocation: Object.fromEntries(
  presents.map((name) => [name, 'gpu-buffer'])), cachePlan: true });
const ints = (values) => new Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
const empty = () => Object.fromEntries(presents.map((name) => [name.replace('present', 'past_key_values'),
  new Tensor('float32', [], [1, 2, 0, 16])]));
globalThis.text = { length: 0, caches: empty(), token: 1 };
globalThis.step = async (count) => {
  text.length += count;
  const before = text.caches;
  const made = await created.run({ input_ids: ints(Array(count).fill(text.token)),
    attention_mask: ints(Array(text.length).fill(1)), ...before });
  const { data } = made.logits;
  const last = data.subarray(data.length - words);
  text.token = last.indexOf(Math.max(...last));
  text.caches = Object.fromEntries(presents.map((name) => [name.replace('present', 'past_key_values'), made[name]]));
  for (const cache of Object.values(before)) if (cache.location === 'gpu-buffer') cache.dispose();
};
globalThis.forget = () => { for (const cache of Object.values(text.caches)) cache.dispose(); };
"""
PRESENTS = [f"present.{i}.{kind}" for i in range(DECODER.layers) for kind in ("key", "value")]


class Looked(Visits):
    """Visits whose sessions' memory is compared with the browser's."""

    def there(self) -> dict[str, int]:
        """What the browser has, by label, in the thread of the sessions."""
        place = self.script.worker if self.has_python() else self.script.page
        made: dict[str, int] = place.evaluate("() => gpuBytes()")
        return made

    def check(self, session: str = "created") -> dict[str, Any]:
        for _ in range(20):  # a staging buffer may come or go between two looks
            told = "explain" if self.has_python() else "summary"  # a session without Python starts it to explain
            memory: dict[str, Any] = self.script(f"return (await {session}.{told}()).memory;")
            there = self.there()
            total, listed = sum(there.values()), sum(memory["allocated"].values())
            if abs(listed - total) <= 0.01 * total:
                return memory
        raise AssertionError((memory, there))

    def begin(self) -> None:
        """A visit, with an empty session."""
        self.script.page.goto(f"{self.url}e2e/blank.html")
        if not self.gone:
            self.script.watch()
        self.script(BEGIN, presents=PRESENTS, words=DECODER.words)

    gone = False
    """Whether Python cannot be started."""

    def without_pyodide(self) -> None:
        self.gone = True
        super().without_pyodide()


@pytest.fixture
def visits(context: BrowserContext, site: Path, tmp_path: Path) -> Iterator[Looked]:
    (tmp_path / "model.onnx").write_bytes(packed_model(DECODER))
    write_packed_folder(tmp_path / "text", DECODER)
    with Server(mounts(site) | {"/x/": tmp_path}) as server, fresh_page(context, server.url) as (page, guard):
        guard.allow("404")  # config.json of genai's folders, and the icon of a page that has none
        yield Looked(Script(page, guard), server, tmp_path)
        guard.allow("404")


def used(visits: Looked) -> None:
    """A text of two prompts and tokens, and what stays of it."""
    peaks = []
    for count in (8, 1, 1, 1, 1, 100, 1, 1, 600, 1, 1):
        visits.script(f"await step({count});")
        memory = visits.check()
        allocated = memory["allocated"]
        assert 0 <= allocated["activations"] - memory["peak"] <= OTHERS
        assert 0 <= allocated["weights"] + allocated["computed"] - memory["weights"] <= OTHERS
        peaks.append(memory["peak"])
    assert peaks == sorted(peaks) and peaks[0] < peaks[-1]
    caches = 2 * DECODER.layers * DECODER.groups * DECODER.size * 4 * 714
    assert memory["allocated"]["tensors"] >= caches
    visits.script("forget();")
    visits.check()


def test_memory__decoder_with_caches_on_the_gpu__is_the_browsers(visits: Looked) -> None:
    visits.begin()
    visits.check()
    used(visits)
    assert "logits" in visits.there(), "tokens are selected before they are fed"
    visits.script("await created.release();")
    visits.without_pyodide()
    visits.begin()
    assert not visits.has_python()
    visits.check()
    used(visits)
    assert not visits.has_python()
    visits.script("await created.release();")
    assert {label: size for label, size in visits.there().items() if label != "staging"} == {}


TEXT = """
const { TextGenerator } = await import('/src/web/pyruntime.js');
globalThis.generator = await TextGenerator.create('/x/text/', { sessionOptions: { cachePlan: true } });
"""


def test_memory__texts_with_samplers__is_the_browsers(visits: Looked) -> None:
    """Logits and tokens that are selected on the GPU, and another session."""
    for _ in range(2):
        visits.begin()
        visits.script("await step(4);")
        visits.script(TEXT)
        visits.check()
        for count, temperature in ((20, 0), (300, 0), (20, 0.9)):
            visits.script(
                """
                const how = { temperature, seed: 7, endTokens: [], maxNewTokens: count };
                for await (const _ of generator.generate(String.fromCharCode(...Array(9).fill(0x4E10)), how));
                """,
                count=count,
                temperature=temperature,
            )
            visits.check()
        visits.script("await generator.release();")
        visits.check()
        visits.script("forget(); await created.release();")
        visits.without_pyodide()
    assert not visits.has_python()
