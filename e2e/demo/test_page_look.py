"""What a visitor can do with a model: feed it, see what comes out, look at nodes, memory, kernels, time."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Locator, Page, expect

from e2e.demo.test_page_picture import differ, png, shown, some_picture
from e2e.harness.page import drop, open_page, small_model


def opened(page: Page, name: str, content: bytes) -> Locator:
    """The report on a dropped model, when it has run for the first time."""
    drop(page, name, content)
    report = page.get_by_role("article", name=f"Report on {name}")
    expect(report.locator(".report-times")).to_contain_text("median of")
    return report


def run(report: Locator, said: str = "median of") -> Locator:
    """Presses Run; the results."""
    report.locator(".report-times").evaluate("element => { element.textContent = ''; }")
    report.get_by_role("button", name="Run", exact=True).click()
    expect(report.locator(".report-times")).to_contain_text(said)
    return report.get_by_role("region", name="Results")


def picture_model() -> bytes:
    """y = 1 - x, pictures of 8 by 8."""
    one = numpy_helper.from_array(np.array(1, np.float32), "one")
    shape = [1, 3, 8, 8]
    graph = helper.make_graph(
        [helper.make_node("Sub", ["one", "x"], ["y"], name="negative")],
        "negative",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [one],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_inputs__json_zeros_and_npy__are_what_is_run(ready_page: Page, tmp_path: Path) -> None:
    report = opened(ready_page, "sqrt.onnx", small_model("Sqrt"))
    kind = report.get_by_label("Fill x with")
    kind.select_option("json")
    report.get_by_label("JSON for x").fill("[[2, 8, -1, 0], [0.5, 32, 128, 2]]")
    values = run(report).get_by_role("region", name="Values of y")
    assert values.locator("td").all_inner_texts() == ["2", "4", "0", "0", "1", "8", "16", "2"]
    kind.select_option("zeros")
    assert set(run(report).get_by_role("region", name="Values of y").locator("td").all_inner_texts()) == {"0"}

    x = np.random.default_rng(0).random((3, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    kind.select_option("npy")
    report.get_by_label("File for x").set_input_files(tmp_path / "x.npy")
    results = run(report)
    expect(results).to_contain_text("float32 [3, 4]")
    with ready_page.expect_download() as download:
        results.get_by_role("button", name="Save as .npz").click()
    saved = np.load(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert saved.files == ["y"]
    np.testing.assert_allclose(saved["y"], np.sqrt(2 * x), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1, 2", "JSON for x is not valid"), ("[1, 2, 3]", "not 3 values"), ('["a", 1, 2, 3]', "numbers only")],
)
def test_inputs__bad_json__says_what_is_wrong_and_keeps_the_model(ready_page: Page, text: str, message: str) -> None:
    report = ready_page.get_by_role("article", name="Report on sqrt.onnx")
    if not report.count():
        report = opened(ready_page, "sqrt.onnx", small_model("Sqrt"))
    report.get_by_label("Fill x with").select_option("json")
    report.get_by_label("JSON for x").fill(text)
    report.get_by_role("button", name="Run", exact=True).click()
    expect(ready_page.locator("#model-error")).to_contain_text(message)
    expect(report.get_by_role("button", name="Run", exact=True)).to_be_enabled()


def test_npy__of_every_type__is_read_and_written_as_numpy_does(ready_page: Page) -> None:
    script = """async bytes => {
        const { readNpy, writeNpz } = await import('./src/web/ui/app/model/npy.js');
        const { blob } = writeNpz({ 'a/b': readNpy(new Uint8Array(bytes).buffer) });
        return [...new Uint8Array(await blob.arrayBuffer())];
    }"""
    for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"):
        array = np.arange(6).reshape(2, 3).astype(name)
        file = io.BytesIO()
        np.save(file, array)
        saved = np.load(io.BytesIO(bytes(ready_page.evaluate(script, list(file.getvalue())))))
        np.testing.assert_array_equal(saved["a_b"], array)
        assert saved["a_b"].dtype == array.dtype
    wrong = io.BytesIO()
    np.save(wrong, np.asfortranarray(np.ones((2, 3))))
    message = ready_page.evaluate(
        f"bytes => ({script})(bytes).then(() => '', error => error.message)", list(wrong.getvalue())
    )
    assert "ascontiguousarray" in message


def test_picture__in_and_out__is_shown_as_one(ready_page: Page, tmp_path: Path) -> None:
    report = opened(ready_page, "negative.onnx", picture_model())
    pixels = some_picture(8, 8)
    (tmp_path / "x.png").write_bytes(png(pixels))
    report.get_by_label("Fill x with").select_option("image")
    report.get_by_label("File for x").set_input_files(tmp_path / "x.png")
    results = run(report)
    results.get_by_role("button", name="Image").click()
    canvas = results.get_by_role("img", name="y as a picture, 8 by 8")
    assert differ(shown(canvas), 255 - pixels) <= 1
    results.get_by_role("button", name="Chart").click()
    expect(results.get_by_role("img", name=re.compile("Values of y in order"))).to_be_visible()
    results.get_by_role("button", name="Numbers").click()
    expect(results.get_by_role("region", name="Values of y").locator("tbody tr")).to_have_count(24)


def test_nodes__searched_and_filtered__say_where_and_why(ready_page: Page) -> None:
    report = opened(ready_page, "small.onnx", small_model())
    rows = report.get_by_role("region", name="Nodes").locator("tbody tr")
    every = rows.count()
    report.get_by_label("Search the nodes").fill("nonzero")
    expect(rows).to_have_count(1)
    assert re.search(r"last\s+NonZero\s+NumPy\s+\S{3}", rows.inner_text())
    expect(report.get_by_text(f"1 of {every} nodes")).to_be_visible()
    report.get_by_label("Search the nodes").fill("")
    report.get_by_label("Nodes that run").select_option("gpu")
    expect(rows).to_have_count(every - 1)
    report.get_by_label("Search the nodes").fill("no such thing")
    expect(rows).to_have_count(0)


def test_kernels_and_memory__of_digits__are_all_there(ready_page: Page) -> None:
    ready_page.get_by_role("button", name="Look inside digits.onnx").click()
    report = ready_page.get_by_role("article", name="Report on digits.onnx")
    expect(report.locator(".report-times")).to_contain_text("median of")
    kernels = report.locator(".kernels details")
    count = int(re.findall(r"(\d+) kernels", report.locator(".report-facts").inner_text())[0])
    expect(kernels).to_have_count(count)
    kernels.first.locator("summary").click()
    code = kernels.first.get_by_role("region", name=re.compile("WGSL of"))
    assert "@compute @workgroup_size" in code.inner_text()
    assert code.locator(".wgsl-keyword").count() > 3
    chart = report.get_by_role("img", name=re.compile(r"Memory over \d+ steps"))
    report.get_by_text("Every tensor").click()
    expect(report.get_by_role("region", name="Tensors").locator("tbody tr")).to_have_count(
        chart.locator("rect").count()
    )


def test_charts__of_an_opened_model__show_speed_time_and_memory_unasked(ready_page: Page) -> None:
    report = opened(ready_page, "negative.onnx", picture_model())
    runs = int(re.findall(r"median of (\d+) round", report.locator(".report-times").inner_text())[0])
    speed = report.get_by_role("img", name=re.compile(rf"^{runs} runs after the first, from [\d.]+ ms to [\d.]+ m?s"))
    expect(speed.locator("rect")).to_have_count(runs)
    expect(report.locator(".bar-list").first).to_contain_text(re.compile(r"First run[\d.]+ m?sLater runs[\d.]+ m?s"))
    expect(report.locator(".memory figcaption")).to_contain_text(
        re.compile(r"^[\d.]+ KB on the GPU: \d+ B of weights, \d+ B for activations$")
    )


def test_profile__of_two_operators__colors_them_by_kind(ready_page: Page) -> None:
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["a"]), helper.make_node("TopK", ["a", "k"], ["y", "i"])],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [4, 3]),
        ],
        [numpy_helper.from_array(np.array([3], np.int64), "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    report = opened(ready_page, "two.onnx", bytes(model.SerializeToString()))
    report.get_by_role("button", name="Profile").click()
    rows = report.get_by_role("region", name="Profile").locator("tbody tr")
    expect(rows).to_have_count(2)
    order = report.get_by_role("img", name=re.compile(r"^One run in order.* The most: \w+ [\d.]+%, \w+ [\d.]+%$"))
    parts = order.locator("span").evaluate_all("spans => spans.map(({ title, dataset }) => [title, dataset.color])")
    assert [title.split()[0] for title, _ in parts] == ["Softmax", "TopK"]
    swatches = rows.locator(".swatch").evaluate_all("spans => spans.map(({ dataset }) => dataset.color)")
    names = [text.split()[0] for text in rows.locator("th").all_inner_texts()]
    assert dict(zip(names, swatches, strict=True)) == {title.split()[0]: color for title, color in parts}


def test_profile__of_digits__names_kernels_and_can_be_saved(ready_page: Page) -> None:
    report = ready_page.get_by_role("article", name="Report on digits.onnx")
    if not report.count():
        ready_page.get_by_role("button", name="Look inside digits.onnx").click()
        expect(report.locator(".report-times")).to_contain_text("median of")
    report.get_by_role("button", name="Profile").click()
    table = report.get_by_role("region", name="Profile")
    expect(table).to_be_visible()
    names = table.locator("tbody th").all_inner_texts()
    assert any("conv" in name for name in names)
    shares = [float(text.rstrip("%")) for text in table.locator(".share").all_inner_texts()]
    assert abs(sum(shares) - 100) < 1
    assert shares == sorted(shares, reverse=True)
    with ready_page.expect_download() as download:
        report.get_by_role("button", name="Save the trace").click()
    events = json.loads(Path(download.value.path()).read_text())
    assert {event["cat"] for event in events} >= {"Node", "Kernel"}


def test_compare__gpu_and_cpu__run_by_turns_and_agree(ready_page: Page) -> None:
    report = opened(ready_page, "sqrt.onnx", small_model("Sqrt"))
    report.get_by_role("button", name="Measure GPU and CPU").click()
    table = report.get_by_role("region", name="GPU and CPU")
    expect(table).to_be_visible()
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(2)
    runs = [int(row.locator("td").last.inner_text()) for row in rows.all()]
    assert runs[0] == runs[1] > 0
    assert re.search(r"Results differ by at most (0|\d\.?\d*e-\d+)\.", report.locator(".measure").inner_text())


def test_run__cancelled__ends_and_can_be_repeated(page: Page, site_url: str) -> None:
    open_page(page, f"{site_url}src/")
    report = opened(page, "sqrt.onnx", small_model("Sqrt"))
    page.evaluate(
        """async () => {
            const { prototype } = (await import('/src/web/pyruntime.js')).InferenceSession;
            const { run } = prototype;
            const gate = new Promise((resolve) => {
                globalThis.runAtOnce = () => {
                    prototype.run = run;
                    resolve();
                };
            });
            prototype.run = async function (...rest) {
                await gate;
                return run.apply(this, rest);
            };
        }"""
    )
    try:
        report.get_by_role("button", name="Measure GPU and CPU").click()
        report.get_by_role("button", name="Cancel", exact=True).click()
    finally:
        page.evaluate("runAtOnce()")
    expect(report.locator(".report-times")).to_have_text("Cancelled.")
    expect(report.get_by_role("button", name="Cancel", exact=True)).to_be_hidden()
    expect(run(report)).to_contain_text("float32 [1, 4]")
