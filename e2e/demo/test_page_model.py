"""The page's second part: a model of the visitor's own, good or bad."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Page, expect

from e2e.harness.browser import Guard
from e2e.harness.page import DRAWN, answer, draw, drop, small_model


def test_model__dropped__is_summarised_and_run(ready_page: Page) -> None:
    drop(ready_page, "small.onnx", small_model())
    report = ready_page.get_by_role("article", name="Report on small.onnx")
    expect(report.locator(".report-times")).to_contain_text("median of")
    expect(report.locator(".report-facts")).to_have_text(
        re.compile(r"^\d nodes, \d on the GPU, 1 in NumPy; \d GPU disp")
    )
    expect(report.get_by_role("region", name="Inputs")).to_contain_text("float32 [rows, 4]")
    operators = report.get_by_role("region", name="Operators").locator("tbody tr")
    rows = {row.split("\t")[0]: row for row in operators.all_inner_texts()}
    assert re.search(r"NumPy\s+\S{3}", rows.pop("NonZero")), "a host step needs its reason"
    assert rows
    assert all("GPU" in row for row in rows.values())
    expect(report.get_by_role("region", name="Results")).to_contain_text("int64 [2, 4]")
    expect(report.locator(".memory dd")).to_have_count(3)


def test_model__other_size__runs_again_with_it(ready_page: Page) -> None:
    drop(ready_page, "small.onnx", small_model("Sqrt"))
    report = ready_page.get_by_role("article", name="Report on small.onnx")
    results = report.get_by_role("region", name="Results")
    expect(results).to_contain_text("float32 [1, 4]")
    expect(report.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    report.get_by_label("rows").fill("7")
    report.get_by_role("button", name="Run", exact=True).click()
    expect(results).to_contain_text("float32 [7, 4]")


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("garbage.onnx", b"\xff\xfe garbage, no model at all", "InvalidProtobuf"),
        ("page.onnx", b"<!doctype html><title>404</title>", "InvalidProtobuf"),
        ("empty.onnx", b"", "InvalidProtobuf"),
        ("unknown.onnx", small_model("Frobnicate"), "NotImplemented"),
    ],
)
def test_model__bad__says_what_is_wrong_and_what_to_do(ready_page: Page, name: str, content: bytes, error: str) -> None:
    drop(ready_page, name, content)
    message = ready_page.locator("#model-error .error")
    expect(message).to_be_visible()
    expect(message.locator("code")).to_have_text(error)
    for part in (".error-title", ".error-message", ".error-next"):
        assert len(message.locator(part).inner_text()) > 20
    expect(ready_page.locator(".report")).to_have_count(0)


def test_model__good_one_after_a_bad_one__is_reported(ready_page: Page) -> None:
    drop(ready_page, "garbage.onnx", b"garbage")
    expect(ready_page.locator("#model-error .error")).to_be_visible()
    ready_page.get_by_role("button", name="Look inside digits.onnx").click()
    report = ready_page.get_by_role("article", name="Report on digits.onnx")
    expect(report.locator(".report-times")).to_contain_text("median of")
    expect(report.locator(".report-facts")).to_have_text(
        re.compile(r"^\d+ nodes, \d+ on the GPU(, \d at no cost)?; \d+ GPU disp")
    )
    expect(report.get_by_role("region", name="Operators")).to_contain_text("Conv + Relu")
    expect(ready_page.locator("#model-error .error")).to_have_count(0)
    draw(ready_page, DRAWN[2])
    assert answer(ready_page) == 2


def test_file_picker__model_and_external_data__run_together(ready_page: Page, tmp_path: Path) -> None:
    weights = np.arange(4, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"], name="scale")],
        "external",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").stat().st_size == weights.nbytes
    ready_page.set_input_files("#file", [tmp_path / "m.onnx", tmp_path / "m.data"])
    report = ready_page.get_by_role("article", name="Report on m.onnx")
    expect(report.get_by_role("region", name="Results")).to_contain_text("0 to")


def test_url__on_this_site__is_opened(page: Page, guard: Guard, site_url: str) -> None:
    guard.allow(
        "A preload for"
    )  # the page asks whether the model has changed before the demo has used what is preloaded
    page.goto(f"{site_url}?url=models/digits.onnx")
    report = page.get_by_role("article", name="Report on digits.onnx")
    expect(report.locator(".report-times")).to_contain_text("First run")


def test_url__missing__says_so(page: Page, guard: Guard, site_url: str) -> None:
    guard.allow("404")
    page.goto(f"{site_url}?url=models/nothing.onnx")
    expect(page.locator("#model-error")).to_contain_text("There is no model at this address")


def test_url__on_another_site__is_not_fetched(page: Page, site_url: str) -> None:
    page.goto(f"{site_url}?url=https://example.com/model.onnx")
    expect(page.locator("#model-error")).to_contain_text("only from its own site")


def test_address__on_this_site_and_elsewhere__is_opened_or_refused(ready_page: Page) -> None:
    ready_page.get_by_label("Address on this site").fill("models/light/light_shufflenet.onnx")
    ready_page.get_by_role("button", name="Open", exact=True).click()
    report = ready_page.get_by_role("article", name="Report on light_shufflenet.onnx")
    expect(report.locator(".report-times")).to_contain_text("First run")
    ready_page.get_by_label("Address on this site").fill("https://example.com/model.onnx")
    ready_page.get_by_role("button", name="Open", exact=True).click()
    expect(ready_page.locator("#model-error")).to_contain_text("only from its own site")


def test_sample__of_the_page__is_opened(ready_page: Page) -> None:
    ready_page.get_by_role("button", name="enlarge3.onnx").click()
    report = ready_page.get_by_role("article", name="Report on enlarge3.onnx")
    expect(report.locator(".report-times")).to_contain_text("First run")


def test_kernels__before_shapes_are_known__are_not_said_to_be_missing(ready_page: Page) -> None:
    script = """async (placement) => {
        const { kernelsView } = await import('./src/web/ui/app/model/kernels.js');
        return kernelsView([], [{ placement, kernels: [] }]).textContent;
    }"""
    assert "in the first run" in ready_page.evaluate(script, "gpu")
    assert "Nothing of this model runs on the GPU" in ready_page.evaluate(script, "host")
