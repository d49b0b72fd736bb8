"""The page /bench/: a short measurement on the software adapter, its JSON and picture, and what it says without GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import mounts
from e2e.demo.test_page_access import AXE
from e2e.demo.test_policy import BREACHES, PROMISED, _policy
from e2e.harness.browser import fresh_page
from e2e.harness.page import DESKTOP, has_sideways_scroll
from tools.devkit import fetch, pins
from tools.devkit.bench_page import FOLDER
from tools.devkit.server import Server

PHONE = {"width": 390, "height": 844}
SHORT = "bench/?models=digits,austen&runs=3&seconds=1"
MEASURED_MS = 300_000

NOTED = """
globalThis.noted = [];
addEventListener('DOMContentLoaded', () => {
    const [doing, progress] = ['doing', 'progress'].map((id) => document.getElementById(id));
    new MutationObserver(() => noted.push([doing.textContent, progress.value])).observe(doing, { childList: true });
});
"""
"""`noted`: each text within a step, with the share of the measurement that is done."""


@pytest.fixture(scope="module")
def measured(context: Any, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, Any]]:
    """The page after a measurement of two models with onnxruntime-web, and its JSON."""
    fetch.npm_package(pins.ONNXRUNTIME_WEB)
    with Server(mounts(site)) as server, fresh_page(context, server.url) as (page, guard):
        page.add_init_script(BREACHES + NOTED)
        page.goto(server.url + SHORT)
        expect(page.get_by_label("Compare with onnxruntime-web")).to_be_checked()
        page.get_by_role("button", name="Measure").click()
        expect(page.locator("#step")).to_have_text("Measured.", timeout=MEASURED_MS)
        expect(page.locator("#error")).to_be_empty()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save the JSON").click()
        path = tmp_path_factory.mktemp("bench") / download.value.suggested_filename
        download.value.save_as(path)
        assert page.evaluate("breaches") == []
        guard.check()
        yield page, json.loads(path.read_text())


def test_json__of_a_short_measurement__has_adapter_rates_and_both_engines(measured: tuple[Page, Any]) -> None:
    _, result = measured
    assert result["format"] == "pyruntime-bench/1" and result["is_software"]
    assert result["adapter"]["vendor"] == "google"
    assert result["limits"]["maxStorageBufferBindingSize"] >= 128 << 20 and len(result["limits"]) > 20
    assert {"subgroups", "timestamp-query"} <= set(result["features"])
    assert {name: engine["version"] for name, engine in result["engines"].items()} == {
        "pyruntime": result["engines"]["pyruntime"]["version"],
        "onnxruntime_web": pins.ONNXRUNTIME_WEB.version,
    }
    rates = result["device"]
    assert all(rates[name] > 0 for name in ("bandwidth_gb_per_s", "dispatch_us", "readback_ms"))
    for product in result["products"].values():
        assert product["gflop_per_s"] > 0 and product["side"] >= 256


def test_json__models__have_medians_within_their_spread_and_digits_agree(measured: tuple[Page, Any]) -> None:
    """onnxruntime-web's logits of a prompt are wrong on SwiftShader: pyruntime's are those of onnxruntime's CPU."""
    _, result = measured
    assert [model["name"] for model in result["models"]] == ["digits", "austen"]
    assert result["models"][0]["max_difference"] < 1e-5
    for model in result["models"]:
        assert set(model["engines"]) == {"pyruntime", "onnxruntime_web"}
        for times in model["engines"].values():
            assert 1 <= len(times["runs_ms"]) <= 3
            assert 0 < times["p10_ms"] <= times["median_ms"] <= times["p90_ms"]
            assert times["create_ms"] > 0 and times["first_ms"] > 0
        medians = [model["engines"][name]["median_ms"] for name in ("onnxruntime_web", "pyruntime")]
        assert model["ratio"] == pytest.approx(medians[0] / medians[1], rel=1e-2)


def test_page__after_a_measurement__shows_it_and_saves_a_picture(measured: tuple[Page, Any]) -> None:
    page, result = measured
    expect(page.locator("#models tbody tr")).to_have_count(2)
    expect(page.locator("#rates")).to_contain_text("GB/s")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the picture").click()
    assert download.value.suggested_filename == f"{result['date'][:10]}-google-swiftshader-software.png"
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page__phone_and_desktop__nothing_serious_and_no_sideways_scroll(
    measured: tuple[Page, Any], scheme: Any
) -> None:
    page, _ = measured
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate((fetch.npm_package(pins.AXE) / "axe.min.js").read_text() + "; undefined")
    page.emulate_media(color_scheme=scheme)
    for size in (PHONE, DESKTOP):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert not has_sideways_scroll(page)
        found = page.evaluate(AXE)
        assert not found, "\n".join(found)


def test_page__within_a_step__tells_engine_and_share(measured: tuple[Page, Any]) -> None:
    page, result = measured
    noted = page.evaluate("noted")
    texts = [text for text, _ in noted]
    for engine in ("pyruntime", "onnxruntime-web"):
        side = result["products"][engine.replace("-", "_")]["side"]
        assert f"{engine}: {side} by {side}" in texts
        assert [texts.count(f"{engine}{doing}") for doing in (" loads the model", ": first run")] == [2, 2]
    shares = [share for text, share in noted if text]
    assert shares == sorted(shares) and len(set(shares)) > len(result["models"]) + 2
    expect(page.locator("#doing")).to_be_hidden()


def test_stop__during_a_measurement__ends_it_and_another_may_begin(page: Page, site_url: str) -> None:
    page.goto(site_url + SHORT)
    page.get_by_label("Compare with onnxruntime-web").uncheck()
    page.get_by_role("button", name="Measure").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#step")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Measure")).to_be_enabled()


def test_policy__of_the_page__is_the_sites_with_one_folder_of_another_server(page: Page, site_url: str) -> None:
    response = page.goto(site_url + "bench/")
    assert response is not None
    wider = {name: sources | {FOLDER} for name, sources in PROMISED.items() if name in ("script-src", "connect-src")}
    assert _policy(response.headers["content-security-policy"]) == PROMISED | wider
    stated = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content") or ""
    assert _policy(stated) == PROMISED | wider


def test_published_site__before_its_visitor_agrees__contacts_no_other_server(context: Any, site: Path) -> None:
    with Server({"/": site}) as server, fresh_page(context, server.url) as (page, guard):
        page.goto(server.url + "bench/")
        choice = page.get_by_label("Compare with onnxruntime-web")
        expect(choice).not_to_be_checked()
        expect(page.locator("#peer-text")).to_contain_text("from cdn.jsdelivr.net, which sees your address")
        guard.check()


def test_page__without_webgpu__says_what_to_do_in_this_browser(page: Page, site_url: str) -> None:
    page.add_init_script("Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined })")
    page.goto(site_url + "bench/")
    expect(page.locator("#notice")).to_contain_text("chrome://flags/#enable-unsafe-webgpu")
    expect(page.get_by_role("button", name="Measure")).to_be_disabled()
