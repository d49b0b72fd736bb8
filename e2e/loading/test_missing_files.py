"""A first visit where a file of the runtime is missing, or not what it should be: it works, or an error names it.

Each case has the site below an address of its own, so that nothing of it is in a cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from e2e.conftest import mounts
from e2e.harness.browser import guarded_page
from e2e.harness.script import Script
from tests.session import models
from tools.devkit.server import Handler, Server

WAYS = {
    "missing": r"cannot be fetched \(HTTP status 404\)",
    "page": "is a page of HTML",
    "broken": r"breaks off|cannot be fetched \(",
    "short": "is cut off or changed",
    "reset": r"cannot be fetched \(|breaks off",
    "type": "is sent as 'application/octet-stream'",
}
NEEDED = {
    "web/worker.js",
    "pyodide/pyodide.mjs",
    "pyodide/pyodide.asm.js",
} | {f"pyodide/{name}" for name in ("pyodide.asm.wasm", "pyodide-lock.json")}
PAGE = b"<!doctype html><title>app</title><div id=root></div>"

VISIT = """
globalThis.workers ??= (({ Worker }) => {
  const made = [];
  globalThis.Worker = class extends Worker {
    constructor(url, options) {
      super(url, options);
      made.push({ url: String(url), worker: this });
    }
  };
  return made;
})(globalThis);
const visit = async (base) => {
  const { InferenceSession, Tensor } = await import(`${base}web/pyruntime.js`);
  const late = new Promise((resolve) => { setTimeout(resolve, 120_000, 'nothing'); });
  const run = async () => {
    const session = await InferenceSession.create(decode(model));
    const { y } = await session.run({ x: new Tensor('float32', Float32Array.of(1, -2, 3, -4), [1, 4]) });
    return [...y.data].join();
  };
  const outcome = await Promise.race([run().catch(({ message }) => message), late]);
  for (const { url, worker } of workers) if (url.startsWith(new URL(`${base}web/`, location).href)) worker.terminate();
  return outcome;
};
"""


class _Handler(Handler):
    """Serves the site below `/WAY/NUMBER/`, with the file of that number as the way says."""

    def __init__(self, *args: object, files: list[str], **options: Any) -> None:
        self.files = files
        super().__init__(*args, **options)

    def _faulty(self) -> bool:
        way, _, rest = urlsplit(self.path).path[1:].partition("/")
        if way not in WAYS:
            return False
        number, _, path = rest.partition("/")
        self.path = f"/{path}"
        if path != self.files[int(number)]:
            return False
        data, kind = Path(self.translate_path(self.path)).read_bytes(), self.guess_type(path)
        half = data[: len(data) // 2]
        status = 404 if way == "missing" else 200
        body = {"missing": b"", "page": PAGE, "type": data}.get(way, half)
        if way == "reset":
            self.close_connection = True
            return True
        self.send_response(status)
        self.send_header("Content-Type", {"page": "text/html", "type": "application/octet-stream"}.get(way, kind))
        self.send_header("Content-Length", str(len(data if way == "broken" else body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
        self.close_connection = way == "broken"
        return True

    def do_GET(self) -> None:  # noqa: N802 (the name that http.server calls)
        if not self._faulty():
            super().do_GET()

    def do_HEAD(self) -> None:  # noqa: N802 (the name that http.server calls)
        if not self._faulty():
            super().do_HEAD()


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Those of a first visit after the page's own modules, by their paths."""
    return []


@pytest.fixture(scope="module")
def faulty(site: Path, files: list[str]) -> Iterator[Server]:
    with Server(mounts(site)) as server:
        old = server.http.RequestHandlerClass
        assert isinstance(old, partial)
        server.http.RequestHandlerClass = partial(_Handler, files=files, **old.keywords)
        yield server


@pytest.fixture
def script(browser: Browser, faulty: Server, files: list[str]) -> Iterator[Script]:
    with guarded_page(browser, faulty.url) as (page, guard):
        page.goto(f"{faulty.url}e2e/blank.html")
        script = Script(page, guard)
        if not files:
            asked: set[str] = set()
            context = page.context
            context.on("request", lambda request: asked.add(urlsplit(request.url).path[1:]))
            assert script(VISIT + "return visit('/');", model=models.double()) == "2,0,6,0"
            asked.remove("web/pyruntime.js")  # the page's own
            files += sorted(path for path in asked if path.startswith(("web/", "pyodide/", "snapshot/")))
        yield script
        guard.allow("")
        guard.foreign_requests.clear()  # Pyodide's other place


@pytest.mark.parametrize("way", WAYS)
def test_first_visit__each_of_its_files_at_fault__works_or_names_the_file(
    script: Script, files: list[str], way: str
) -> None:
    assert set(files) >= NEEDED
    found: list[str] = script(
        VISIT
        + """
        const outcomes = [];
        const next = async () => {
          for (let n = outcomes.length; n < count; n = outcomes.length) {
            outcomes.push('');
            outcomes[n] = await visit(`/${way}/${n}/`);
          }
        };
        await Promise.all([next(), next()]);
        return outcomes;
        """,
        way=way,
        count=len(files),
        model=models.double(),
    )
    works = {path for path, outcome in zip(files, found, strict=True) if outcome == "2,0,6,0"}
    said = {path: outcome for path, outcome in zip(files, found, strict=True) if path not in works}
    pattern = re.compile(WAYS[way])
    assert {path: text for path, text in said.items() if f"/{path} " not in text or not pattern.search(text)} == {}
    modules = {path for path in files if path.endswith(("js", "mjs"))}
    assert works & NEEDED == (NEEDED - modules if way == "type" else set())


@pytest.mark.parametrize("worker", [True, False])
def test_policy__without_wasm__is_named(browser: Browser, site: Path, worker: bool) -> None:
    with (
        Server(mounts(site), policy="script-src 'self'") as server,
        guarded_page(browser, server.url) as (page, guard),
    ):
        guard.allow("Content Security Policy|WebAssembly")
        page.goto(f"{server.url}e2e/blank.html")
        found = Script(page, guard)(
            "env.worker = worker; const create = () => InferenceSession.create(decode(model));"
            "return [await failure(create), await failure(preload)];",
            worker=worker,
            model=models.double(),
        )
    assert [error["message"].partition(":")[0] for error in found] == [
        "the Content-Security-Policy forbids Python's code"
    ] * 2
    assert all("add 'wasm-unsafe-eval' to its script-src" in error["message"] for error in found)


def test_worker__says_nothing_though_its_files_are_right__is_an_error_that_says_what_to_do(
    page: Page, site_url: str
) -> None:
    page.goto(f"{site_url}e2e/blank.html")
    found = page.evaluate(
        """async () => {
          const later = globalThis.setTimeout;
          globalThis.setTimeout = (work, ms) => later(work, ms < 5000 ? ms : 0); // no wait
          const { env, preload } = await import('/src/web/pyruntime.js');
          env.workerUrl = '/e2e/silent.js';
          return preload().then(() => 'ready', ({ name, message }) => `${name}: ${message}`);
        }"""
    )
    assert found.startswith("RuntimeException: pyruntime's worker does not begin, though its files are right")
    assert "set env.worker = false before the first session" in found
