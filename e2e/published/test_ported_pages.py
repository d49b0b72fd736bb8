"""Pages written for onnxruntime-web: run with it, and with this project after a change of their import line alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from tools.devkit import fetch, pins
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

PAGES = Path(__file__).parents[1] / "pages" / "ported"
IMPORT = re.compile(r"^import \* as ort from 'onnxruntime-web/webgpu';$", re.M)
# The pipeline shares buffers with the model: Python has to be in its thread.
MODULES = {"peer": "/ort/dist/ort.webgpu.bundle.min.mjs", "ours": "/web/pyruntime.js", "page": "/web/page.js"}

Result = dict[str, Any]


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, np.ndarray[Any, Any]]) -> bytes:
    made = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "ported", inputs, outputs, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _info(name: str, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def text_model() -> bytes:
    """Embeddings of 8, a layer, a mean over what the mask leaves."""
    random = np.random.default_rng(3)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("MatMul", ["words", "weight"], ["product"]),
        helper.make_node("Tanh", ["product"], ["hidden"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["hidden", "column"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "first"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["mask", "first"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["pooled"]),
        helper.make_node("ReduceSum", ["attention_mask", "first"], ["token_count"], keepdims=0),
    ]
    integers = [_info(name, ["batch", "length"], TensorProto.INT64) for name in ("input_ids", "attention_mask")]
    outputs = [
        _info("hidden", ["batch", "length", "hidden"]),
        _info("pooled", ["batch", "hidden"]),
        _info("token_count", ["batch"], TensorProto.INT64),
    ]
    weights = {
        "table": random.standard_normal((11, 8)).astype(np.float32),
        "weight": random.standard_normal((8, 8)).astype(np.float32),
        "last": np.array([2]),
        "first": np.array([1]),
    }
    return _model(nodes, integers, outputs, weights)


def blur_model() -> bytes:
    """Each channel blurred, [1, 3, h, w]."""
    kernel = np.tile(np.outer([1, 2, 1], [1, 2, 1]).astype(np.float32) / 16, (3, 1, 1, 1))
    node = helper.make_node("Conv", ["picture", "kernel"], ["blurred"], group=3, pads=[1, 1, 1, 1])
    shape: list[int | str] = [1, 3, "h", "w"]
    return _model([node], [_info("picture", shape)], [_info("blurred", shape)], {"kernel": kernel})


def edges_model() -> bytes:
    """Edges of the luminance, and how strong they are."""
    laplace = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32)
    kernel = laplace * np.array([0.299, 0.587, 0.114], np.float32).reshape(1, 3, 1, 1)
    nodes = [
        helper.make_node("Conv", ["picture", "kernel"], ["raw"], pads=[1, 1, 1, 1]),
        helper.make_node("Abs", ["raw"], ["edges"]),
        helper.make_node("ReduceMean", ["edges"], ["strength"], axes=[2, 3], keepdims=0),
    ]
    outputs = [_info("edges", [1, 1, "h", "w"]), _info("strength", [1, 1])]
    return _model(nodes, [_info("picture", [1, 3, "h", "w"])], outputs, {"kernel": kernel.astype(np.float32)})


@pytest.fixture(scope="module")
def ported(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pages below /peer/, /ours/ and /page/, each with the import line of that name; all else is the same."""
    folder = tmp_path_factory.mktemp("ported")
    models = folder / "models"
    models.mkdir()
    shutil.copy(ROOT / "models" / "digits.onnx", models)
    for name, made in (("text", text_model()), ("blur", blur_model()), ("edges", edges_model())):
        (models / f"{name}.onnx").write_bytes(made)
    for name, module in MODULES.items():
        copy = shutil.copytree(PAGES, folder / name)
        shutil.copytree(models, copy / "models")
        for script in copy.glob("*.js"):
            text, changed = IMPORT.subn(f"import * as ort from '{module}';", script.read_text())
            assert changed == 1, script
            script.write_text(text)
    peer = fetch.npm_package(pins.ONNXRUNTIME_WEB)
    with Server({"/": folder, "/web/": site / "web", **_runtime(site), "/ort/": peer}) as server:
        yield server.url


def _runtime(site: Path) -> dict[str, Path]:
    return {f"/{path.name}": path for path in site.iterdir() if path.suffix == ".whl"} | {
        f"/{name}/": site / name for name in ("pyodide", "snapshot")
    }


def run(browser: Browser, url: str, module: str, page_name: str) -> Result:
    with guarded_page(browser, url) as (page, guard):
        guard.allow("favicon|404|onnxruntime:|Some nodes were not assigned|powerPreference")
        page.goto(f"{url}{module}/{page_name}.html")
        result: Result = page.evaluate("globalThis.result")
        return result


@pytest.fixture(scope="module")
def expected(browser: Browser, ported: str) -> dict[str, Result]:
    """What the pages compute with onnxruntime-web."""
    return {name: run(browser, ported, "peer", name) for name in ("classify", "text", "pipeline")}


@pytest.mark.parametrize(("name", "module"), [("classify", "ours"), ("text", "ours"), ("pipeline", "page")])
def test_page__import_changed__computes_the_same(
    browser: Browser, ported: str, expected: dict[str, Result], name: str, module: str
) -> None:
    compare(run(browser, ported, module, name), expected[name])


def test_expectations__of_onnxruntime_web__are_what_the_pages_are_about(expected: dict[str, Result]) -> None:
    assert expected["classify"]["best"] == 7
    assert expected["text"]["counts"] == ["6", "3", "6"]
    assert expected["text"]["wrong"] == "refused"
    facts = {key: expected["pipeline"][key] for key in ("place", "locations", "same", "agree", "own", "disposed")}
    assert facts == {
        "place": ["gpu-buffer", True, [1, 3, 32, 48]],
        "locations": ["gpu-buffer", "cpu"],
        "same": True,
        "agree": True,
        "own": True,
        "disposed": "none",
    }


def compare(found: Any, expected: Any, where: str = "result") -> None:
    """Equal, numbers within float32's rounding (of a pixel: one step)."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            compare(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list) and all(isinstance(v, int | float) for v in expected):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1 if "pixels" in where else 1e-4, err_msg=where)
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, value in enumerate(expected):
            compare(found[index], value, f"{where}[{index}]")
    else:
        assert found == expected, where
