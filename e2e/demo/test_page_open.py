"""Loading a visitor's models: what is downloaded and what is not, progress, cancelling, links, external data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Page, expect

from e2e.harness.page import drop, go, small_model
from tools.devkit.server import Server

ROOT = Path(__file__).parents[2]


def scaled(weights: np.ndarray[tuple[int], np.dtype[np.float32]], op_type: str = "Mul") -> onnx.ModelProto:
    """y = op(x, w)."""
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "w"], ["y"], name="scale")],
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, weights.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, weights.shape)],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def models(site_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that the site has at /given/."""
    folder = tmp_path_factory.mktemp("given")
    site_server.mounts["/given/"] = folder
    yield folder
    del site_server.mounts["/given/"]


def requests_of(page: Page) -> list[str]:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(f"{request.method} {request.url.rsplit('/', 1)[-1]}"))
    return urls


def test_link__to_a_model__opens_it_and_can_be_copied(ready_page: Page, site_url: str) -> None:
    go(ready_page, "models/digits.onnx")
    report = ready_page.get_by_role("article", name="Report on digits.onnx")
    expect(report.locator(".report-times")).to_contain_text("First run")
    ready_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    report.get_by_role("button", name="Copy link").click()
    link = ready_page.evaluate("navigator.clipboard.readText()")
    assert link == f"{site_url}#model=models/digits.onnx"


def test_url__with_external_data__fetches_what_the_model_names(ready_page: Page, models: Path) -> None:
    weights = np.arange(4, dtype=np.float32)
    onnx.save(
        scaled(weights), models / "m.onnx", save_as_external_data=True, location="m weights.data", size_threshold=0
    )
    urls = requests_of(ready_page)
    go(ready_page, "given/m.onnx")
    report = ready_page.get_by_role("article", name="Report on m.onnx")
    expect(report.get_by_role("region", name="Results")).to_contain_text("float32 [4]")
    assert "GET m%20weights.data" in urls


def test_url__operator_that_is_not_there__is_named_before_the_weights_come(ready_page: Page, models: Path) -> None:
    weights = np.zeros(8_000_000, np.float32)
    (models / "unknown.onnx").write_bytes(scaled(weights, "Frobnicate").SerializeToString())
    go(ready_page, "given/unknown.onnx")
    notice = ready_page.locator("#model-error .notice")
    expect(notice).to_contain_text("Frobnicate (1 node)")
    found = re.search(r"waits at ([\d.]+) (KB|MB) of 32 MB", notice.inner_text())
    assert found, notice.inner_text()
    assert found[2] == "KB" or float(found[1]) < 16
    notice.get_by_role("button", name="Download all the same").click()
    expect(ready_page.locator("#model-error .error code")).to_have_text("NotImplemented")


def test_url__operator_that_is_not_there_and_external_data__leaves_the_data_alone(
    ready_page: Page, models: Path
) -> None:
    model = scaled(np.arange(4, dtype=np.float32), "Frobnicate")
    onnx.save(model, models / "far.onnx", save_as_external_data=True, location="far.data", size_threshold=0)
    urls = requests_of(ready_page)
    go(ready_page, "given/far.onnx")
    expect(ready_page.locator("#model-error .notice")).to_contain_text("Frobnicate (1 node)")
    ready_page.locator("#model-cancel").click()
    expect(ready_page.locator("#model-error")).to_have_text("Cancelled: far.onnx was not opened.")
    assert not [url for url in urls if "far.data" in url]


def test_download__that_stands_still__can_be_cancelled(ready_page: Page) -> None:
    ready_page.route("**/still.onnx", lambda route: None)
    try:
        go(ready_page, "models/still.onnx")
        expect(ready_page.locator("#model-progress-text")).to_have_text("Loading still.onnx")
        ready_page.locator("#model-cancel").click()
        expect(ready_page.locator("#model-error")).to_have_text("Cancelled: still.onnx was not opened.")
        expect(ready_page.locator("#model-progress")).to_be_hidden()
    finally:
        ready_page.unroute("**/still.onnx")
    drop(ready_page, "small.onnx", small_model("Sqrt"))
    expect(ready_page.locator(".report-times")).to_contain_text("First run")


