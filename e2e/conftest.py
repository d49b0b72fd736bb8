"""Fixtures of the browser tests: the built site on a server, a guarded headless Chromium, Python inside it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from e2e.harness.browser import UNGUARDED, Guard, fresh_page, guarded_page, launch, shared_context
from e2e.harness.crashes import pytest_runtest_makereport, pytest_runtest_teardown
from e2e.harness.delivery import Delivery, Served
from e2e.harness.page import DESKTOP, open_page
from e2e.harness.python import BrowserPython
from e2e.harness.script import Script, watched
from tests.selection import is_left_out, leave_out, longest_first, pytest_terminal_summary, pytest_testnodedown
from tools.devkit import site as building
from tools.devkit.chromium import ensure_chromium
from tools.devkit.server import Server
from tools.devkit.site import CONTENT_SECURITY_POLICY, build_site

__all__ = [
    "pytest_runtest_makereport", "pytest_runtest_teardown", "pytest_terminal_summary", "pytest_testnodedown",
]  # fmt: skip  # hooks

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return is_left_out(collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items, "e2e")
    longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """A test that ended its process has failed. By files, xdist would hand it to the next process, without end."""
    for tests in sched.workqueue.values():
        if crashitem in tests:
            tests[crashitem] = True


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the built site, so that a build during the tests changes nothing under their feet."""
    return shutil.copytree(build_site(Path(sys.executable)), tmp_path_factory.mktemp("site") / "dist")


def mounts(site: Path) -> dict[str, Path]:
    """What the tests' servers serve: the site, also below `src/` with web/ as it is, `e2e/` (pages/) and `harness/`."""
    return building.mounts(site) | {"/e2e/": HERE / "pages", "/harness/": HERE / "harness"}


@pytest.fixture(scope="session")
def site_server(site: Path) -> Iterator[Server]:
    """Serves the site. A test may add to `mounts`."""
    with Server(mounts(site)) as server:
        yield server


@pytest.fixture(scope="session")
def lenient_server(site: Path) -> Iterator[Server]:
    """The same for pages of others, which may evaluate text."""
    policy = CONTENT_SECURITY_POLICY.replace("'wasm-unsafe-eval'", "'unsafe-eval'")
    with Server(mounts(site), policy=policy) as server:
        yield server


@pytest.fixture(scope="module")
def delivery(site: Path) -> Iterator[Delivery]:
    """Serves the site, and single files as their tests say. A file of tests takes it by a `site_url` of its own."""
    with Delivery(mounts(site)) as server:
        yield server


@pytest.fixture
def served(delivery: Delivery) -> Iterator[dict[str, Served]]:
    """The files of `delivery` by the path of their URL: none at first."""
    delivery.served.clear()
    yield delivery.served
    for file in delivery.served.values():
        file.opened.set()
    delivery.served.clear()


@pytest.fixture(scope="session")
def site_url(site_server: Server) -> str:
    return site_server.url


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


def _of_file(request: pytest.FixtureRequest, what: str) -> Any:
    """The guarded or the unguarded one, as the file of tests is marked."""
    kind = "unguarded" if request.node.get_closest_marker("unguarded") else "guarded"
    return request.getfixturevalue(f"{kind}_{what}")


@pytest.fixture(scope="session")
def guarded_browser(playwright: Playwright) -> Iterator[Browser]:
    with launch(playwright, ensure_chromium(Path(sys.executable))) as browser:
        yield browser


@pytest.fixture(scope="session")
def unguarded_browser(playwright: Playwright) -> Iterator[Browser]:
    with launch(playwright, ensure_chromium(Path(sys.executable)), UNGUARDED) as browser:
        yield browser


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Browser:
    made: Browser = _of_file(request, "browser")
    return made


@pytest.fixture(scope="session")
def guarded_context(guarded_browser: Browser, site_server: Server) -> Iterator[BrowserContext]:
    with shared_context(guarded_browser, site_server.url) as context:
        yield context


@pytest.fixture(scope="session")
def unguarded_context(unguarded_browser: Browser, site_server: Server) -> Iterator[BrowserContext]:
    with shared_context(unguarded_browser, site_server.url) as context:
        yield context


