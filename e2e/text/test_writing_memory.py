"""What twenty long texts leave allocated, aborted and given up in the middle: bytes on the GPU, buffers, and heaps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from e2e.harness.script import watched
from e2e.harness.writing import PROMPT, Writing

pytestmark = pytest.mark.unguarded

TOKENS = 200 if os.environ.get("PYRUNTIME_SOAK") else 60
"""Of each text: 200 take more than two minutes, and leave what 60 do."""

TEXTS = """
for (const i of Array(rounds).keys()) {
  const control = new AbortController();
  const options = { temperature: 0.8, topK: 20, seed: i, maxNewTokens: tokens, endTokens: [], signal: control.signal };
  let count = 0;
  await failure(async () => {
    for await (const piece of generator.generate(prompt, options)) {
      count += 1;
      if (count === Math.floor(0.45 * tokens) + i && i % 2) control.abort();
      if (count === Math.floor(0.6 * tokens) + i) break;
    }
  });
}
generator.forget();
"""

SLACK = 400_000
"""Bytes by which a heap may differ: code that is compiled anew, and what promises hold; not a text's ids."""

CACHES = 4 * 5 * 2 * 2 * 64 * 256
"""Bytes of the caches of a text of 256 tokens, which are kept for the next text; two texts may overlap."""


class Heaps:
    """JavaScript heaps of a page and of its workers, after the garbage was collected."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.session = page.context.new_cdp_session(page)
        self.workers: dict[str, str] = {}
        self.answers: dict[int, Any] = {}
        self.session.on("Target.attachedToTarget", self._attached)
        self.session.on("Target.receivedMessageFromTarget", self._received)
        self.session.send(
            "Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False}
        )

    def _attached(self, event: dict[str, Any]) -> None:
        self.workers[event["targetInfo"]["url"]] = event["sessionId"]

    def _received(self, event: dict[str, Any]) -> None:
        answer = json.loads(event["message"])
        self.answers[answer.get("id", 0)] = answer.get("result")

    def used(self) -> dict[str, int]:
        """Bytes by the name of the script; the page is ''."""
        self.session.send("HeapProfiler.collectGarbage")
        found = {"": int(self.session.send("Runtime.getHeapUsage")["usedSize"])}
        for url, session in self.workers.items():
            for method in ("HeapProfiler.collectGarbage", "Runtime.getHeapUsage"):
                number = len(self.answers) + 1000
                message = json.dumps({"id": number, "method": method})
                self.session.send("Target.sendMessageToTarget", {"sessionId": session, "message": message})
                while number not in self.answers:
                    self.page.wait_for_timeout(20)
            found[url.rsplit("/", 1)[-1]] = int(self.answers[number]["usedSize"])
        return found


@pytest.fixture(scope="module")
def script(browser: Browser, site_url: str) -> Iterator[Writing]:
    with watched(browser, site_url, Writing) as made:
        yield made


def test_memory__after_twenty_texts__is_where_it_was_after_the_second(script: Writing) -> None:
    heaps = Heaps(script.page)
    script(TEXTS, prompt=PROMPT, rounds=2, tokens=TOKENS)
    gpu, before = script.gpu_bytes(), heaps.used()
    assert {"", "worker.js"} <= before.keys()
    script(TEXTS, prompt=PROMPT, rounds=18, tokens=TOKENS)
    after, gpu_after = heaps.used(), script.gpu_bytes()
    assert gpu_after.pop("tensors") - gpu.pop("tensors") <= CACHES
    assert gpu_after == gpu
    grown = {name: size - before[name] for name, size in after.items() if name in before}
    print(grown, before, gpu)
    assert all(size < SLACK for size in grown.values()), grown
