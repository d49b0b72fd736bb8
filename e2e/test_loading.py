"""Models as servers send them: in several files, in pieces, compressed, with connections that break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser

from e2e.conftest import HERE
from e2e.harness.browser import guarded_page
from e2e.harness.delivery import Delivery, Served
from e2e.harness.python import BrowserPython
from e2e.harness.script import Script
from pyruntime.onnx.reader import read_model
from pyruntime.onnx.source import Buffer, ByteSource
from tests.onnx.compare import compare_model
from tools.devkit.shell import ROOT

SIZE = 1536
NBYTES = SIZE * SIZE * 4
X = np.linspace(-1, 1, SIZE, dtype=np.float32).reshape(1, SIZE)
ROW = [float(v) for v in X.ravel()]

RUN = """
const run = async (session) => {
    const { y } = await session.run({ x: new Tensor(Float32Array.from(x), [1, x.length]) });
    return [...y.data];
};
"""


def weight(layer: int) -> bytes:
    """raw_data of the identity matrix times `layer + 1`, its columns reversed."""
    return ((layer + 1) * np.eye(SIZE, dtype=np.float32)[:, ::-1]).tobytes()


def model(layers: int, files: dict[int, tuple[str, int]] | None = None) -> bytes:
    """y = x W₀ W₁ ...; `files` has the file and the offset of those weights that are elsewhere."""
    weights = []
    for i in range(layers):
        tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT)
        tensor.dims.extend([SIZE, SIZE])
        if files and i in files:
            location, offset = files[i]
            tensor.data_location = TensorProto.EXTERNAL
            entries = {"location": location, "offset": str(offset), "length": str(NBYTES)}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
        else:
            tensor.raw_data = weight(i)
        weights.append(tensor)
    names = ["x", *(f"h{i}" for i in range(1, layers)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(layers)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIZE]) for name in "xy")
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    return bytes(made.SerializeToString())


def expected(layers: int) -> np.ndarray[Any, Any]:
    y = X.ravel()
    for i in range(layers):
        y = (i + 1) * y[::-1]
    return y


@pytest.fixture(scope="module")
def delivery(site: Path) -> Iterator[Delivery]:
    with Delivery({"/": site, "/e2e/": HERE / "pages", "/harness/": HERE / "harness"}) as server:
        yield server


@pytest.fixture(scope="module")
def shared_script(browser: Browser, delivery: Delivery) -> Iterator[Script]:
    with guarded_page(browser, delivery.url) as (page, guard):
        page.goto(delivery.url + "e2e/blank.html")
        yield Script(page, guard)


@pytest.fixture(scope="module")
def shared_python(browser: Browser, delivery: Delivery) -> Iterator[BrowserPython]:
    with guarded_page(browser, delivery.url) as (page, guard):
        yield BrowserPython(page, guard, delivery.url)


@pytest.fixture
def served(delivery: Delivery) -> Iterator[dict[str, Served]]:
    delivery.served.clear()
    yield delivery.served
    for file in delivery.served.values():
        file.opened.set()
    delivery.served.clear()


def loaded(script: Script, url: str, options: str = "") -> np.ndarray[Any, Any]:
    values = script(
        f"{RUN} const s = await InferenceSession.create(url{options}); const y = await run(s); "
        "await s.release(); return y;",
        url=url,
        x=ROW,
    )
    return np.array(values, np.float32)


def test_create__external_data_nobody_named__is_fetched_from_beside(script: Script, served: dict[str, Served]) -> None:
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


def test_create__file_changed_while_it_was_read__is_an_error(script: Script, served: dict[str, Served]) -> None:
    served["/m/model.onnx"] = Served(model(4), breaks=[5_000_000], changed='"two"')
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "Fail" and "changed while it was read" in failed["message"]
    assert '"one"' in failed["message"] and '"two"' in failed["message"]


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


def test_create__weights_behind_a_gate__plans_and_compiles_meanwhile(script: Script, served: dict[str, Served]) -> None:
    """Four of five weights come only when the shaders have been asked for."""
    layers = 5
    served["/m/model.onnx"] = Served(model(layers, {i: ("model.onnx.data", i * NBYTES) for i in range(layers)}))
    served["/m/model.onnx.data"] = Served(b"".join(map(weight, range(layers))), gate=NBYTES)
    script.page.evaluate(
        """() => new Promise((resolve, reject) => {
            globalThis.events = [];
            globalThis.made = import('/web/pyruntime.js').then(({ InferenceSession }) => (
                InferenceSession.create('/m/model.onnx', { onProgress: ({ phase, status }) => {
                    events.push(`${phase} ${status}`);
                    if (phase === 'shaders' && status === 'begin') setTimeout(resolve, 500);
                } })));
            made.then(() => events.push('ready'), reject);
        })"""
    )
    assert served["/m/model.onnx.data"].sent == [NBYTES]
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
    values = script(
        """const one = await InferenceSession.create('/m/one.onnx');
        const begun = new Promise((resolve) => {
            globalThis.other = InferenceSession.create('/m/model.onnx', {
                onProgress: ({ phase }) => phase === 'shaders' && setTimeout(resolve, 500) });
        });
        await begun;
        const { y } = await one.run({ x: new Tensor(new Float32Array(1 << 20).fill(-2).fill(3, 100), [1 << 20]) });
        await one.release();
        return [y.data[99], y.data[100], y.data[(1 << 20) - 1]];"""
    )
    assert values == [0, 3, 3]
    served["/m/model.onnx.data"].opened.set()
    values = script(f"{RUN} const s = await other; const y = await run(s); await s.release(); return y;", x=ROW)
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


class Segments(ByteSource):
    """A file of which only these parts, (offset, length), are to be read; `outside` counts what is asked for else."""

    smallest_window = 1 << 15

    def __init__(self, data: bytes, kept: list[tuple[int, int]]) -> None:
        super().__init__(len(data))
        self.data, self.parts, self.outside = data, kept, 0

    def fetch(self, offset: int, length: int) -> bytes:
        if not any(at <= offset and offset + length <= at + size for at, size in self.parts):
            self.outside += 1
        return self.data[offset : offset + length]

    def window(self, offset: int, minimum: int = 1) -> tuple[Buffer, int]:
        for at, size in self.parts:
            if at <= offset and offset + min(minimum, self.size - offset) <= at + size:
                return self.data[at : at + size], at
        return super().window(offset, minimum)


def varied() -> bytes:
    """Large tensors in every place a file has for them: raw, typed, in attributes, subgraphs, functions, sparse."""
    rng = np.random.default_rng(1)
    floats = [
        TensorProto(
            name=f"t{i}",
            data_type=TensorProto.FLOAT,
            dims=[n // 4],
            raw_data=rng.standard_normal(n // 4).astype(np.float32).tobytes(),
        )
        for i, n in enumerate((60_000, 65_536, 262_148, 300_000, 12, 0, 600_000))
    ]
    typed = [
        helper.make_tensor("f", TensorProto.FLOAT, [70_000], rng.standard_normal(70_000).astype(np.float32)),
        helper.make_tensor("i", TensorProto.INT64, [70_000], rng.integers(-9, 1 << 60, 70_000)),
        TensorProto(name="s", data_type=TensorProto.STRING, dims=[2], string_data=[b"a" * 70_000, b"b"]),
    ]
    inner = helper.make_graph([helper.make_node("Identity", ["big"], ["out"])], "inner", [], [], [floats[3]])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=floats[6], name="n" * 300),
        helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner),
        helper.make_node("F", ["x"], ["w"], domain="d", notes="m" * 100_000),
    ]
    function = helper.make_function(
        "d",
        "F",
        ["x"],
        ["w"],
        [helper.make_node("Constant", [], ["w"], value=floats[2])],
        [helper.make_opsetid("", 17)],
    )
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [70_000], np.ones(70_000, np.float32), raw=False),
        helper.make_tensor("v_i", TensorProto.INT64, [70_000], np.arange(70_000)),
        [1 << 20],
    )
    graph = helper.make_graph(
        nodes, "g", [], [], [*floats, *typed], doc_string="d" * 90_000, sparse_initializer=[sparse]
    )
    made = helper.make_model(graph, functions=[function], opset_imports=[helper.make_opsetid("", 17)])
    made.metadata_props.add(key="k", value="v" * 80_000)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("step", [1 << 20, 65_536, 4097, 19, 1])
def test_scanner__chunks_of_any_size__keeps_what_reading_the_graph_takes(
    script: Script, served: dict[str, Served], step: int
) -> None:
    data = varied()
    served["/m/file.onnx"] = Served(data)
    kept, right = script(
        """const { Scanner } = await import('/web/loading/scanner.js');
        const bytes = new Uint8Array(await (await fetch('/m/file.onnx')).arrayBuffer());
        const scanner = new Scanner();
        for (let at = 0; at < bytes.length; at += step) scanner.push(bytes.slice(at, at + step));
        scanner.end();
        const { segments } = scanner;
        const right = segments.every(({ at, bytes: part }) => part.every((value, i) => value === bytes[at + i]));
        return [segments.map(({ at, bytes: part }) => [at, part.length]), right];""",
        step=step,
    )
    assert right
    source = Segments(data, [(at, size) for at, size in kept])
    record = read_model(source)
    assert source.outside == 0
    compare_model(record, onnx.load_from_string(data))
    assert sum(size for _, size in kept) < 800_000 < len(data) / 3


def test_scanner__hundreds_of_tensors_that_may_be_folded__keeps_no_more_than_the_first(
    script: Script, served: dict[str, Served]
) -> None:
    part = np.zeros(32_768, np.float32)
    tensors = [TensorProto(name=f"t{i}", data_type=1, dims=part.shape, raw_data=part.tobytes()) for i in range(200)]
    served["/m/file.onnx"] = Served(helper.make_model(helper.make_graph([], "g", [], [], tensors)).SerializeToString())
    nbytes = script(
        """const { Scanner } = await import('/web/loading/scanner.js');
        const scanner = new Scanner();
        scanner.push(new Uint8Array(await (await fetch('/m/file.onnx')).arrayBuffer()));
        scanner.end();
        return scanner.nbytes;"""
    )
    assert 64 * part.nbytes <= nbytes < 65 * part.nbytes


def test_scanner__tensor_of_more_than_4_gib__counts_right(script: Script) -> None:
    size = 5 << 30
    small = TensorProto(name="after", data_type=TensorProto.FLOAT, dims=[1], raw_data=bytes(4)).SerializeToString()
    head = TensorProto(name="big", data_type=TensorProto.FLOAT, dims=[size // 4]).SerializeToString() + field(9, size)
    tensor = field(5, len(head) + size) + head
    after = field(5, len(small)) + small
    front = field(7, len(tensor) + size + len(after)) + tensor
    kept = script(
        """const { Scanner } = await import('/web/loading/scanner.js');
        const scanner = new Scanner();
        scanner.push(decode(front));
        const zeros = new Uint8Array(64 << 20);
        for (let at = 0; at < size; at += zeros.length) scanner.push(zeros);
        scanner.push(decode(after));
        scanner.end();
        return scanner.segments.map(({ at, bytes }) => [at, bytes.length]);""",
        front=front,
        after=after,
        size=size,
    )
    assert kept == [[0, 512], [len(front) + size, len(after)]]


def field(number: int, size: int) -> bytes:
    """Tag and length of a length-delimited field."""
    out = bytearray([number << 3 | 2])
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size])


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
    script("await preload()")
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


def test_python__url_with_data_beside__is_fetched(python_in_browser: BrowserPython, served: dict[str, Served]) -> None:
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
            globalThis.made = import('/web/pyruntime.js').then(({ TextGenerator }) => (
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
