"""axe-core finds nothing serious in any state of the page, light and dark, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from e2e.demo.test_page_look import picture_model
from e2e.demo.test_page_picture import png, some_picture
from e2e.harness.page import DESKTOP, PHONE, drop, go, small_model
from tools.devkit import fetch, pins

AXE = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ['violations'] });
    return violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .flatMap(({ id, help, nodes }) => nodes.map(({ target, failureSummary }) => (
            `${id}: ${help}: ${target.join(' ')}: ${failureSummary}`)));
}"""


@pytest.fixture
def axe_page(ready_page: Page) -> Iterator[Page]:
    if not ready_page.evaluate("'axe' in globalThis"):
        ready_page.evaluate((fetch.npm_package(pins.AXE) / "axe.min.js").read_text() + "; undefined")
    yield ready_page
    ready_page.set_viewport_size(DESKTOP)
    ready_page.emulate_media(color_scheme="light")


def check(page: Page) -> None:
    """Every look of the page as it is now."""
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            found = page.evaluate(AXE)
            assert not found, f"{scheme}, {size['width']} wide:\n" + "\n".join(found)


def test_axe__something_wrong__is_found(axe_page: Page) -> None:
    axe_page.evaluate("document.body.append(Object.assign(document.createElement('button'), { id: 'nameless' }))")
    try:
        assert any("nameless" in line for line in axe_page.evaluate(AXE))
    finally:
        axe_page.evaluate("document.querySelector('#nameless').remove()")


def test_axe__start_and_picture__nothing_serious(axe_page: Page) -> None:
    check(axe_page)
    drop(axe_page, "blots.png", png(some_picture()), "image/png")
    expect(axe_page.locator("#picture-facts")).to_contain_text("16 × 12 to")
    check(axe_page)


def test_axe__report_with_everything_open__nothing_serious(axe_page: Page) -> None:
    drop(axe_page, "negative.onnx", picture_model())
    report = axe_page.get_by_role("article", name="Report on negative.onnx")
    expect(report.locator(".report-times")).to_contain_text("median of")
    for button in ("Profile", "Measure GPU and CPU"):
        report.get_by_role("button", name=button).click()
        expect(report.get_by_role("region", name=button.removeprefix("Measure "))).to_be_visible()
    report.locator(".kernels summary").first.click()
    for kind in ("json", "image", "npy"):
        report.get_by_label("Fill x with").select_option(kind)
        check(axe_page)


@pytest.mark.parametrize("content", [b"garbage", small_model("Frobnicate")], ids=["garbage", "unsupported"])
def test_axe__errors__nothing_serious(axe_page: Page, content: bytes) -> None:
    drop(axe_page, "bad.onnx", content)
    expect(axe_page.locator("#model-error .error")).to_be_visible()
    check(axe_page)


def test_axe__while_a_model_is_opened__nothing_serious(axe_page: Page) -> None:
    axe_page.route("**/still.onnx", lambda route: None)
    try:
        go(axe_page, "models/still.onnx")
        expect(axe_page.locator("#model-cancel")).to_be_visible()
        check(axe_page)
        axe_page.locator("#model-cancel").click()
        expect(axe_page.locator("#model-error")).to_contain_text("Cancelled")
        check(axe_page)
    finally:
        axe_page.unroute("**/still.onnx")
