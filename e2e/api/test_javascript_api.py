"""web/pyruntime.js as a page uses it: sessions in the worker, tensors across, errors with their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Page

from e2e.harness.browser import Guard
from e2e.harness.script import Script
from tools.devkit.shell import ROOT
from tools.digits_data import from_counts, load_split

DIGITS = ROOT / "models" / "digits.onnx"
RTOL, ATOL = 1e-3, 1e-4  # float32, as the issue asks of the light models


def model_bytes(nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], **extra: Any) -> bytes:
    graph = helper.make_graph(nodes, "test", inputs, outputs, **extra)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def tensor_info(name: str, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


ADD_MUL = model_bytes(
    [helper.make_node("Add", ["a", "b"], ["sum"], name="adder"), helper.make_node("Mul", ["a", "b"], ["product"])],
    [tensor_info("a", ["rows", 3]), tensor_info("b", [3])],
    [tensor_info("sum", ["rows", 3]), tensor_info("product", ["rows", 3])],
)


@pytest.mark.parametrize(
    "source",
    [
        "new URL('/models/digits.onnx', location.href)",
        "'../models/digits.onnx'",
        "new Blob([bytes])",
        "bytes",
        "bytes.buffer",
        "padded.subarray(7, 7 + bytes.length)",
        "padded.buffer, 7, bytes.length, {}",
    ],
)
def test_create__every_kind_of_source__gives_onnxruntimes_answer(script: Script, source: str) -> None:
    image = from_counts(load_split().heldout_counts[:1])
    found = script(
        f"""
        const bytes = decode(model);
        const padded = new Uint8Array(bytes.length + 20);
        padded.set(bytes, 7);
        const session = await InferenceSession.create({source});
        const input = new Tensor('float32', image, [1, 1, 16, 16]);
        const {{ probabilities }} = await session.run({{ image: input }});
        await session.release();
        return {{ values: [...probabilities.data], dims: [...probabilities.dims],
                  kept: [bytes.length, padded.length, input.data.length] }};
        """,
        model=DIGITS.read_bytes(),
        image=image.ravel().tolist(),
    )
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image})
    np.testing.assert_allclose(np.reshape(found["values"], found["dims"]), expected, rtol=RTOL, atol=ATOL)
    size = DIGITS.stat().st_size
    assert found["kept"] == [size, size + 20, 256], "the caller's own arrays stay usable"


def test_metadata__symbolic_and_fixed_dimensions__as_in_onnxruntime_web(script: Script) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model));
        await session.release();
        const { inputNames, outputNames, inputMetadata, outputMetadata } = session;
        return { inputNames, outputNames, inputMetadata, outputMetadata };
        """,
        model=ADD_MUL,
    )
    assert found == {
        "inputNames": ["a", "b"],
        "outputNames": ["sum", "product"],
        "inputMetadata": [
            {"name": "a", "isTensor": True, "type": "float32", "shape": ["rows", 3]},
            {"name": "b", "isTensor": True, "type": "float32", "shape": [3]},
        ],
        "outputMetadata": [
            {"name": "sum", "isTensor": True, "type": "float32", "shape": ["rows", 3]},
            {"name": "product", "isTensor": True, "type": "float32", "shape": ["rows", 3]},
        ],
    }


@pytest.mark.parametrize(
    ("dtype", "tensor", "expected"),
    [
        (TensorProto.FLOAT, "'float32', [1.5, -0, 3], [3]", ("float32", "Float32Array", ["1.5", "0", "3"])),
        (TensorProto.DOUBLE, "'float64', [0.1, 2, 3], [3]", ("float64", "Float64Array", ["0.1", "2", "3"])),
        (TensorProto.INT64, "'int64', [-1n, 2n ** 40n], [2]", ("int64", "BigInt64Array", ["-1", "1099511627776"])),
        (TensorProto.INT32, "'int32', [-7, 8, 9], [3]", ("int32", "Int32Array", ["-7", "8", "9"])),
        (TensorProto.UINT8, "'uint8', [255, 1, 2], [3]", ("uint8", "Uint8Array", ["255", "1", "2"])),
        (TensorProto.BOOL, "'bool', [true, false, true], [3]", ("bool", "Uint8Array", ["1", "0", "1"])),
        (TensorProto.STRING, "['a', 'ü', '']", ("string", "Array", ["a", "ü", ""])),
    ],
)  # fmt: skip
def test_run__each_type__comes_back_as_it_went(
    script: Script, dtype: int, tensor: str, expected: tuple[str, str, list[str]]
) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    model = model_bytes(nodes, [tensor_info("x", ["n"], dtype)], [tensor_info("y", ["n"], dtype)])
    found = script(
        f"""
        const session = await InferenceSession.create(decode(model));
        const {{ y }} = await session.run({{ x: new Tensor({tensor}) }});
        await session.release();
        return facts(y);
        """,
        model=model,
    )
    assert (found["type"], found["array"], found["values"]) == expected
    assert found["dims"] == [len(expected[2])]


