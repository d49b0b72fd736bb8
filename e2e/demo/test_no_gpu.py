"""Visitors without WebGPU: one sentence that names the setting of their browser, before anything is loaded."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
CHROMIUM = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0"
AGENTS = {
    "Firefox on Linux": ("Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0", "about:config"),
    "Chrome on Linux": (f"Mozilla/5.0 (X11; Linux x86_64) {CHROMIUM} Safari/537.36", "chrome://flags"),
    "Chrome on Windows": (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {CHROMIUM} Safari/537.36", "Chrome"),
    "Chrome on Android": (f"Mozilla/5.0 (Linux; Android 14) {CHROMIUM} Mobile Safari/537.36", "Chrome"),
    "Edge on Windows": (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {CHROMIUM} Safari/537.36 Edg/156.0.0.0", "Edge"),
    "Safari on macOS": (
        f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {WEBKIT} Version/18.0 Safari/605.1.15",
        "Safari",
    ),
    "Safari on iOS": (
        f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) {WEBKIT} Version/18.0 Safari/604.1",
        "iOS",
    ),
    "Chrome on iOS": (
        f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) {WEBKIT} CriOS/156.0 Safari/604.1",
        "iOS",
    ),
    "WebKitGTK": (f"Mozilla/5.0 (X11; Linux x86_64) {WEBKIT} Version/26.0 Safari/605.1.15", "Firefox"),
    "another": ("Something/1.0", "browser"),
}

ASK = """async agent => {
    const { whyNoWebGpu } = await import('/src/web/ui/app/errors.js');
    Object.defineProperty(navigator, 'userAgent', { value: agent, configurable: true });
    const said = [];
    for (const gpu of [undefined, { requestAdapter: async () => null }]) {
        Object.defineProperty(navigator, 'gpu', { value: gpu, configurable: true });
        said.push(await whyNoWebGpu());
    }
    return said;
}"""


@pytest.mark.parametrize("name", AGENTS)
def test_advice__browser_without_webgpu__one_sentence_that_names_its_way(name: str, page: Page, site_url: str) -> None:
    agent, way = AGENTS[name]
    page.goto(site_url + "e2e/blank.html")
    missing, blocked = page.evaluate(ASK, agent)
    for said in (missing, blocked):
        assert said.endswith(".") and ". " not in said
    assert missing.startswith("This browser has no WebGPU") and way in missing
    assert blocked.startswith("WebGPU finds no GPU in this browser: ")


def test_page__without_webgpu__says_so_before_models_and_python_come(page: Page, site_url: str) -> None:
    page.add_init_script("Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined })")
    for pattern in ("**/pyodide/**", "**/snapshot/**", "**/models/**"):
        page.route(pattern, lambda route: None)
    page.goto(site_url)
    expect(page.locator("#notice")).to_contain_text("chrome://flags/#enable-unsafe-webgpu")
