"""What a first visit fetches until its first result: requests and bytes, each within its budget."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from e2e.conftest import mounts
from e2e.harness.browser import guarded_page
from pyruntime.session.aot.compile_ahead import compile_model
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

DIGITS = ROOT / "models" / "digits.onnx"

MOST_REQUESTS = {"plan": 6, "python": 14}
"""Everything that is requested, page and model included."""

MOST_BYTES = 90_000
"""With a plan: page, scripts and plan compressed with gzip, as static hosts send them; without the model."""

RUN = """async (plan) => {
    const { InferenceSession, Tensor } = await import('/web/pyruntime.js');
    const session = await InferenceSession.create('/models/digits.onnx', plan ? { plan } : {});
    const { probabilities } = await session.run({ image: new Tensor('float32', new Float32Array(256), [1, 1, 16, 16]) });
    return probabilities.data.length;
}"""


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


def test_first_visit__plan_next_to_the_model__is_within_the_budget(visit: Visit, site: Path, tmp_path: Path) -> None:
    (tmp_path / "digits.plan").write_bytes(compile_model(DIGITS))
    visit.page.goto(f"{visit.url}e2e/blank.html")
    assert visit.page.evaluate(RUN, "/models/digits.plan") == 10
    asked = [path for path in visit.asked if path != "/favicon.ico"]
    assert len(asked) <= MOST_REQUESTS["plan"], asked
    files = mounts(site)
    sizes = {path: len(gzip.compress((site / path[1:]).read_bytes())) for path in asked if path.startswith("/web/")}
    assert sum(sizes.values()) + (tmp_path / "digits.plan").stat().st_size <= MOST_BYTES, sizes


def test_first_visit__python__is_within_the_budget(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}e2e/blank.html")
    assert visit.page.evaluate(RUN, "") == 10
    asked = [path for path in visit.asked if path != "/favicon.ico"]
    assert len(asked) <= MOST_REQUESTS["python"], asked
