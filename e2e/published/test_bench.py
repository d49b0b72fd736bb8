"""The benchmark's page, with this project's two engines: onnxruntime-web is fetched only where the benchmark runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bench import cases
from bench.expected import write as write_expected
from bench.folder import PAGES, write_pages
from bench.run import POLICY
from e2e.conftest import mounts
from e2e.harness.browser import guarded_page
from tests.genai.folder import write_folder
from tests.genai.packed import SHAPES, write_packed_folder
from tests.genai.precisions import SEEDS
from tools.devkit.server import Server


@pytest.fixture(scope="module")
def bench_url(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pages = tmp_path_factory.mktemp("bench")
    write_pages(pages, [cases.digits()], {"digits": "../models/digits.onnx"})
    with Server(mounts(site) | {"/bench/": pages}, policy=POLICY) as server:
        yield server.url


def test_bench__digits__measures_every_figure(browser: Browser, bench_url: str) -> None:
    with guarded_page(browser, bench_url) as (page, _):
        page.goto(f"{bench_url}bench/bench.html?models=digits&engines=ours,python&runs=7")
        answer = page.evaluate("globalThis.benchResult")
    assert "error" not in answer
    assert answer["adapter"]["vendor"]
    (result,) = answer["results"]
    for name, engine in result["engines"].items():
        assert "error" not in engine, name
        assert len(engine["runs"]) == 7
        assert 0 < engine["median_ms"] <= engine["p95_ms"]
        assert engine["ready_ms"] == engine["create_ms"] + engine["first_ms"]
        assert 5 <= engine["dispatches"] <= 20
        assert 0 < engine["pipelines"] <= engine["dispatches"]
        assert engine["gpu_bytes_peak"] >= engine["planned"]["weights"] + engine["planned"]["peak"]
        assert engine["wasm_bytes"] > 20e6
    ledger = result["engines"]["python"]["ledger"]
    assert ledger["peak"] <= result["engines"]["python"]["gpu_bytes_peak"]


def test_bench__budget_is_over__says_what_was_left_out(browser: Browser, bench_url: str) -> None:
    with guarded_page(browser, bench_url) as (page, _):
        page.goto(f"{bench_url}bench/bench.html?models=digits&engines=ours&budget=0")
        answer = page.evaluate("globalThis.benchResult")
    assert answer["skipped"] == ["digits"]
    assert answer["results"] == []


@pytest.mark.parametrize("engine", ["ours", "plain"])
def test_first__page_with_one_model__tells_when_the_result_was_there(
    browser: Browser, bench_url: str, engine: str
) -> None:
    query = f"engine={engine}&model={bench_url}models/digits.onnx"
    query += '&inputs={"image":{"dtype":"float32","shape":[1,1,16,16]}}'
    with guarded_page(browser, bench_url) as (page, _):
        page.goto(f"{bench_url}bench/first.html?{query}")
        first = page.evaluate("globalThis.firstResult")
    assert first["ms"] > first["phases"]["session"] > 0
    assert sum(first["output"]) == pytest.approx(1, abs=1e-4)


def test_generate__page_that_measures_text__tells_the_rate_of_each_stretch(
    browser: Browser, site_url: str, site_server: Server, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()  # the page makes one
    site_server.mounts |= {"/e2e/generate-model/": folder, "/e2e/generate/": PAGES}
    query = "lib=/web/pyruntime.js&models=/e2e/generate-model&prompt=10&tokens=40&every=16"
    with guarded_page(browser, site_url) as (page, guard):
        guard.allow("404")
        found = []
        for more in ("", "&step=1"):
            page.goto(f"{site_url}e2e/generate/generate.html?{query}{more}")
            found.append(page.evaluate("globalThis.generated"))
    for answer in found:
        assert "error" not in answer
        (result,) = answer["results"]
        assert len(result["runs"]) == 2
        for run in result["runs"]:
            assert run["ids"] == found[0]["results"][0]["runs"][0]["ids"]
            assert len(run["ids"]) == 40
            assert [s["context"] for s in run["stretches"]] == [11, 27, 43]
            assert sum(s["tokens"] for s in run["stretches"]) == 39
            assert run["tokens_per_s"] > 0 < run["first_ms"]


def test_decode__page_that_feeds_caches__finds_the_tokens_of_onnxruntime(
    browser: Browser, site: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "models" / "small"
    write_packed_folder(folder, SHAPES["llama"], SEEDS["llama", "float32"], "float32")
    write_expected(folder, 10, 20)
    folders = mounts(site) | {"/bench/": PAGES, "/bench-models/": folder.parent}
    with Server(folders, policy=POLICY) as server, guarded_page(browser, server.url) as (page, guard):
        guard.allow("404")  # weights next to the model
        page.goto(f"{server.url}bench/decode.html?models=small&engines=ours&prompt=10&tokens=20")
        answer = page.evaluate("globalThis.decodeResult")
        shown = page.locator("#log").inner_text().splitlines()
    assert len(answer["engines"]["ours"]) == len(shown) == 2
    for told in answer["engines"]["ours"]:
        text = told["text"]
        assert text["equal"] == len(text["ids"]) == 20
        assert text["create_ms"] > 0 < text["prompt_ms"] and 0 < text["token_ms"] <= text["p95_ms"]
