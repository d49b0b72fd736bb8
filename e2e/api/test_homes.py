"""Sessions in other places than a page: they work without being told how, or say what such a place lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from e2e.conftest import mounts
from e2e.harness.browser import guarded_page
from tests.session import models
from tools.devkit.server import Server

FRAME = """() => new Promise((resolve) => {
    addEventListener('message', ({ data }) => resolve(data));
    const frame = document.createElement('iframe');
    frame.sandbox = 'allow-scripts';
    frame.src = '/e2e/home_frame.html';
    document.body.append(frame);
})"""

SHARED = """() => new Promise((resolve) => {
    const { port } = new SharedWorker('/e2e/home_shared.js', { type: 'module' });
    port.onmessage = ({ data }) => resolve(data);
})"""

SERVICE = """() => new Promise((resolve, reject) => {
    navigator.serviceWorker.onmessage = ({ data }) => resolve(data);
    navigator.serviceWorker.register('/e2e/home_service.js', { type: 'module' })
        .then(({ installing }) => installing.postMessage(null), reject);
})"""


@pytest.fixture
def home(browser: Browser, site: Path, tmp_path: Path) -> Iterator[Page]:
    (tmp_path / "double.onnx").write_bytes(models.double())
    folders = {**mounts(site), "/small/": tmp_path}
    with (
        Server(folders, policy=None, shared=True) as server,
        guarded_page(browser, server.url, service_workers="allow") as (page, guard),
    ):
        page.goto(f"{server.url}e2e/blank.html")
        yield page
        guard.allow("sandbox")


@pytest.mark.parametrize("place", [FRAME, SHARED], ids=["sandboxed frame", "shared worker"])
def test_session__where_no_worker_can_be_made__runs_in_the_callers_thread(home: Page, place: str) -> None:
    assert home.evaluate(place) == "2,0,6,0"


def test_session__in_a_service_worker__says_where_it_can_be(home: Page) -> None:
    said = home.evaluate(SERVICE)
    assert said.startswith("pyruntime does not run in a service worker") and "offscreen document" in said


def test_worker__wanted_where_none_can_be_made__says_what_to_do(home: Page) -> None:
    said = home.evaluate("""async () => {
        const { env, preload } = await import('/src/web/pyruntime.js');
        delete globalThis.Worker;
        env.worker = true;
        return preload().catch(({ message }) => message);
    }""")
    assert said.startswith("no worker can be made here (") and "env.worker = false" in said
