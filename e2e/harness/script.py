"""JavaScript in a page with web/pyruntime.js, and in its worker."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from playwright.sync_api import Browser, Page, Worker

from e2e.harness.browser import Guard, guarded_page

PRELUDE = """
const { InferenceSession, Tensor, adapterInfo, env, operators, preload } = await import('/src/web/pyruntime.js');
env.hostWork = 0; // these tests are about the GPU
const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const facts = ({ type, dims, data }) => (
  { type, dims: [...dims], array: data.constructor.name, values: [...data].map(String) });
const failure = async (work) => {
  try { await work(); } catch ({ name, message, traceback }) { return { name, message, traceback }; }
  return { name: 'nothing was thrown' };
};
"""

NOTHING_IS_IDLE = """
    const { setTimeout: later } = globalThis;
    globalThis.setTimeout = (work, ms, ...more) => (ms >= 5000 ? 0 : later(work, ms, ...more));
"""
"""For `add_init_script`: staging buffers and spare memory of results do not go, however long a busy machine takes."""

DOWNLOADS_ARE_UP = """
    const { downloads } = await import('/src/web/loading/downloads.js');
    const { makeDownloader } = await import('/src/web/api/port.js');
    downloads.start(new Promise(() => {}), (port) => makeDownloader(port, (message) => downloads.failed(message)));
    for (let tries = 0; !downloads.resources.length; tries++) {
        if (tries === 1500) throw new Error('no worker has come');
        await new Promise((resolve) => { setTimeout(resolve, 20); });
    }
"""
"""Waits for the worker that downloads. Sessions wait for it no longer than for Python: if that is up first, as on a
busy machine, files are downloaded where they are read."""

UNTIL_IT_HOLDS = """
    for (const end = performance.now() + 60_000; performance.now() < end;) {
        if (await holds()) return true;
        await new Promise((resolve) => { setTimeout(resolve, 10); });
    }
    return false;
"""

IDLE = """async () => {
    for (let turn = 0; turn < 12; turn++) {
        await Promise.all([
            scheduler.postTask(() => {}, { priority: 'background' }),
            fetch('/e2e/blank.html', { cache: 'no-store' }).then((answer) => answer.text()),
            navigator.gpu.requestAdapter(),
        ]);
    }
}"""
"""Ends when the thread had nothing else to do twelve times, after as many answers of the server and of the GPU process:
more than any step of a session needs. A busy machine delays these as much as the session."""

_Kind = TypeVar("_Kind", bound="Script")


class Script:
    """Runs JavaScript in a page; its worker serves all calls. Variables of type bytes are passed as base64."""

    def __init__(self, page: Page, guard: Guard) -> None:
        self.page = page
        self.guard = guard

    def __call__(self, body: str, **variables: Any) -> Any:
        plain = {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in variables.items()}
        names = ", ".join(plain)
        return self.page.evaluate(f"async ({{{names}}}) => {{ {PRELUDE} {body} }}", plain)

    @property
    def worker(self) -> Worker:
        """The worker that runs Python; it exists after the first session or `preload`."""
        return next(w for w in self.page.workers if w.url.endswith("worker.js"))

    def preload(self) -> None:
        """Start Python and the download worker."""
        self("await preload()")
        self.worker.evaluate("async () => {" + DOWNLOADS_ARE_UP + "}")

    def watch(self) -> None:
        """Install the tools of e2e/pages/watch.js and faults.js in the worker, for its next GPU devices."""
        self("await preload()")
        for module in ("watch", "faults"):
            self.worker.evaluate(f"() => import('/e2e/{module}.js').then(() => null)")

    def wait_for(self, condition: str) -> None:
        """Wait until this JavaScript expression holds in the worker.

        Raises:
            AssertionError: it does not within a minute.
        """
        held = self.worker.evaluate(f"async () => {{ const holds = () => {condition}; {UNTIL_IT_HOLDS} }}")
        assert held, f"never in the worker: {condition}"

    def wait_until_idle(self) -> None:
        """Wait until the worker can do no more without bytes that a server holds back: see `IDLE`."""
        self.worker.evaluate(IDLE)

    def wait_for_worker(self) -> None:
        """Wait until the worker has handled earlier requests, such as a cancellation without a reply."""
        self("await adapterInfo()")

    def gpu_bytes(self) -> dict[str, int]:
        """Return GPU bytes by label, without the staging buffers that web/gpu/player.js keeps; needs `watch`."""
        held: dict[str, int] = self.worker.evaluate("() => gpuBytes()")
        return {label: size for label, size in held.items() if label != "staging"}

    def lose_device(self, submit: int = 0) -> None:
        """Lose the worker's GPU device, now or at the given number of submits from now; needs `watch`."""
        self.worker.evaluate("submit => submit ? lostWithSubmit = submit : gpuDevices.at(-1).destroy()", submit)


@contextmanager
def watched(browser: Browser, site_url: str, kind: type[_Kind]) -> Iterator[_Kind]:
    """Yield a script of this kind in a separate page, with `watch` installed."""
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        script = kind(page, guard)
        script.watch()
        yield script
