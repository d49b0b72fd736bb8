"""Models as servers send them: in several files, in pieces, compressed, with connections that break."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.chain import NBYTES, ROW, RUN, X, begin, expected, loaded, model, weight
from e2e.harness.delivery import Delivery, Served
from e2e.harness.python import BrowserPython
from e2e.harness.script import Script
from tools.devkit.shell import ROOT


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


@pytest.fixture(scope="module")
def shared_python(browser: Browser, site_url: str) -> Iterator[BrowserPython]:
    with guarded_page(browser, site_url) as (page, guard):
        yield BrowserPython(page, guard, site_url)


def test_create__external_data_not_named__is_fetched_next_to_the_model(
    script: Script, served: dict[str, Served]
) -> None:
    served["/m/model.onnx"] = Served(
        model(3, {0: ("model.onnx_data", 0), 1: ("model.onnx_data_1", 4096), 2: ("./w/c d.bin", 0)})
    )
    served["/m/model.onnx_data"] = Served(weight(0))
    served["/m/model.onnx_data_1"] = Served(bytes(4096) + weight(1))
    served["/m/w/c%20d.bin"] = Served(weight(2))
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx?download=true#here"), expected(3))
    assert [file.asked for file in served.values()] == [[""]] * 4


def test_create__external_data_outside_the_folder__is_refused_and_not_asked_for(
    script: Script, served: dict[str, Served]
) -> None:
    served["/secret.bin"] = Served(weight(0))
    for location in ("../secret.bin", "/secret.bin", "w/../../secret.bin", "http://127.0.0.1/secret.bin"):
        served["/m/model.onnx"] = Served(model(1, {0: (location, 0)}))
        failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
        assert failed["name"] == "Fail" and "inside the model's directory" in failed["message"]
    served["/m/model.onnx"] = Served(model(1, {0: ("%2e%2e/secret.bin", 0)}))
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "NoSuchFile"
    assert served["/secret.bin"].asked == []


def test_create__external_data_that_is_not_there__names_file_and_address(
    script: Script, served: dict[str, Served]
) -> None:
    served["/m/model.onnx"] = Served(model(1, {0: ("model.onnx.data", 0)}))
    served["/m/model.onnx.data"] = Served(b"gone", status=404)
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "NoSuchFile"
    assert "'model.onnx.data'" in failed["message"] and "/m/model.onnx.data" in failed["message"]
    assert "404" in failed["message"]


def test_create__external_data_too_short__says_expected_and_got(script: Script, served: dict[str, Served]) -> None:
    served["/m/model.onnx"] = Served(model(1, {0: ("model.onnx.data", 0)}))
    served["/m/model.onnx.data"] = Served(weight(0)[:1000])
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "Fail"
    assert f"{NBYTES}" in failed["message"] and "1000" in failed["message"] and "model.onnx.data" in failed["message"]


@pytest.mark.parametrize("ranges", [True, False])
def test_create__connection_breaks__goes_on_from_there(script: Script, served: dict[str, Served], ranges: bool) -> None:
    served["/m/model.onnx"] = Served(model(4), ranges=ranges, breaks=[5_000_000, 3_000_001, 0])
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx"), expected(4))
    file = served["/m/model.onnx"]
    assert len(file.asked) == 4
    assert file.asked[0] == "" and all(asked.startswith("bytes=") for asked in file.asked[1:])
    if ranges:
        assert sum(file.sent) <= len(file.data) + (1 << 20)


def test_create__file_changed_while_it_was_read__is_read_anew_once(script: Script, served: dict[str, Served]) -> None:
    file = served["/m/model.onnx"] = Served(model(4), breaks=[5_000_000], changed='"two"')
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx"), expected(4))
    assert len(file.asked) == 3 and file.asked[2] == ""


def test_create__file_changed_whenever_it_was_read__is_an_error(script: Script, served: dict[str, Served]) -> None:
    breaks = [5_000_000, None, 5_000_000]
    file = served["/m/model.onnx"] = Served(model(4), breaks=breaks, changed='"two"', later='"three"')
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "Fail" and "changed while it was read" in failed["message"]
    assert '"two"' in failed["message"] and '"three"' in failed["message"] and len(file.asked) == 4


def test_create__connection_breaks_and_nothing_tells_the_file__says_how_far_it_came(
    script: Script, served: dict[str, Served]
) -> None:
    served["/m/model.onnx"] = Served(model(4), breaks=[5_000_000], etag=None)
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "Fail" and "/m/model.onnx" in failed["message"]
    assert f"of {len(served['/m/model.onnx'].data):,} bytes" in failed["message"]
    assert len(served["/m/model.onnx"].asked) == 1


@pytest.mark.parametrize("how", ["compressed", "chunked", "both"])
def test_create__length_unknown__loads(script: Script, served: dict[str, Served], how: str) -> None:
    options: dict[str, Any] = {"compressed": how != "chunked", "chunked": how != "compressed"}
    served["/m/model.onnx"] = Served(model(5, {4: ("model.onnx.data", 0)}), **options)
    served["/m/model.onnx.data"] = Served(weight(4), **options)
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx"), expected(5))


def test_create__compressed_and_broken__begins_anew_and_takes_what_is_missing(
    script: Script, served: dict[str, Served]
) -> None:
    rng = np.random.default_rng(0)
    noise = TensorProto(name="noise", data_type=TensorProto.FLOAT, dims=[1 << 20], raw_data=rng.bytes(4 << 20))
    made = onnx.load_from_string(model(4))
    made.graph.initializer.append(noise)
    served["/m/model.onnx"] = Served(made.SerializeToString(), compressed=True, breaks=[2_000_000])
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx"), expected(4))
    assert served["/m/model.onnx"].asked == ["", ""]


def test_create__weights_held_back__plans_and_compiles_meanwhile(script: Script, served: dict[str, Served]) -> None:
    """Four of five weights come only when the shaders have been asked for."""
    layers = 5
    served["/m/model.onnx"] = Served(model(layers, {i: ("model.onnx.data", i * NBYTES) for i in range(layers)}))
    served["/m/model.onnx.data"] = Served(b"".join(map(weight, range(layers))), gate=NBYTES)
    begin(script)
    assert served["/m/model.onnx.data"].comes_to(NBYTES)
    events = script.page.evaluate("events")
    assert "ready" not in events and "shaders end" not in events
    served["/m/model.onnx.data"].opened.set()
    values = script(f"{RUN} const s = await made; const y = await run(s); await s.release(); return y;", x=ROW)
    np.testing.assert_array_equal(np.float32(values), expected(layers))
    assert served["/m/model.onnx.data"].asked == [""]


def test_create__download_breaks_while_weights_go_to_the_gpu__is_that_error(
    script: Script, served: dict[str, Served]
) -> None:
    served["/m/model.onnx"] = Served(model(5, {i: ("model.onnx.data", i * NBYTES) for i in range(5)}))
    served["/m/model.onnx.data"] = Served(b"".join(map(weight, range(5))), etag=None, breaks=[2 * NBYTES])
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "Fail" and "model.onnx.data: the connection broke after" in failed["message"]


def test_create__run_of_another_session_meanwhile__does_not_wait_for_the_download(
    script: Script, served: dict[str, Served]
) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1 << 20]) for name in "xy")
    relu = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    made = helper.make_model(relu, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    served["/m/one.onnx"] = Served(made.SerializeToString())
    served["/m/model.onnx"] = Served(model(5, {i: ("model.onnx.data", i * NBYTES) for i in range(5)}))
    served["/m/model.onnx.data"] = Served(b"".join(map(weight, range(5))), gate=NBYTES)
    script("globalThis.one = await InferenceSession.create('/m/one.onnx');")
    begin(script)
    values = script(
        """const { y } = await one.run({ x: new Tensor(new Float32Array(1 << 20).fill(-2).fill(3, 100), [1 << 20]) });
        await one.release();
        return [y.data[99], y.data[100], y.data[(1 << 20) - 1]];"""
    )
    assert values == [0, 3, 3]
    served["/m/model.onnx.data"].opened.set()
    values = script(f"{RUN} const s = await made; const y = await run(s); await s.release(); return y;", x=ROW)
    np.testing.assert_array_equal(np.float32(values), expected(5))


def test_create__aborted_while_weights_come__ends_at_once(script: Script, served: dict[str, Served]) -> None:
    served["/m/model.onnx"] = Served(model(5, {i: ("model.onnx.data", i * NBYTES) for i in range(5)}))
    served["/m/model.onnx.data"] = Served(b"".join(map(weight, range(5))), gate=NBYTES)
    failed = script(
        """const controller = new AbortController();
        return failure(() => InferenceSession.create('/m/model.onnx', {
            signal: controller.signal,
            onProgress: ({ phase, status }) => phase === 'shaders' && status === 'begin' && controller.abort() }));"""
    )
    assert failed["name"] == "AbortError"
    served["/m/model.onnx.data"].opened.set()
    served["/m/one.onnx"] = Served(model(4))
    np.testing.assert_array_equal(loaded(script, "/m/one.onnx"), expected(4))


@pytest.mark.parametrize("broken", ["cut", "junk", "page"])
def test_create__large_file_that_is_no_model__is_refused(
    script: Script, served: dict[str, Served], broken: str
) -> None:
    whole = model(5)
    junk = np.random.default_rng(2).bytes(40 << 20)
    data = {"cut": whole[:-1000], "junk": whole[:100] + junk, "page": b"<!doctype html>" + b" " * (40 << 20)}[broken]
    served["/m/model.onnx"] = Served(data)
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "InvalidProtobuf"


def test_create__large_model__reads_nothing_from_disk_to_parse_it(script: Script, served: dict[str, Served]) -> None:
    script.preload()
    script.worker.evaluate(
        """() => {
            const { prototype } = FileReaderSync;
            const { readAsArrayBuffer } = prototype;
            globalThis.reads = 0;
            prototype.readAsArrayBuffer = function (blob) {
                globalThis.reads += 1;
                return readAsArrayBuffer.call(this, blob);
            };
        }"""
    )
    served["/m/model.onnx"] = Served(model(6))
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx"), expected(6))
    assert script.worker.evaluate("() => globalThis.reads") == 0


def test_python__url_with_external_data__is_fetched(
    python_in_browser: BrowserPython, served: dict[str, Served]
) -> None:
    served["/m/model.onnx"] = Served(model(2, {0: ("a b.bin", 0), 1: ("w/c.bin", 64)}))
    served["/m/a%20b.bin"] = Served(weight(0))
    served["/m/w/c.bin"] = Served(bytes(64) + weight(1))
    got = python_in_browser(
        """
        import pyruntime as ort
        session = await ort.InferenceSession.create("/m/model.onnx?download=true")
        (y,) = await session.run_async(None, {"x": x})
        session.release()
        {"y": y}
        """,
        x=X,
    )
    np.testing.assert_array_equal(got["y"].ravel(), expected(2))


def chatting(external: bool) -> tuple[bytes, bytes]:
    """A decoder of two heads and a vocabulary of 96, whose unused weight makes its files large: graph and weights."""
    rows = 100_000
    wide = TensorProto(name="embedding", data_type=TensorProto.FLOAT, dims=[rows, 96])
    data = np.random.default_rng(3).standard_normal((rows, 96)).astype(np.float32).tobytes()
    if external:
        wide.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "model.onnx_data", "offset": "0", "length": str(len(data))}.items():
            wide.external_data.add(key=key, value=value)
    else:
        wide.raw_data = data
    past: list[str | int | None] = ["batch", 2, "past", 48]
    present: list[str | int | None] = ["batch", 2, "total", 48]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]),
        helper.make_tensor_value_info("past_key_values.0.key", TensorProto.FLOAT, past),
    ]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "tokens", 96]),
        helper.make_tensor_value_info("present.0.key", TensorProto.FLOAT, present),
    ]
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["logits"]),
        helper.make_node("Reshape", ["logits", "split"], ["heads"]),
        helper.make_node("Transpose", ["heads"], ["rows"], perm=[0, 2, 1, 3]),
        helper.make_node("Concat", ["past_key_values.0.key", "rows"], ["present.0.key"], axis=2),
    ]
    split = helper.make_tensor("split", TensorProto.INT64, [4], [0, 0, 2, 48])
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, [split, wide]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    return bytes(made.SerializeToString()), data


@pytest.mark.parametrize("external", [True, False])
def test_text_generator__large_weights__are_fetched_once_by_who_uploads_them(
    script: Script, served: dict[str, Served], external: bool
) -> None:
    """The page leaves them to the worker, whose shaders are asked for while external data come."""
    script.guard.allow("404")  # generation_config.json
    graph, data = chatting(external)
    served["/chat/config.json"] = Served(b'{"model_type": "gpt2", "eos_token_id": 0}')
    served["/chat/onnx/model.onnx"] = Served(graph)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        served[f"/chat/{name}"] = Served((ROOT / "models" / "austen" / name).read_bytes())
    large = "/chat/onnx/model.onnx"
    if external:
        large = "/chat/onnx/model.onnx_data"
        served[large] = Served(data, gate=1 << 20)
    script.page.evaluate(
        """() => new Promise((resolve, reject) => {
            performance.clearResourceTimings();
            globalThis.events = [];
            const onProgress = ({ phase, status, file, loaded, total }) => {
                events.push([phase, status, file, loaded, total]);
                if (phase === 'shaders') resolve();
            };
            globalThis.made = import('/src/web/pyruntime.js').then(({ TextGenerator }) => (
                TextGenerator.create('/chat/', { dtype: 'fp32', onProgress })));
            made.then(resolve, reject);
        })"""
    )
    if external:
        assert max(served[large].sent) <= 1 << 20  # as far as the gate, or on the way there
        served[large].opened.set()
    ids, events, fetched = script(
        """const generator = await made;
        const pieces = [];
        for await (const { id } of generator.generate('It is', { temperature: 0, maxNewTokens: 3 })) pieces.push(id);
        await generator.release();
        const entries = performance.getEntriesByType('resource');
        return [pieces, events, entries.map(({ name }) => new URL(name).pathname)];"""
    )
    assert len(ids) >= 1
    heads = 0 if external else 1  # the page asks whether the graph is there, and how large it is
    assert fetched.count(large) == heads, "the page fetched what the worker fetches"
    assert len([asked for asked in served[large].asked if asked == ""]) == 1
    of_large = [event for event in events if event[0] == "file" and f"/chat/{event[2]}" == large]
    assert of_large[-1][1:2] + of_large[-1][3:] == ["end", len(served[large].data), len(served[large].data)]
