"""The demo page as its visitors use it: drawing, test images, their model, a phone, a keyboard."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.harness.browser import FLAGS, Guard, guarded_page
from e2e.harness.page import (
    DESKTOP,
    DRAWN,
    PHONE,
    Strokes,
    answer,
    draw,
    drop,
    has_sideways_scroll,
    open_page,
    small_model,
    wait_for,
)
from tools.devkit.chromium import ensure_chromium
from tools.digits_data import from_counts, load_split, rasterize


def test_page__opened__demonstrates_itself(ready_page: Page) -> None:
    phases = ready_page.locator(".phase")
    assert phases.count() == 2, "the model and its first run: a plan needs nothing else"
    for state, detail in zip(
        phases.evaluate_all("rows => rows.map(row => row.dataset.state)"),
        ready_page.locator(".phase-detail").all_inner_texts(),
        strict=True,
    ):
        assert state == "done"
        assert re.search(r"\d (ms|s)$", detail)
    assert re.search(r"\d KB", phases.first.inner_text())
    expect(ready_page.locator("#python-state")).to_have_text("Python is ready, for text and your own models.")
    assert re.match(r"[\d.]+ ms", ready_page.locator("#inference-time").inner_text())
    assert re.match(r"[\d.]+ KB", ready_page.locator("#peak-memory").inner_text())


def test_page__adapter__is_the_one_the_browser_names(ready_page: Page) -> None:
    info = ready_page.evaluate("navigator.gpu.requestAdapter().then(({info}) => [info.vendor, info.description])")
    shown = ready_page.locator("#adapter").inner_text()
    assert all(part in shown for part in info)


def test_pad__digits_drawn_with_the_mouse__nine_of_ten_are_recognised(ready_page: Page) -> None:
    answers = {}
    for digit, strokes in DRAWN.items():
        draw(ready_page, strokes)
        answers[digit] = answer(ready_page)
        ready_page.locator("#pad-clear").click()
        expect(ready_page.locator(".bar.best")).to_have_count(0)
    assert sum(digit == seen for digit, seen in answers.items()) >= 9, answers


def test_pad__drawn_in_part__bars_follow_the_pen(ready_page: Page) -> None:
    first, second = DRAWN[4]
    draw(ready_page, [first])
    answer(ready_page)
    before = ready_page.locator(".bar-value").all_inner_texts()
    draw(ready_page, [second])
    assert answer(ready_page) == 4
    assert ready_page.locator(".bar-value").all_inner_texts() != before


def test_pad__after_the_demonstration__a_stroke_starts_afresh(ready_page: Page) -> None:
    ready_page.locator(".sample").nth(8).click()
    assert answer(ready_page) == 8
    draw(ready_page, DRAWN[1])
    assert answer(ready_page) == 1


def test_pad__escape__clears(ready_page: Page) -> None:
    draw(ready_page, DRAWN[7])
    assert answer(ready_page) == 7
    ready_page.keyboard.press("Escape")
    expect(ready_page.locator(".bar.best")).to_have_count(0)
    expect(ready_page.locator("#pad-hint")).to_be_visible()


def test_samples__by_keyboard__are_predicted_and_announced(ready_page: Page) -> None:
    for digit in range(10):
        ready_page.get_by_role("button", name=f"Test image of a {digit}").focus()
        ready_page.keyboard.press("Enter")
        expect(ready_page.locator("#pad-caption")).to_contain_text(f"labelled {digit}")
        assert answer(ready_page) == digit
    expect(ready_page.get_by_role("status").first).to_contain_text("This looks like 9")


def test_raster__strokes__same_numbers_as_in_python(ready_page: Page) -> None:
    extra: list[Strokes] = [[[(0.5, 0.5)]], [[(0.1, 0.5), (0.9, 0.5)], [(0.2, 0.9)]], []]
    for strokes in [*DRAWN.values(), *extra]:
        script = "strokes => import('./src/web/ui/draw/raster.js').then((raster) => [...raster.rasterize(strokes)])"
        np.testing.assert_allclose(ready_page.evaluate(script, strokes), rasterize(strokes).ravel(), atol=1e-5)


def test_raster__test_images__same_numbers_as_in_python(ready_page: Page) -> None:
    script = """async ([from, to]) => {
        const bytes = await (await fetch('models/digits_heldout.bin')).arrayBuffer();
        const { fromCounts } = await import('./src/web/ui/draw/raster.js');
        return Array.from({ length: to - from }, (_, i) => [...fromCounts(new Uint8Array(bytes, 64 * (from + i), 64))]);
    }"""
    counts = load_split().heldout_counts
    inputs = from_counts(counts).reshape(len(counts), -1)
    np.testing.assert_array_equal(ready_page.evaluate(script, [0, 20]), inputs[:20])


def test_phone__drawing__pad_and_bars_are_in_view_and_nothing_scrolls_sideways(ready_page: Page) -> None:
    try:
        ready_page.set_viewport_size(PHONE)
        draw(ready_page, DRAWN[5])
        assert answer(ready_page) == 5
        for part in (".pad", ".answer-digit", "#bars"):
            expect(ready_page.locator(part)).to_be_in_viewport(ratio=1)
        assert not has_sideways_scroll(ready_page)
        drop(ready_page, "small.onnx", small_model())
        expect(ready_page.locator(".report-times")).to_contain_text("median of")
        assert not has_sideways_scroll(ready_page)
        ready_page.locator("#report summary").click()
        assert not has_sideways_scroll(ready_page)
        drop(ready_page, "garbage.onnx", b"garbage " * 500)
        expect(ready_page.locator("#model-error .error")).to_be_visible()
        assert not has_sideways_scroll(ready_page)
    finally:
        ready_page.set_viewport_size(DESKTOP)


def test_touch__finger_on_the_pad__draws_and_does_not_scroll(browser: Browser, site_url: str) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    try:
        page = context.new_page()
        open_page(page, site_url)
        page.locator("#pad-clear").tap()
        box = page.locator("#pad").bounding_box()
        assert box
        devtools = context.new_cdp_session(page)

        def touch(kind: str, *points: tuple[float, float]) -> None:
            places = [{"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]} for x, y in points]
            devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

        touch("touchStart", (0.5, 0.15))
        for step in range(1, 15):
            touch("touchMove", (0.5, 0.15 + 0.05 * step))
        touch("touchEnd")
        assert answer(page) == 1
        assert page.evaluate("scrollY") == 0
    finally:
        context.close()


def test_keyboard__tab__reaches_everything_with_a_visible_focus(ready_page: Page) -> None:
    ready_page.locator(".mark").focus()
    ready_page.keyboard.press("Shift+Tab")
    reached: list[str] = []
    for _ in range(50):
        name, outline = ready_page.evaluate(
            """() => {
                const element = document.activeElement;
                const shown = element.type === 'file' ? document.querySelector(`label[for=${element.id}]`)
                    : element.id === 'split' ? document.querySelector('#stage') : element;
                const text = element.getAttribute('aria-label') ?? element.textContent.trim();
                return [text || element.id, getComputedStyle(shown).outlineStyle];
            }"""
        )
        reached.append(name)
        assert outline != "none", name
        if name == "Copy: In a web page":
            break
        ready_page.keyboard.press("Tab")
    wanted = ["Skip to the demo", "Digits", "Test image of a 0", "Test image of a 9", "picture-file", "Camera", "Cat"]
    wanted += ["file", "Look inside digits.onnx"]
    assert [name for name in reached if name in wanted] == wanted


def test_reduced_motion__bars__do_not_glide(ready_page: Page) -> None:
    script = "getComputedStyle(document.querySelector('.bar-fill')).transitionDuration"
    assert ready_page.evaluate(script) != "0s"
    ready_page.emulate_media(reduced_motion="reduce")
    try:
        assert ready_page.evaluate(script) == "0s"
    finally:
        ready_page.emulate_media(reduced_motion="no-preference")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours__light_and_dark__text_stands_out(ready_page: Page, scheme: str) -> None:
    """WCAG AA wants 4.5 to 1 for the softest text on both backgrounds."""
    script = """() => {
        const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
        const style = getComputedStyle(document.documentElement);
        const luminance = (name) => {
            canvas.fillStyle = style.getPropertyValue(name);
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => {
                const part = value / 255;
                return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const pairs = [['--ink-soft', '--paper'], ['--ink-soft', '--panel'], ['--accent', '--panel'],
            ['--accent-ink', '--accent'], ['--good', '--good-soft'], ['--host', '--host-soft'], ['--bad', '--bad-soft'],
            ['--ink', '--bad-soft'], ['--ink', '--host-soft']];
        return pairs.map(([text, ground]) => {
            const [low, high] = [luminance(text), luminance(ground)].sort((a, b) => a - b);
            return [`${text} on ${ground}`, (high + 0.05) / (low + 0.05)];
        });
    }"""
    ready_page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    try:
        weak = [(pair, ratio) for pair, ratio in ready_page.evaluate(script) if ratio < 4.5]
    finally:
        ready_page.emulate_media(color_scheme="light")
    assert not weak


def test_policy__whole_visit__breaks_no_rule(page: Page, site_url: str) -> None:
    page.add_init_script(
        """globalThis.violations = [];
        document.addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective));"""
    )
    open_page(page, site_url)
    meta = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    assert meta
    assert "script-src 'self' 'wasm-unsafe-eval';" in meta
    drop(page, "small.onnx", small_model())
    expect(page.locator(".report-times")).to_contain_text("median of")
    assert page.evaluate("violations") == []


def test_policy__inline_script__is_refused_and_noticed(page: Page, guard: Guard, site_url: str) -> None:
    """The control of the test above: a violation would be seen."""
    guard.allow("Content Security Policy")
    page.add_init_script(
        """globalThis.violations = [];
        document.addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective));"""
    )
    page.goto(site_url)
    page.evaluate("document.head.append(Object.assign(document.createElement('script'), { text: 'var broken = 1' }))")
    wait_for(page, "violations.includes('script-src-elem')")
    assert page.evaluate("typeof broken") == "undefined"


def test_no_webgpu__page__says_so_and_uses_the_cpu(browser: Browser, site_url: str) -> None:
    flags = [flag for flag in FLAGS if flag != "--enable-unsafe-webgpu"]
    flags += ["--disable-blink-features=WebGPU", "--disable-features=WebGPU"]
    executable = ensure_chromium(Path(sys.executable))
    with (
        browser.browser_type.launch(executable_path=executable, args=flags) as old_browser,
        guarded_page(old_browser, site_url) as (page, guard),
    ):
        guard.allow("No available adapters")
        page.goto(site_url)
        expect(page.locator("#notice")).to_contain_text("WebGPU")
        expect(page.locator("#notice")).to_contain_text("on the CPU")
        expect(page.locator("#loading-title")).to_have_text("Loaded")
        expect(page.locator(".bar.best .bar-digit")).to_have_text("3")
        expect(page.locator("#adapter")).to_contain_text("CPU")
