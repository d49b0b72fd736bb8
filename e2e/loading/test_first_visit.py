"""What a first visit fetches until its first result: requests and bytes, each within its budget."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.conftest import mounts
from e2e.harness.browser import guarded_page
from tools.devkit.server import Server
from tools.devkit.snapshot import SWITCH

MOST_REQUESTS = {"plan": 6, "page": 6, "python": 14}
"""Everything that is requested, page and model included."""

MOST_BYTES = {"plan": 70_000, "page": 112_000, "python": 9_500_000}
"""Without the model: what the site serves, as static hosts send it, which compress `ENCODED` by gzip."""

ENCODED = (".js", ".mjs", ".css", ".wasm", ".json", ".html", ".plan")

FAST = 2_300_000
"""Bytes that the fast encoding of the snapshot adds, which PYRUNTIME_SNAPSHOT=quick asks for."""

RUN = """async (plan) => {
    const { InferenceSession, Tensor } = await import('/web/pyruntime.js');
    const session = await InferenceSession.create('/models/digits.onnx', plan ? { plan } : {});
    const image = new Tensor('float32', new Float32Array(256), [1, 1, 16, 16]);
    const { probabilities } = await session.run({ image });
    return probabilities.data.length;
}"""


NOTE_ANSWER = """
globalThis.answered = new Promise((resolve) => {
    new MutationObserver(() => {
        if (!document.querySelector('.bar.best')) return;
        resolve(performance.getEntriesByType('resource').map(({ name }) => name));
    }).observe(document, { subtree: true, childList: true, attributes: true });
});
"""


def sent(site: Path, paths: list[str]) -> dict[str, int]:
    """Bytes of files of the site, without the model."""
    files = {path: site / path[1:] for path in paths if not path.endswith(".onnx")}
    content = {path: file.read_bytes() for path, file in files.items() if file.is_file()}
    return {path: len(gzip.compress(data) if path.endswith(ENCODED) else data) for path, data in content.items()}


SAVE_DATA = """Object.defineProperty(navigator, 'connection', {value: {saveData: true, effectiveType: '4g'}});"""


class Visit:
    """A first visit of the site; `asked` has the path of each request."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.asked: list[str] = []
        page.context.on("request", lambda request: self.asked.append(urlsplit(request.url).path))


@pytest.fixture
def visit(browser: Browser, site: Path) -> Iterator[Visit]:
    with Server(mounts(site)) as server, guarded_page(browser, server.url) as (page, guard):
        guard.allow("404")  # the icon of a page that has none
        yield Visit(page, server.url)


def test_first_visit__plan_next_to_the_model__is_within_the_budget(visit: Visit, site: Path) -> None:
    visit.page.goto(f"{visit.url}e2e/blank.html")
    assert visit.page.evaluate(RUN, "/models/digits.plan") == 10
    asked = [path for path in visit.asked if path != "/favicon.ico"]
    assert len(asked) <= MOST_REQUESTS["plan"], asked
    sizes = sent(site, asked)
    assert sum(sizes.values()) <= MOST_BYTES["plan"], sizes


def test_first_visit__demo_page__answers_within_the_budget_and_without_python(visit: Visit, site: Path) -> None:
    visit.page.add_init_script(NOTE_ANSWER)
    visit.page.goto(visit.url)
    before = [urlsplit(url).path for url in visit.page.evaluate("answered")]
    asked = ["/index.html", *dict.fromkeys(before)]
    assert len(asked) <= MOST_REQUESTS["page"], asked
    assert not [path for path in asked if path.endswith("worker.js") or path.startswith(("/pyodide", "/snapshot"))]
    sizes = sent(site, asked)
    assert sum(sizes.values()) <= MOST_BYTES["page"], sizes
    assert [path for path in before if visit.asked.count(path) != 1 and not path.endswith("icon.svg")] == []


def test_first_visit__python__is_within_the_budget(visit: Visit, site: Path) -> None:
    visit.page.goto(f"{visit.url}e2e/blank.html")
    assert visit.page.evaluate(RUN, "") == 10
    asked = [path for path in visit.asked if path != "/favicon.ico"]
    assert len(asked) <= MOST_REQUESTS["python"], asked
    switch = os.environ.get(SWITCH)
    sizes = sent(site, asked)
    assert sum(sizes.values()) <= MOST_BYTES["python"] + (FAST if switch == "quick" else 0), sizes
    data = [path for path in asked if not path.endswith((".js", ".mjs"))]  # page and worker share modules
    assert len(data) == len(set(data)), "a file was requested twice"


def test_first_visit__visitor_saves_data__python_waits_and_its_bytes_are_told(visit: Visit, site: Path) -> None:
    visit.page.add_init_script(NOTE_ANSWER + SAVE_DATA)
    visit.page.goto(visit.url)
    visit.page.evaluate("answered")
    state = visit.page.locator("#python-state")
    expect(state).to_contain_text("To load for text and your own models, when you need it")
    told = re.search(r"Python, ([\d.]+) MB", state.inner_text())
    assert told, state.inner_text()
    start = len(visit.asked)
    assert not [path for path in visit.asked if path.startswith(("/pyodide", "/snapshot"))]
    state.get_by_role("button", name="Load it now").click()
    expect(state).to_have_text("Python is ready, for text and your own models.")
    fetched = sent(site, [path for path in visit.asked[start:] if path.startswith(("/pyodide", "/snapshot"))])
    assert float(told[1]) == pytest.approx(sum(fetched.values()) / 1e6, rel=0.02), fetched


def test_page__everything_is_used__asks_for_no_file_of_packages(visit: Visit) -> None:
    visit.page.goto(visit.url)
    expect(visit.page.locator("#python-state")).to_have_text("Python is ready, for text and your own models.")
    visit.page.locator("#try-digits").click()
    report = visit.page.get_by_role("article", name="Report on digits.onnx")
    for name in ("Profile", "Measure GPU and CPU"):
        report.get_by_role("button", name=name).click()
        expect(report.get_by_role("button", name=name)).to_be_enabled()
    expect(report.get_by_role("region", name="Profile")).to_be_visible()
    visit.page.locator("#write-go").click()
    expect(visit.page.locator("#write-facts")).to_contain_text("tokens a second")
    later = ("/snapshot/packages.bin", "/pyodide/python_stdlib.zip")
    assert [path for path in visit.asked if path in later] == []
