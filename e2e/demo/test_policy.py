"""The page, the widget and a session under the policy that SECURITY.md promises, and no other host is contacted.

The guard of every browser test aborts foreign requests and fails; e2e/test_smoke.py shows that it does. The last test
shows that a breach of the policy is seen. Without network after the first visit: e2e/demo/test_page_kept.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Response, expect

from e2e.harness.browser import Guard, guarded_page
from e2e.harness.page import open_page, wait_for
from e2e.harness.python import BrowserPython
from tests.session import models
from tools.devkit.server import Server

PROMISED = {
    "default-src": {"'none'"},
    "script-src": {"'self'", "'wasm-unsafe-eval'"},
    "connect-src": {"'self'"},
    "worker-src": {"'self'"},
    "style-src": {"'self'"},
    "img-src": {"'self'", "blob:"},
}

RUN = """async bytes => {
    const { InferenceSession, Tensor } = await import('/web/pyruntime.js');
    const session = await InferenceSession.create(new Uint8Array(bytes));
    const { y } = await session.run({ x: new Tensor('float32', Float32Array.of(1, -2, 3, -4), [1, 4]) });
    await session.release();
    return [...y.data];
}"""

HOSTILE = """async bytes => {
    const { InferenceSession } = await import('/web/pyruntime.js');
    try {
        await InferenceSession.create(new Uint8Array(bytes));
        return 'loaded';
    } catch (error) {
        return `${error.name}: ${error.message}`;
    }
}"""


BREACHES = """
globalThis.breaches = [];
document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI, sourceFile }) => {
    breaches.push(`${violatedDirective} ${blockedURI} ${sourceFile}`);
});
"""


def _policy(header: str) -> dict[str, set[str]]:
    parts = [part.split() for part in header.split(";") if part.strip()]
    return {name: set(sources) for name, *sources in parts}


def test_policy__of_the_page_and_its_worker__is_the_promised_one_without_isolation(page: Page, site_url: str) -> None:
    headers: dict[str, dict[str, str]] = {}

    def note(response: Response) -> None:
        headers.setdefault(response.url, response.headers)

    page.on("response", note)
    page.goto(site_url)
    expect(page.locator("#python-state")).to_contain_text("Python is ready")
    assert page.evaluate("crossOriginIsolated") is False
    documents = [url for url in headers if url == site_url or url.endswith("worker.js")]
    assert len(documents) == 2, list(headers)
    for url in documents:
        assert _policy(headers[url]["content-security-policy"]) == PROMISED
        assert "cross-origin-opener-policy" not in headers[url]
        assert "cross-origin-embedder-policy" not in headers[url]


@pytest.mark.parametrize("path", ["", "e2e/widget.html"], ids=["page", "widget"])
def test_policy__page_and_widget_until_their_first_result__break_no_rule(
    page: Page, guard: Guard, site_url: str, site_server: Server, tmp_path: Path, path: str
) -> None:
    (tmp_path / "double.onnx").write_bytes(models.double())
    site_server.mounts["/e2e/small/"] = tmp_path
    urls: list[str] = []
    page.context.on("request", lambda request: urls.append(request.url))
    page.add_init_script(BREACHES)
    if path:
        response = page.goto(site_url + path)
        assert response is not None and _policy(response.headers["content-security-policy"]) == PROMISED
        page.locator("#digits [part=input]").wait_for()
        canvas = page.locator("#digits .pad canvas")
        canvas.focus()
        for key in ("Space", *["ArrowDown"] * 10, "Space"):
            page.keyboard.press(key)
        expect(page.locator("#digits .best .name")).to_have_text(re.compile("[0-9]"))
    else:
        open_page(page, site_url)
    assert page.evaluate("breaches") == []
    assert page.evaluate("crossOriginIsolated") is False
    assert all(url.startswith((site_url, "data:", "blob:")) for url in urls), urls
    guard.check()


def test_policy__every_request_of_a_run__goes_to_the_site_itself(page: Page, guard: Guard, site_url: str) -> None:
    urls: list[str] = []
    page.context.on("request", lambda request: urls.append(request.url))
    page.goto(site_url + "e2e/blank.html")
    y = page.evaluate(RUN, list(models.double()))
    np.testing.assert_array_equal(y, [2, 0, 6, 0])
    assert len(urls) > 5
    assert all(url.startswith((site_url, "data:", "blob:")) for url in urls), urls
    guard.check()


def test_policy__external_data_of_a_url__is_refused_and_not_fetched(page: Page, guard: Guard, site_url: str) -> None:
    from tests.bad_models.corpus import cases

    page.goto(site_url + "e2e/blank.html")
    urls: list[str] = []
    page.context.on("request", lambda request: urls.append(request.url))
    outcome = page.evaluate(HOSTILE, list(cases()["external: URL"].data))
    assert re.match(r"(NoSuchFile|Fail): ", outcome), outcome
    assert not any("example.com" in url or "w.bin" in url for url in urls)
    guard.check()


def test_policy__inline_script_and_evaluated_text__do_not_run(page: Page, guard: Guard, site_url: str) -> None:
    guard.allow("Content Security Policy")
    page.add_init_script(BREACHES)
    page.goto(site_url + "e2e/blank.html")
    ran = page.evaluate("""() => {
        const script = document.createElement('script');
        script.textContent = 'globalThis.ran = true';
        document.body.append(script);
        return globalThis.ran ?? false;
    }""")
    assert ran is False
    wait_for(page, "breaches.length === 1")
    assert page.evaluate("breaches")[0].startswith("script-src")


def test_policy__python_whose_page_provides_no_javascript_of_ours__says_what_it_needs_and_the_cpu_runs(
    browser: Browser, site_url: str
) -> None:
    with guarded_page(browser, site_url) as (page, guard):
        python = BrowserPython(page, guard, site_url, alone=True)
        guard.allow("Content Security Policy")
        found = python(
            """
            import pyruntime as ort
            try:
                await ort.InferenceSession.create(bytes(model), None, ["WebGpuExecutionProvider"])
            except ort.EPFail as error:
                said = str(error)
            session = await ort.InferenceSession.create(bytes(model))
            (y,) = await session.run_async(None, {"x": x})
            {"said": said, "y": y, "providers": session.get_providers(), "warnings": session._warnings}
            """,
            model=models.double(),
            x=np.array([[1, -2, 3, -4]], np.float32),
        )
        guard.check()
    assert "'unsafe-eval'" in found["said"] and "registerJsModule('pyruntime_device'" in found["said"]
    assert found["providers"] == ["CPUExecutionProvider"] and "registerJsModule" in found["warnings"][0]
    np.testing.assert_array_equal(found["y"], [[2, 0, 6, 0]])
