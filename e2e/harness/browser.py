"""A headless Chromium whose pages can only reach the test server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Playwright, Route, expect

FLAGS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
    # Without a GPU the compositor would draw through SwiftShader's OpenGL; drawing on the CPU is faster.
    "--disable-gpu-compositing",
    # Pages of one context share a process, and with it compiled WebAssembly.
    "--process-per-site",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

UNGUARDED = "--enable-dawn-features=disable_robustness,disable_workgroup_init"
"""For `launch`: shaders neither clamp indices nor set workgroup memory to zero. They compile in half the time, run in
three quarters of it, and no kernel may need either. A kernel that reads far outside its tensors ends the browser."""

READY_MS = 60_000
"""How long a test waits for what the page is to show: Python starts in about three seconds, on a busy machine in 20."""


def launch(playwright: Playwright, executable: Path, *more: str) -> Browser:
    """Launch headless Chromium, with additional flags."""
    expect.set_options(timeout=READY_MS)
    return playwright.chromium.launch(executable_path=executable, headless=True, args=[*FLAGS, *more])


@dataclass
class Guard:
    """Watches a context or a page: aborts and records requests to other origins, and records console errors.

    Only those requests are intercepted: intercepting each file of a page would take a fifth of Python's start-up time.
    """

    origin: str
    foreign_requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    allowed: list[re.Pattern[str]] = field(default_factory=list)

    def watch(self, watched: BrowserContext | Page) -> None:
        """Watch all pages of a context, or one page of a shared context, with their workers."""
        watched.route(re.compile(f"^(?!{re.escape(self.origin)}|data:|blob:)"), self._on_request)
        watched.on("console", self._on_console)
        if isinstance(watched, Page):
            watched.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        else:
            watched.on("weberror", lambda error: self.complaints.append(f"uncaught: {error.error}"))

    def allow(self, pattern: str) -> None:
        """Allow console messages that match."""
        self.allowed.append(re.compile(pattern))

    def check(self) -> None:
        """Fail on anything recorded since the last check."""
        foreign, self.foreign_requests = self.foreign_requests, []
        complaints, self.complaints = self.complaints, []
        complaints = [text for text in complaints if not any(pattern.search(text) for pattern in self.allowed)]
        self.allowed.clear()
        assert not foreign, f"requests outside {self.origin}: {foreign}"
        assert not complaints, "console:\n" + "\n".join(complaints)

    def _on_request(self, route: Route) -> None:
        self.foreign_requests.append(route.request.url)
        route.abort()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in ADVICE):
            self.complaints.append(f"{message.type}: {message.text}")


ADVICE = ("Service Worker registration blocked by Playwright", "was preloaded using link preload but not used within")
"""Of Playwright; and of browsers to pages whose scripts start later than some seconds, as on a busy machine."""


@contextmanager
def guarded_page(
    browser: Browser, origin: str, *, service_workers: Literal["allow", "block"] = "block"
) -> Iterator[tuple[Page, Guard]]:
    """Yield a page in a separate context, and its guard, which is checked at the end.

    A service worker would handle requests before the guard sees them, so only tests of service workers allow one.
    """
    context = browser.new_context(service_workers=service_workers)
    context.set_default_timeout(READY_MS)
    guard = Guard(origin)
    guard.watch(context)
    with closing(context, browser):
        yield context.new_page(), guard
        guard.check()


@contextmanager
def closing(context: BrowserContext, browser: Browser) -> Iterator[None]:
    """Close the context at the end, unless its browser has ended."""
    try:
        yield
    finally:
        try:
            context.close()
        except Error:
            if browser.is_connected():
                raise


KEEP = """async () => {
  const libraries = (await (await fetch('/snapshot/manifest.json')).json())?.libraries ?? [];
  const urls = ['/pyodide/pyodide.asm.wasm', ...libraries.map(({ file }) => `/snapshot/${file}`)];
  globalThis.kept = await Promise.all(urls.map((url) => WebAssembly.compileStreaming(fetch(url))));
}"""


@contextmanager
def shared_context(browser: Browser, site_url: str) -> Iterator[BrowserContext]:
    """Yield a context for `fresh_page`, with a page that keeps Python's compiled WebAssembly alive for others."""
    context = browser.new_context(service_workers="block")
    context.set_default_timeout(READY_MS)
    with closing(context, browser):
        keeper = context.new_page()
        keeper.goto(site_url + "e2e/blank.html")
        keeper.evaluate(KEEP)
        yield context


@contextmanager
def fresh_page(context: BrowserContext, origin: str) -> Iterator[tuple[Page, Guard]]:
    """Yield a page that finds no stored data of others; its own data and the guard's allowances are removed with it.

    Python starts in two thirds of the CPU time that it takes in a separate context.
    """
    guard = Guard(origin)
    page = context.new_page()
    guard.watch(page)
    try:
        yield page, guard
        guard.check()
    finally:
        keeper = context.pages[0]
        page.close()
        context.unroute_all()
        context.clear_permissions()
        session = context.new_cdp_session(keeper)
        session.send("Storage.clearDataForOrigin", {"origin": origin.rstrip("/"), "storageTypes": "all"})
        session.detach()
