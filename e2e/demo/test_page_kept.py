"""What is kept on the visitor's computer: a second visit needs no network, and the visitor sees and clears it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.demo.test_page_write import write
from e2e.harness.browser import Guard, guarded_page
from e2e.harness.page import open_page, wait_for
from e2e.loading.test_first_visit import SAVE_DATA
from tools.devkit.server import Handler, Server

KEPT = "the page and Python"

# Addresses of what the service worker keeps.
KEYS = "caches.open('pyruntime-site').then((cache) => cache.keys()).then((keys) => keys.map(({ url }) => url))"

# The service worker says so when it has kept all that the page named.
ALL_KEPT = """globalThis.allKept = new Promise((resolve) => {
  navigator.serviceWorker?.addEventListener('message', ({ data }) => { if (data?.kept !== undefined) resolve(true); });
})"""


def first_visit(page: Page, url: str) -> None:
    """Until all is kept."""
    page.add_init_script(ALL_KEPT)
    open_page(page, url)
    assert page.evaluate("allKept")
    expect(page.locator("#storage-text")).to_contain_text(KEPT)


class Counting:
    """Paths whose files a server was asked for; while it is `down`, it closes each connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        self.down = False
        for name in ("do_GET", "do_HEAD"):
            monkeypatch.setattr(Handler, name, self._counted(getattr(Handler, name)))

    def _counted(self, original: Callable[[Handler], None]) -> Callable[[Handler], None]:
        def do(handler: Handler) -> None:
            if handler.command == "GET":
                self.paths.append(handler.path)
            if self.down:
                handler.close_connection = True
            else:
                original(handler)

        return do

    def drain(self) -> list[str]:
        paths, self.paths = self.paths, []
        return paths


@pytest.fixture
def visited(browser: Browser, site: Path) -> Iterator[tuple[Page, Guard, Server]]:
    """The page at its first visit, on a server of its own, with its service worker; what it keeps is kept."""
    with (
        Server({"/": site}) as server,
        guarded_page(browser, server.url, service_workers="allow") as (page, guard),
    ):
        first_visit(page, server.url)
        yield page, guard, server