@pytest.fixture(scope="module")
def context(request: pytest.FixtureRequest) -> BrowserContext:
    made: BrowserContext = _of_file(request, "context")
    return made


@pytest.fixture
def page_and_guard(context: BrowserContext, site_url: str) -> Iterator[tuple[Page, Guard]]:
    with fresh_page(context, site_url) as pair:
        yield pair


@pytest.fixture
def page(page_and_guard: tuple[Page, Guard]) -> Page:
    """A fresh page. Foreign requests and console errors fail the test that made them."""
    return page_and_guard[0]


@pytest.fixture
def guard(page_and_guard: tuple[Page, Guard]) -> Guard:
    """The guard of `page`, for tests that expect a complaint."""
    return page_and_guard[1]


@pytest.fixture(scope="session")
def guarded_python(guarded_browser: Browser, site_url: str) -> Iterator[BrowserPython]:
    with guarded_page(guarded_browser, site_url) as (page, guard):
        yield BrowserPython(page, guard, site_url)


@pytest.fixture(scope="session")
def unguarded_python(unguarded_browser: Browser, site_url: str) -> Iterator[BrowserPython]:
    with guarded_page(unguarded_browser, site_url) as (page, guard):
        yield BrowserPython(page, guard, site_url)


@pytest.fixture(scope="module")
def shared_python(request: pytest.FixtureRequest) -> BrowserPython:
    made: BrowserPython = _of_file(request, "python")
    return made


@pytest.fixture
def python_in_browser(shared_python: BrowserPython) -> Iterator[BrowserPython]:
    """Run Python source in Pyodide, in a worker like the page's, with the built wheel."""
    yield shared_python
    shared_python.guard.check()


@pytest.fixture(scope="session")
def shared_lone_python(guarded_browser: Browser, lenient_server: Server) -> Iterator[BrowserPython]:
    with guarded_page(guarded_browser, lenient_server.url) as (page, guard):
        yield BrowserPython(page, guard, lenient_server.url, alone=True)


@pytest.fixture(params=["page", "wheel"])
def any_python(request: pytest.FixtureRequest) -> Iterator[BrowserPython]:
    """`python_in_browser` twice: web/gpu/device.js is the page's, and, as in a notebook, the wheel's."""
    python: BrowserPython = request.getfixturevalue(
        "shared_python" if request.param == "page" else "shared_lone_python"
    )
    yield python
    python.guard.check()


@pytest.fixture(scope="session")
def shared_page(guarded_browser: Browser, site_url: str) -> Iterator[tuple[Page, Guard]]:
    with guarded_page(guarded_browser, site_url) as (page, guard):
        page.set_viewport_size(DESKTOP)
        open_page(page, site_url)
        yield page, guard


@pytest.fixture
def ready_page(shared_page: tuple[Page, Guard]) -> Iterator[Page]:
    """The page, loaded, nothing drawn. One for all tests that ask for it, checked by the guard after each."""
    page, guard = shared_page
    page.evaluate("scrollTo(0, 0)")
    if page.locator("#pad-clear").is_enabled():
        page.locator("#pad-clear").click()
    expect(page.locator(".bar.best")).to_have_count(0)
    yield page
    guard.check()


@pytest.fixture(scope="module")
def shared_script(context: BrowserContext, site_url: str) -> Iterator[Script]:
    """One page for all tests of a file; a file may define its own."""
    with fresh_page(context, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        yield Script(page, guard)


@pytest.fixture
def script(shared_script: Script) -> Iterator[Script]:
    """Run JavaScript in a page that has web/pyruntime.js; checked by the guard after each test."""
    yield shared_script
    shared_script.guard.check()


@pytest.fixture(scope="module")
def shared_watched_script(browser: Browser, site_url: str) -> Iterator[Script]:
    """One page for all tests of a file, whose worker has the tools of e2e/pages/watch.js and faults.js."""
    with watched(browser, site_url, Script) as made:
        yield made


@pytest.fixture
def watched_script(shared_watched_script: Script) -> Iterator[Script]:
    """A watched script, whose devices may be lost; nothing is left on the GPU after the test."""
    script = shared_watched_script
    yield script
    script.wait_for_worker()
    script.guard.allow("RuntimeWarning: the GPU device was lost|await self._replace")
    script.guard.check()
    assert script.gpu_bytes() == {}