def test_run__fetches__gives_those_and_fills_given_tensors(script: Script) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model));
        const feeds = { a: new Tensor('float32', [1, 2, 3], [1, 3]), b: new Tensor('float32', [10, 20, 30]) };
        const named = await session.run(feeds, ['product']);
        const target = new Tensor('float32', new Float32Array(3), [1, 3]);
        const filled = await session.run(feeds, { sum: target, product: null }, { tag: 'second' });
        const optioned = await session.run(feeds, { tag: 'third' });
        await session.release();
        return { named: Object.keys(named), product: [...named.product.data], same: filled.sum === target,
                 sum: [...target.data], optioned: Object.keys(optioned) };
        """,
        model=ADD_MUL,
    )
    assert found == {
        "named": ["product"],
        "product": [10, 40, 90],
        "same": True,
        "sum": [11, 22, 33],
        "optioned": ["sum", "product"],
    }


def test_run__many_at_once_on_two_sessions__each_gets_its_own_answer(script: Script) -> None:
    found = script(
        """
        const sessions = await Promise.all([1, 2].map(() => InferenceSession.create(decode(model))));
        const b = new Tensor('float32', [0, 0, 1]);
        const sums = await Promise.all([...Array(16).keys()].map(async (i) => {
          const rows = 1 + i % 3;
          const a = new Tensor('float32', new Float32Array(rows * 3).fill(i), [rows, 3]);
          const { sum } = await sessions[i % 2].run({ a, b });
          return [...sum.data];
        }));
        await Promise.all(sessions.map((session) => session.release()));
        return sums;
        """,
        model=ADD_MUL,
    )
    assert found == [[i, i, i + 1] * (1 + i % 3) for i in range(16)]


@pytest.mark.parametrize(
    ("feeds", "name", "words"),
    [
        ("{ a }", "MissingInput", ["'b'"]),
        ("{ a, b, c: b }", "InvalidArgument", ["'c'"]),
        ("{ a, b: new Tensor('int32', [1, 2, 3]) }", "InvalidArgument", ["'b'", "tensor(int32)", "tensor(float)"]),
        ("{ a, b: new Tensor('float32', [1, 2]) }", "InvalidArgument", ["'b'", "[2]", "[3]"]),
        ("{ a, b: new Tensor('float32', [1], []) }", "InvalidArgument", ["'b'", "rank"]),
        ("{ a, b: [1, 2, 3] }", "TypeError", ["'b' must be a Tensor"]),
    ],
)
def test_run__wrong_feeds__fail_with_name_expected_and_got(
    script: Script, feeds: str, name: str, words: list[str]
) -> None:
    found = script(
        f"""
        const session = await InferenceSession.create(decode(model));
        const a = new Tensor('float32', [1, 2, 3], [1, 3]);
        const b = new Tensor('float32', [1, 2, 3]);
        const error = await failure(() => session.run({feeds}));
        const {{ sum }} = await session.run({{ a, b }});
        await session.release();
        return {{ error, after: [...sum.data] }};
        """,
        model=ADD_MUL,
    )
    assert found["error"]["name"] == name
    assert all(word in found["error"]["message"] for word in words), found["error"]["message"]
    assert found["after"] == [2, 4, 6], "the session survives"


UNKNOWN_OP = model_bytes(
    [helper.make_node("Frobnicate", ["x"], ["y"], name="the_node")], [tensor_info("x", [1])], [tensor_info("y", [1])]
)


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        ("new Uint8Array([60, 33, 68, 79, 67])", "InvalidProtobuf", []),
        ("decode(model).slice(0, -9)", "InvalidProtobuf", []),
        ("decode(model)", "NotImplemented", ["Frobnicate", "the_node"]),
        ("decode(model), { executionProviders: ['cuda'] }", "InvalidArgument", ["webgpu", "cuda"]),
        ("42", "TypeError", ["URL"]),
    ],
)
def test_create__bad_model__fails_with_onnxruntimes_name(
    script: Script, source: str, name: str, words: list[str]
) -> None:
    found = script(f"return failure(() => InferenceSession.create({source}))", model=UNKNOWN_OP)
    assert found["name"] == name, found
    assert all(word in found["message"] for word in words), found["message"]


def test_create__url_that_is_not_there__is_no_such_file(script: Script) -> None:
    script.guard.allow("404")
    found = script("return failure(() => InferenceSession.create('missing.onnx'))")
    assert found["name"] == "NoSuchFile"
    assert "missing.onnx" in found["message"]
    assert "404" in found["message"]


def test_create__external_data__is_read_from_the_given_files(script: Script) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "weights.bin"), ("offset", "4"), ("length", "12")):
        weight.external_data.add(key=key, value=value)
    model = model_bytes(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [tensor_info("x", [3])],
        [tensor_info("y", [3])],
        initializer=[weight],
    )
    found = script(
        """
        const externalData = [{ path: 'weights.bin', data: new Float32Array([9, 1, 2, 3]) }];
        const session = await InferenceSession.create(decode(model), { externalData });
        const { y } = await session.run({ x: new Tensor('float32', [10, 20, 30]) });
        await session.release();
        return [...y.data];
        """,
        model=model,
    )
    assert found == [11, 22, 33]


def test_create__free_dimension_override__is_enforced(script: Script) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model), { freeDimensionOverrides: { rows: 2 } });
        const error = await failure(() => session.run({
          a: new Tensor('float32', [1, 2, 3], [1, 3]), b: new Tensor('float32', [1, 2, 3]) }));
        await session.release();
        return error;
        """,
        model=ADD_MUL,
    )
    assert found["name"] == "InvalidArgument"


