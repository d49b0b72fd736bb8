"""The ground the other browser tests stand on: the guard notices, Python starts, WebGPU computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page

from e2e.harness.browser import Guard, fresh_page, guarded_page
from e2e.harness.python import BrowserPython, BrowserPythonError
from tools.devkit.server import Server

FOREIGN = "https://example.com/model.onnx"

Opened = AbstractContextManager[tuple[Page, Guard]]


def ask_worker(page: Page, message: str) -> object:
    """What pages/fetching_worker.js answers."""
    script = """message => new Promise(resolve => {
        const worker = new Worker('fetching_worker.js', {type: 'module'});
        worker.onmessage = event => resolve(event.data);
        worker.postMessage(message);
    })"""
    return page.evaluate(script, message)


@pytest.fixture(scope="module")
def open_url() -> Iterator[str]:
    """The test pages without a Content-Security-Policy, which would stop a foreign request before the guard sees it."""
    with Server({"/": Path(__file__).parent / "pages"}, policy=None) as server:
        yield server.url


@pytest.fixture(params=[guarded_page, fresh_page])
def opened(request: pytest.FixtureRequest, open_url: str) -> Opened:
    """A page of either kind, still to be entered."""
    opener = request.getfixturevalue("browser" if request.param is guarded_page else "context")
    pair: Opened = request.param(opener, open_url)
    return pair


def test_guard__page_fetches_other_origin__aborts_and_fails(opened: Opened, open_url: str) -> None:
    with pytest.raises(AssertionError, match=r"example\.com"), opened as (page, _):
        page.goto(open_url + "blank.html")
        assert page.evaluate("url => fetch(url).then(() => 'answered', () => 'aborted')", FOREIGN) == "aborted"


def test_guard__worker_fetches_other_origin__aborts_and_fails(opened: Opened, open_url: str) -> None:
    with pytest.raises(AssertionError, match=r"example\.com"), opened as (page, _):
        page.goto(open_url + "blank.html")
        assert ask_worker(page, FOREIGN) == "aborted"


def test_guard__worker_logs_an_error__fails(opened: Opened, open_url: str) -> None:
    with pytest.raises(AssertionError, match="positive control"), opened as (page, _):
        page.goto(open_url + "blank.html")
        with page.expect_console_message(lambda message: "positive control" in message.text):
            assert ask_worker(page, "log") == "logged"


def test_guard__page_throws__fails(opened: Opened, open_url: str) -> None:
    with pytest.raises(AssertionError, match="uncaught on purpose"), opened as (page, _):
        page.goto(open_url + "blank.html")
        with page.expect_event("pageerror"):
            page.evaluate("() => { setTimeout(() => { throw new Error('uncaught on purpose'); }); }")


def test_fresh_page__after_another_that_stored_something__finds_nothing(context: BrowserContext, site_url: str) -> None:
    stored = """async () => {
        localStorage.setItem('left', 'over');
        await (await caches.open('left')).put('/left', new Response('over'));
        await new Promise((done) => { indexedDB.open('left').onsuccess = done; });
    }"""
    found = "async () => [localStorage.length, (await caches.keys()).length, (await indexedDB.databases()).length]"
    for _ in range(2):
        with fresh_page(context, site_url) as (page, _guard):
            page.goto(site_url + "e2e/blank.html")
            assert page.evaluate(found) == [0, 0, 0]
            page.evaluate(stored)
            assert page.evaluate(found) == [1, 1, 1]


def test_policy__eval_in_a_worker__is_refused(page: Page, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    assert ask_worker(page, "eval") == "EvalError"


def test_policy__page__is_not_cross_origin_isolated(page: Page, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate("crossOriginIsolated") is False


def test_python_in_browser__last_expression__comes_back(python_in_browser: BrowserPython) -> None:
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    result = python_in_browser(
        """
        import asyncio, sys
        await asyncio.sleep(0)
        {"python": sys.version_info[:2], "platform": sys.platform, "doubled": 2 * x}
        """,
        x=x,
    )
    assert result["python"] == [3, 13]
    assert result["platform"] == "emscripten"
    np.testing.assert_array_equal(result["doubled"], 2 * x)
    assert result["doubled"].dtype == np.int16


def test_python_in_browser__exception__raises_with_its_traceback(python_in_browser: BrowserPython) -> None:
    with pytest.raises(BrowserPythonError, match="ZeroDivisionError"):
        python_in_browser("1 // 0")


def test_wheel__installed_without_micropip__has_the_shaders(python_in_browser: BrowserPython) -> None:
    result = python_in_browser(
        """
        import importlib.metadata, importlib.resources, sys
        import pyruntime
        shaders = importlib.resources.files("pyruntime") / "shaders"
        {
            "version": importlib.metadata.version("pyruntime-webgpu"),
            "shaders": [path.name for path in shaders.iterdir()],
            "micropip": "micropip" in sys.modules,
        }
        """
    )
    assert result["version"]
    assert any(name.endswith(".wgsl") for name in result["shaders"]) or "lib" in result["shaders"]
    assert not result["micropip"]


def test_stack_switching__in_the_worker__is_possible(python_in_browser: BrowserPython) -> None:
    result = python_in_browser(
        """
        import asyncio
        from pyodide.ffi import can_run_sync, run_sync
        async def answer():
            await asyncio.sleep(0)
            return 42
        def plain_function():
            return run_sync(answer())
        [can_run_sync(), plain_function()]
        """
    )
    assert result == [True, 42]


def test_webgpu__adapter_and_device__are_there(python_in_browser: BrowserPython) -> None:
    result = python_in_browser(
        """
        from js import navigator
        adapter = await navigator.gpu.requestAdapter()
        device = await adapter.requestDevice()
        buffers = device.limits.maxStorageBuffersPerShaderStage
        device.destroy()
        {"vendor": adapter.info.vendor, "buffers": buffers}
        """
    )
    assert result["vendor"]
    assert result["buffers"] >= 8
