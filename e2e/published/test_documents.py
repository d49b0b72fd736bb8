"""JavaScript and HTML in the documents run as they stand there, in pages of another origin; the site can be read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.demo.test_page_access import AXE
from e2e.harness.browser import guarded_page
from pyruntime.cli import main as pyruntime_command
from tests.docs.snippets import PAGES, code
from tools.devkit import fetch, pins
from tools.devkit.docs_site import build_docs
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

SITES = re.compile(r"https://YOUR-SITE/|http://localhost:8000/")
MODULE = """<script type="module">
window.running = (window.running ?? 0) + 1;
{code}
window.running -= 1;
</script>
"""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def home(site: Path) -> Iterator[Server]:
    with Server({"/": site}, shared=True) as server:
        yield server


@pytest.fixture
def bare(browser: Browser, tmp_path: Path) -> Iterator[tuple[Page, Path, str]]:
    """A page without a policy, the folder that its server serves, and its address."""
    model, plan = str(ROOT / "models" / "digits.onnx"), str(tmp_path / "digits.plan")
    pyruntime_command(["compile", model, "-o", plan, "--shape", "image=1,1,16,16"])
    with Server({"/": tmp_path}, policy=None) as other, guarded_page(browser, "http://127.0.0.1:") as (page, guard):
        guard.allow("favicon|404")
        yield page, tmp_path, other.url


@pytest.mark.parametrize("document", [page for page in PAGES if code(page, "js")], ids=name)
def test_javascript__of_a_document__runs(document: Path, home: Server, bare: tuple[Page, Path, str]) -> None:
    page, folder, url = bare
    modules = [MODULE.replace("{code}", SITES.sub(home.url, one)) for one in code(document, "js")]
    (folder / "index.html").write_text(f"<!doctype html><title>Code</title><body>{''.join(modules)}")
    page.goto(url)
    page.wait_for_function("window.running === 0", timeout=120_000)


@pytest.mark.parametrize("document", [page for page in PAGES if code(page, "html")], ids=name)
def test_html__of_a_document__draws_and_answers(document: Path, home: Server, bare: tuple[Page, Path, str]) -> None:
    blocks = [block for block in code(document, "html") if "YOUR-SITE" in block or "localhost" in block]
    if not blocks:
        pytest.skip("its page is of the notebooks' site: test_notebooks.py runs it")
    page, folder, url = bare
    pasted = SITES.sub(home.url, "\n".join(blocks))
    (folder / "index.html").write_text(f"<!doctype html><title>Bare</title><body>{pasted}")
    page.goto(url)
    page.locator("pyruntime-model .pad").first.wait_for()
    if "document.body.append" in pasted:
        expect(page.locator("body")).to_contain_text(re.compile(r"(0\.\d+(e-\d+)? ?){10}"))


@pytest.fixture(scope="module")
def documentation(site: Path) -> Iterator[Server]:
    with Server({"/": site, "/docs/": build_docs(Path(sys.executable))}) as server:
        yield server


def test_documentation__opened__runs_its_example_and_is_searched_without_another_server(
    browser: Browser, documentation: Server
) -> None:
    with guarded_page(browser, documentation.url) as (page, _):
        page.goto(documentation.url + "docs/index.html")
        page.locator("pyruntime-model .pad").wait_for()
        page.keyboard.press("Control+k")
        page.keyboard.type("run_with_iobinding")
        expect(page.get_by_role("link", name=re.compile("Sessions|IOBinding|Python")).first).to_be_visible()


@pytest.mark.parametrize(
    "name",
    ["index", "install", "javascript", "widget", "examples", "models", "performance", "troubleshooting",
     "api/sessions", "api/javascript-sessions", "sources/whisper_html"],
)  # fmt: skip
def test_documentation__light_and_dark__axe_finds_nothing_serious(
    browser: Browser, documentation: Server, name: str
) -> None:
    with guarded_page(browser, documentation.url) as (page, guard):
        guard.allow("favicon|404")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.goto(documentation.url + f"docs/{name}.html")
            page.evaluate((fetch.npm_package(pins.AXE) / "axe.min.js").read_text() + "; undefined")
            found = page.evaluate(AXE)
            assert not found, f"{scheme}:\n" + "\n".join(found)