@pytest.mark.parametrize(
    ("providers", "expected"), [("['webgpu']", "WebGpuExecutionProvider"), ("['wasm']", "CPUExecutionProvider")]
)
def test_create__execution_providers__are_the_ones_used(script: Script, providers: str, expected: str) -> None:
    found = script(
        f"""
        const session = await InferenceSession.create(decode(model), {{ executionProviders: {providers} }});
        const {{ sum }} = await session.run({{
          a: new Tensor('float32', [1, 2, 3], [1, 3]), b: new Tensor('float32', [1, 2, 3]) }});
        const summary = await session.summary();
        await session.release();
        return {{ sum: [...sum.data], summary }};
        """,
        model=ADD_MUL,
    )
    assert found["sum"] == [2, 4, 6]
    summary = found["summary"]
    assert summary["providers"] == [expected]
    on_gpu = expected == "WebGpuExecutionProvider"
    assert [node["placement"] for node in summary["nodes"]] == ["gpu" if on_gpu else "host"] * 2
    assert (summary["memory"] is not None) is on_gpu
    assert (summary["adapter"] is not None) is on_gpu


def test_explain__digits__kernels_and_memory_over_time(script: Script) -> None:
    explained = script(
        """
        const session = await InferenceSession.create('../models/digits.onnx', { freeDimensionOverrides: { N: 1 } });
        const explanation = await session.explain();
        await session.release();
        return explanation;
        """
    )
    assert all("fn main" in kernel["wgsl"] for kernel in explained["kernels"])
    assert sum(kernel["count"] for kernel in explained["kernels"]) == explained["dispatches"]
    assert any("Conv" in fusion for fusion in explained["fusions"])
    memory = explained["memory"]
    assert max(t["offset"] + t["bytes"] for t in memory["tensors"]) == memory["peak"]


def test_operators__of_this_runtime__by_domain(script: Script) -> None:
    found = script("return operators()")
    assert {"Conv", "MatMul", "If"} <= set(found[""])
    assert "TreeEnsemble" in found["ai.onnx.ml"]
    assert "pyruntime" not in found


def test_release__twice_then_run__frees_and_refuses(script: Script) -> None:
    found = script(
        """
        const session = await InferenceSession.create(decode(model));
        await session.release();
        await session.release();
        return failure(() => session.run({}));
        """,
        model=ADD_MUL,
    )
    assert "released" in found["message"]


def test_adapter_info__of_this_browser__names_it(script: Script) -> None:
    found = script("return adapterInfo()")
    assert set(found) == {"vendor", "architecture", "device", "description"}
    assert found["vendor"]


def test_progress__first_session__tells_the_phases_once_each(page: Page, guard: Guard, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    events = Script(page, guard)(
        """
        const events = [];
        const onProgress = (event) => events.push(event);
        const session = await InferenceSession.create('../models/digits.onnx', { onProgress });
        await session.release();
        return events;
        """
    )
    ended = [event["phase"] for event in events if event["status"] == "end"]
    assert {"pyodide", "wheel", "import", "model"} <= set(ended)
    assert ended.index("pyodide") < ended.index("import")
    assert all(event["ms"] >= 0 for event in events if event["status"] == "end")
    loaded = [event for event in events if event["phase"] == "model" and event["status"] == "progress"]
    assert loaded[-1]["loaded"] == loaded[-1]["total"] == DIGITS.stat().st_size


def test_start__pyodide_is_elsewhere__fails_clearly_and_can_be_repeated(
    page: Page, guard: Guard, site_url: str
) -> None:
    guard.allow("404")
    page.goto(site_url + "e2e/blank.html")
    found = Script(page, guard)(
        """
        env.pyodideUrl = '/nowhere/';
        const errors = await Promise.all([failure(preload), failure(() => InferenceSession.create(decode(model)))]);
        env.pyodideUrl = undefined;
        await preload();
        return errors;
        """,
        model=ADD_MUL,
    )
    for error in found:
        assert "/nowhere/" in error["message"]