def test_visits__second_and_offline__need_no_network_until_it_is_cleared(
    visited: tuple[Page, Guard, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, guard, server = visited
    expect(page.locator("#storage-text")).to_contain_text(" MB")
    counting = Counting(monkeypatch)
    open_page(page, server.url)
    asked = [path for path in counting.drain() if path not in ("/integrity.json", "/service-worker.js")]
    assert asked == [], "the second visit asks for the list of files and nothing else"

    counting.down = True
    guard.allow("Failed to load resource|script's update|ERR_EMPTY_RESPONSE")
    open_page(page, server.url)
    assert {*counting.drain()} <= {"/integrity.json", "/service-worker.js"}

    page.locator("#storage-clear").click()
    expect(page.locator("#storage-text")).to_have_text("Nothing is kept.")
    assert page.evaluate("caches.keys()") == []
    assert page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0


# When the first answer was shown, and when Python's worker was made.
WATCH = """
    globalThis.times = { answer: null, python: null, said: [] };
    const { Worker: Plain } = globalThis;
    globalThis.Worker = class extends Plain {
        constructor(...rest) { super(...rest); times.python ??= performance.now(); }
    };
    const { info } = console;
    console.info = (text) => { times.said.push(String(text)); info(text); };
    new MutationObserver(() => {
        if (document.querySelector('.bar.best')) times.answer ??= performance.now();
    }).observe(document, { subtree: true, childList: true, attributes: true });
"""


def test_second_visit__first_answer__is_there_before_python_is_asked_for__offline_too(
    visited: tuple[Page, Guard, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, guard, server = visited
    page.add_init_script(WATCH)
    counting = Counting(monkeypatch)
    for offline in (False, True):
        counting.down = offline
        if offline:
            guard.allow("Failed to load resource|script's update|ERR_EMPTY_RESPONSE")
        open_page(page, server.url)
        expect(page.locator("#storage-text")).to_contain_text(KEPT)
        expect(page.locator("#python-state")).to_contain_text("Python is ready")
        times = page.evaluate("times")
        assert times["said"] == []
        assert 0 < times["answer"] < times["python"]
        expect(page.locator("#peak-memory")).to_contain_text("weights")


# A worker of Python's that is made and never answers.
SILENT = """
    globalThis.workers = 0;
    globalThis.Worker = class extends Worker {
        constructor(...rest) { super(...rest); workers += 1; }
        postMessage() {}
    };
"""


def test_writing__second_visit__begins_and_ends_while_python_is_not_up(visited: tuple[Page, Guard, Server]) -> None:
    page, _, server = visited
    section = page.locator("#write")
    first = write(section, seed=3)
    expect(page.locator("#storage-text")).to_contain_text("3 plans,")  # decoder, sampler and its model
    page.add_init_script(SILENT)
    page.goto(server.url)
    expect(page.locator(".bar.best .bar-digit")).to_have_text("3")
    assert write(section, seed=3) == first
    wait_for(page, "workers > 0")  # Python is requested after the page's first answer
    section.get_by_role("button", name="Another, with the next seed").click()
    expect(section.locator("#write-status")).to_contain_text("Written: ")


# Once Python is ready the page would keep its files, and shows what is kept.
SHOWN = """() => {
    const python = document.querySelector('#python-state');
    globalThis.shown = new Promise((resolve) => {
        new MutationObserver(() => { if (python.textContent.includes('is ready')) resolve(true); })
            .observe(document.querySelector('#storage-text'), { childList: true });
    });
}"""


def test_clearing__before_python_starts__nothing_is_kept_afterwards(browser: Browser, site: Path) -> None:
    with (
        Server({"/": site}) as server,
        guarded_page(browser, server.url, service_workers="allow") as (page, _),
    ):
        page.add_init_script(SAVE_DATA + ALL_KEPT)
        open_page(page, server.url)
        assert page.evaluate("allKept")
        expect(page.locator("#storage-text")).to_contain_text("Kept: the page, ")
        page.locator("#storage-clear").click()
        expect(page.locator("#storage-text")).to_have_text("Nothing is kept.")
        page.evaluate(SHOWN)
        page.get_by_role("button", name="Load it now").click()
        assert page.evaluate("shown")
        expect(page.locator("#storage-text")).to_have_text("Nothing is kept.")
        assert page.evaluate("caches.keys()") == []
        assert page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0


def test_build__newer_one__replaces_what_was_kept(browser: Browser, site: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(site, tmp_path / "site")
    with Server({"/": copy}) as server, guarded_page(browser, server.url, service_workers="allow") as (page, guard):
        guard.allow("404")  # the icon of a page that has none
        page.goto(f"{server.url}service-worker.js")  # a small page of the origin
        page.evaluate(
            """() => new Promise((resolve) => {
                navigator.serviceWorker.addEventListener('controllerchange', resolve);
                navigator.serviceWorker.register('service-worker.js');
            })"""
        )
        fetched = "fetch('web/demo.css').then((response) => response.text())"
        old = page.evaluate(fetched)
        for _ in range(50):
            if any("demo.css" in key for key in page.evaluate(KEYS)):
                break
            page.wait_for_timeout(100)
        (copy / "web" / "demo.css").write_text("/* new */")
        assert page.evaluate(fetched) == old
        manifest = json.loads((copy / "integrity.json").read_text())
        manifest["web/demo.css"] = "sha384-" + "f" * 64
        (copy / "integrity.json").write_text(json.dumps(manifest))
        page.goto(f"{server.url}service-worker.js?again")
        assert page.evaluate(fetched) == "/* new */"
        keys = page.evaluate(KEYS)
        assert not [key for key in keys if "demo.css" in key], "what is not what the list says is not kept"


def test_keeping__switched_off__nothing_is_kept_at_the_next_visit(browser: Browser, site_url: str) -> None:
    with guarded_page(browser, site_url, service_workers="allow") as (page, _):
        page.add_init_script("localStorage.setItem('pyruntime-keep', 'off')")
        open_page(page, site_url)
        expect(page.locator("#storage-text")).to_have_text("Nothing is kept.")
        expect(page.locator("#storage-keep")).not_to_be_checked()
        assert page.evaluate("caches.keys()") == []


def test_models__downloaded_once__come_from_this_computer(ready_page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch)
    script = """async () => {
        const { download } = await import('./src/web/ui/app/model/download.js');
        const { usage, clear, find } = await import('./src/web/ui/app/model/store.js');
        await clear();
        const url = new URL('models/enlarge3.onnx', document.baseURI);
        const { signal } = new AbortController();
        const [first, second] = [await download(url, { signal }), await download(url, { signal })];
        const kept = await usage();
        const offline = await find(url.href, null);
        const changed = await find(url.href, { etag: '', modified: 'later', size: first.blob.size });
        await clear();
        return { first: first.kept, second: second.kept, size: first.blob.size, kept, after: await usage(),
            offline: offline?.size, changed };
    }"""
    found = ready_page.evaluate(script)
    assert (found["first"], found["second"]) == (False, True)
    assert found["kept"] == {"disk": found["size"], "memory": 0}
    assert found["offline"] == found["size"]
    assert found["changed"] is None
    assert found["after"] == {"disk": 0, "memory": 0}
    assert counting.drain().count("/models/enlarge3.onnx") == 1


def test_models__no_capacity__stay_in_memory_and_the_page_says_so(ready_page: Page) -> None:
    script = """async () => {
        const { download } = await import('./src/web/ui/app/model/download.js');
        const { usage, clear } = await import('./src/web/ui/app/model/store.js');
        await clear();
        const { put } = Cache.prototype;
        Cache.prototype.put = async () => { throw new DOMException('full', 'QuotaExceededError'); };
        const url = new URL('models/enlarge3.onnx', document.baseURI);
        const { signal } = new AbortController();
        try {
            const [first, second] = [await download(url, { signal }), await download(url, { signal })];
            return { second: second.kept, size: first.blob.size, kept: await usage() };
        } finally {
            Cache.prototype.put = put;
        }
    }"""
    found = ready_page.evaluate(script)
    assert found["second"] is True
    assert found["kept"] == {"disk": 0, "memory": found["size"]}
    ready_page.locator("#storage-clear").click(force=True)
    ready_page.evaluate("import('./src/web/ui/app/model/store.js').then(({ clear }) => clear())")


def test_models__server_that_tells_nothing_of_a_file__is_asked_for_it_anew(ready_page: Page) -> None:
    script = """async () => {
        const { download } = await import('./src/web/ui/app/model/download.js');
        const { clear } = await import('./src/web/ui/app/model/store.js');
        const url = new URL('models/enlarge3.onnx', document.baseURI);
        const { signal } = new AbortController();
        const { fetch } = globalThis;
        globalThis.fetch = (url, options) => (
            options.method === 'HEAD' ? Promise.resolve(new Response(null, { status: 405 })) : fetch(url, options));
        try {
            await download(url, { signal });
            return (await download(url, { signal })).kept;
        } finally {
            globalThis.fetch = fetch;
            await clear();
        }
    }"""
    assert ready_page.evaluate(script) is False