def test_download__as_it_goes__says_bytes_speed_and_time_left(ready_page: Page) -> None:
    script = """async () => {
        const { Pace } = await import('./src/web/ui/app/model/download.js');
        const { DownloadBar } = await import('./src/web/ui/app/model/gather.js');
        const bar = new DownloadBar();
        const pace = new Pace(0);
        const said = [];
        for (const [loaded, now] of [[1e6, 1000], [3e6, 2000], [10e6, 9000], [20e6, 10000]]) {
            bar.show('big.onnx', pace.mark(loaded, 20e6, now));
            said.push(bar.text.textContent);
        }
        return said;
    }"""
    first, second, later, last = ready_page.evaluate(script)
    assert first == "big.onnx: 1 MB of 20 MB, 1 MB a second, 19 s left"
    assert second == "big.onnx: 3 MB of 20 MB, 1.5 MB a second, 11 s left"
    assert "1 MB a second, 10 s left" in later, "speed is that of the last seconds"
    assert "left" not in last


def test_files__one_at_a_time__the_model_waits_for_its_data(ready_page: Page, tmp_path: Path) -> None:
    weights = np.arange(4, dtype=np.float32)
    onnx.save(scaled(weights), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    drop(ready_page, "m.onnx", (tmp_path / "m.onnx").read_bytes())
    error = ready_page.locator("#model-error .error")
    expect(error).to_contain_text("Drop or choose m.data now; m.onnx waits for it.")
    drop(ready_page, "m.data", (tmp_path / "m.data").read_bytes())
    report = ready_page.get_by_role("article", name="Report on m.onnx")
    expect(report.get_by_role("region", name="Results")).to_contain_text("float32 [4]")


SUMMARY = """async ([bytes, step]) => {
    const { Scanner } = await import('./src/web/onnx/scanner.js');
    const { Summary } = await import('./src/web/onnx/summary.js');
    const scanner = new Scanner();
    const data = new Uint8Array(bytes);
    let complete = -1;
    let early;
    for (let at = 0; at < data.length; at += step) {
        scanner.push(data.subarray(at, at + step));
        if (complete >= 0 || !scanner.hasAllNodes) continue;
        complete = at;
        early = new Summary(scanner).operators.size;
    }
    scanner.end();
    const { operators, functions, external, broken } = new Summary(scanner);
    return { operators: Object.fromEntries([...operators].map(([name, { count }]) => [name, count])),
        functions: [...functions], external: [...external], broken, complete, early };
}"""


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
def test_summary__read_in_pieces_of_any_size__has_every_operator(ready_page: Page, step: int) -> None:
    body = scaled(np.ones(3, np.float32)).graph
    branch = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Odd", ["n"], ["b"], domain="mine")],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])],
    )
    nodes = [*body.node, helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)]
    weights = [*body.initializer, numpy_helper.from_array(np.ones(30_000, np.float32), "big")]
    graph = helper.make_graph(nodes, "g", body.input, body.output, weights)
    function = helper.make_function(
        "mine", "Odd", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], [helper.make_opsetid("", 17)]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    data = helper.make_model(graph, opset_imports=opsets, functions=[function]).SerializeToString()
    found = ready_page.evaluate(SUMMARY, [list(data), step])
    assert found["operators"] == {"Mul": 1, "If": 1, "Neg": 2, "mine.Odd": 2}
    assert found["functions"] == ["mine.Odd"]
    assert found["external"] == []
    assert not found["broken"]
    if step <= 1000:
        assert 0 <= found["complete"] < len(data) - 90_000
        assert found["early"] == 4


def test_summary__of_garbage__is_broken_and_nothing_else(ready_page: Page) -> None:
    for data in (b"\xff" * 40, b"<!doctype html>", bytes(range(256)), b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x0a"):
        found = ready_page.evaluate(SUMMARY, [list(data), 5])
        assert found["external"] == []


def test_operators__of_this_runtime__cover_the_models_it_ships(ready_page: Page) -> None:
    script = """async () => {
        const { operators } = await import('./web/pyruntime.js');
        const { summaryOf } = await import('./src/web/onnx/summary.js');
        const blob = await (await fetch('models/enlarge3.onnx')).blob();
        const summary = await summaryOf(blob);
        return [Object.fromEntries([...summary.operators].map(([name, { count }]) => [name, count])),
            summary.unsupported(await operators())];
    }"""
    found, unsupported = ready_page.evaluate(script)
    model = onnx.load(ROOT / "models" / "enlarge3.onnx")
    expected: dict[str, int] = {}
    for node in model.graph.node:
        expected[node.op_type] = expected.get(node.op_type, 0) + 1
    assert found == expected
    assert unsupported == []
