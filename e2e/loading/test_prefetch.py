"""A model file that is planned before its weights have come: what follows them is prefetched by range requests."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.harness.chain import BEGIN, FINISH, NBYTES, ROW, SIZE, begin, expected, loaded, model, weight
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script
from pyruntime.compiler.constants import HEAVY

LAYERS = 8
MANY = 704

FEED = "const s = await made; const feeds = { x: new Tensor(Float32Array.from(x), [1, x.length]) };"

COUNT = """async () => {
    const { prototype } = (await import('/src/web/loading/file.js')).ModelFile;
    const { partNow } = prototype;
    globalThis.waits = 0;
    globalThis.partNow ??= partNow;
    prototype.partNow = function (...asked) {
        const found = globalThis.partNow.call(this, ...asked);
        if (!found) globalThis.waits += 1;
        return found;
    };
}"""
"""Counts what Python asks for before it is there: each time it plans once more."""


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


def test_create__weights_held_back__plans_and_compiles_meanwhile(script: Script, served: dict[str, Served]) -> None:
    """Of 75 MB four come before the graph's inputs, which are the last bytes of the file."""
    file = served["/m/model.onnx"] = Served(model(LAYERS), gate=4 << 20)
    begin(script)
    events = script.page.evaluate("events")
    assert "shaders begin" in events and "shaders end" not in events and "ready" not in events
    assert file.comes_to(4 << 20)
    file.opened.set()
    np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(LAYERS))
    assert file.asked == [""] and len(file.parts) == LAYERS
    assert sum(int(b) - int(a) + 1 for a, b in (p.removeprefix("bytes=").split("-") for p in file.parts)) < 1 << 20


@pytest.mark.parametrize("how", [{"ranges": False}, {"compressed": True}, {"chunked": True}])
def test_create__server_without_ranges_or_size__loads_as_it_comes(
    script: Script, served: dict[str, Served], how: dict[str, bool]
) -> None:
    file = served["/m/model.onnx"] = Served(model(LAYERS), **how)  # type: ignore[arg-type]
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx"), expected(LAYERS))
    assert file.parts == [] and len(file.asked) <= 2


def wait_for_parts(script: Script, file: Served, number: int) -> None:
    """Wait until so many parts of the file were asked for, and what follows from these is done."""
    for _ in range(600):
        if len(file.parts) >= number:
            break
        script.page.wait_for_timeout(100)
    script.wait_until_idle()


@pytest.mark.parametrize(
    ("wrong", "etag", "parts"),
    [
        ("graph", None, LAYERS),
        ("graph", 'W/"one"', LAYERS),
        ("graph", '"two"', 1),
        ("noise", None, 2),
        ("short", None, 1),
    ],
)
def test_create__parts_are_of_another_file__session_is_that_of_the_stream(
    script: Script, served: dict[str, Served], wrong: str, etag: str | None, parts: int
) -> None:
    """Where a tag or a size tells, no more of them are asked for."""
    data = model(LAYERS)
    made = onnx.load_from_string(data)
    made.graph.node[0].input[1], made.graph.node[1].input[1] = "w1", "w0"
    del made.graph.output[:]
    made.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, SIZE]))
    made.graph.node[LAYERS - 1].output[0] = "z"
    other = {
        "graph": made.SerializeToString(),
        "noise": np.random.default_rng(0).bytes(len(data)),
        "short": data[:-100],
    }[wrong]
    script.preload()
    file = served["/m/model.onnx"] = Served(data, gate=4 << 20, other=other, other_etag=etag)
    script.page.evaluate(f"() => {{ ({BEGIN})().catch(() => {{}}); }}")
    wait_for_parts(script, file, parts)
    assert file.comes_to(4 << 20) and len(file.parts) == parts
    file.opened.set()
    np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(LAYERS))


def bad(how: str) -> bytes:
    """The model with a mistake: in its graph, or after its weights, or less of it than it says."""
    data = model(LAYERS)
    if how in ("text", "end", "cut"):
        return {"text": data.replace(b"h1", b"\xff\xfe"), "end": data[:-4] + b"\x07" * 4, "cut": data[:-1000]}[how]
    made = onnx.load_from_string(data)
    if how == "operator":
        made.graph.node[1].op_type = "Nonesuch"
    elif how == "name":
        made.graph.node[1].input[0] = "nowhere"
    elif how == "shape":
        made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = SIZE + 1
    return bytes(made.SerializeToString())


def refusal(script: Script, served: dict[str, Served], data: bytes) -> dict[str, str]:
    """Name and message of the error that these bytes are refused with, when all are there."""
    served["/m/bytes"] = Served(data)
    found: dict[str, str] = script(
        "const bytes = await (await fetch('/m/bytes')).arrayBuffer(); "
        "return failure(() => InferenceSession.create(bytes));"
    )
    del served["/m/bytes"]
    return {key: found[key] for key in ("name", "message")}


FAIL = """() => {
    globalThis.told = false;
    globalThis.failed = import('/src/web/pyruntime.js').then(({ InferenceSession }) => (
        InferenceSession.create('/m/model.onnx'))).then(
            () => null, ({ name, message }) => { globalThis.told = true; return { name, message }; });
}"""

FAILED = "Promise.race([failed, new Promise((resolve) => { setTimeout(resolve, 60000, 'nothing is told'); })])"


@pytest.mark.parametrize("how", ["operator", "name", "shape", "text", "end"])
def test_create__bad_graph_and_one_strong_tag__is_told_before_the_weights_come(
    script: Script, served: dict[str, Served], how: str
) -> None:
    expected_error = refusal(script, served, bad(how))
    file = served["/m/model.onnx"] = Served(bad(how), gate=4 << 20)
    script.page.evaluate(FAIL)
    assert script.page.evaluate(FAILED) == expected_error
    assert file.asked == [""] and file.sent[0] <= 4 << 20 and 1 <= len(file.parts) <= LAYERS
    file.opened.set()
    assert file.left.wait(30) and sum(file.sent) < len(file.data), "the rest was not wanted any more"


@pytest.mark.parametrize("etag", [None, 'W/"one"'])
def test_create__bad_graph_and_no_strong_tag__is_told_when_all_has_come(
    script: Script, served: dict[str, Served], etag: str | None
) -> None:
    expected_error = refusal(script, served, bad("operator"))  # Python is up, too
    file = served["/m/model.onnx"] = Served(bad("operator"), gate=4 << 20, etag=etag)
    script.page.evaluate(FAIL)
    wait_for_parts(script, file, LAYERS)
    assert not script.page.evaluate("told") and len(file.parts) == LAYERS
    file.opened.set()
    assert script.page.evaluate(FAILED) == expected_error
    assert file.sent == [len(file.data)] and not file.left.is_set()


@pytest.mark.parametrize("what", ["cut", "page", "noise", "GGUF"])
def test_create__no_model__is_told_by_its_beginning(script: Script, served: dict[str, Served], what: str) -> None:
    """Nothing is asked for: it is the stream that says so, of a size that counts."""
    rest = np.random.default_rng(0).bytes(40 << 20)
    data = {"cut": bad("cut"), "page": b"<!doctype html>" + b" " * (40 << 20), "noise": rest, "GGUF": b"GGUF" + rest}[
        what
    ]
    expected_error = refusal(script, served, data)
    file = served["/m/model.onnx"] = Served(data, gate=2 << 20, etag=None)
    script.page.evaluate(FAIL)
    assert script.page.evaluate(FAILED) == expected_error and expected_error["name"] == "InvalidProtobuf"
    assert file.asked == [""] and file.sent[0] <= 2 << 20 and file.parts == []


SHOWN = """
const { Requests } = await import('/src/web/loading/requests.js');
const { fetch } = globalThis;
globalThis.fetch = async () => new Response(new Uint8Array(1), { status: 206, headers });
try {
  const requests = new Requests('/m/model.onnx', { size: 1000, isExact, tag }, new AbortController().signal);
  await requests.bytes(999, 1000).catch(() => {});
  return requests.areOfOneFile;
} finally {
  globalThis.fetch = fetch;
}
"""

RANGE = {"Content-Range": "bytes 999-999/1000"}
ONE = {"ETag": '"one"'}


@pytest.mark.parametrize(
    ("tag", "exact", "headers", "vouched"),
    [
        ('"one"', True, ONE | RANGE, True),
        ('"one"', False, ONE | RANGE, True),
        ('"one"', True, ONE, True),
        ('"one"', False, ONE, False),
        ('"one"', True, RANGE, False),
        ('"one"', True, RANGE | {"ETag": '"two"'}, False),
        ('"one"', True, RANGE | {"ETag": 'W/"one"'}, False),
        ('"one"', True, ONE | {"Content-Range": "bytes 999-999/1001"}, False),
        ("", True, ONE | RANGE, False),
    ],
)
def test_are_of_one_file__what_the_server_shows__takes_a_strong_tag_and_a_size(
    script: Script, tag: str, exact: bool, headers: dict[str, str], vouched: bool
) -> None:
    """What other origins show is chosen by them; without Content-Range the size may be that of a compressed form."""
    assert script(SHOWN, tag=tag, isExact=exact, headers=headers) == vouched


def test_model_file__given_out_by_a_size_that_was_wrong__was_misread(script: Script) -> None:
    """The size is that of a compressed form; what was said of the file by it is not certain before all has come."""
    certain, misread = script(
        """const { ModelFile } = await import('/src/web/loading/file.js');
        const { Scanner } = await import('/src/web/onnx/scanner.js');
        let open = () => {};
        const gate = new Promise((resolve) => { open = resolve; });
        const chunks = async function* () {
          yield new Uint8Array(50).fill(7);
          await gate;
          yield new Uint8Array(60);
        };
        const { Download } = await import('/src/web/loading/download.js');
        const file = new ModelFile('m', { size: 100, isExact: false });
        const taken = new Download('m', 100, file, null, new Scanner()).take(chunks());
        await file.readable();
        let isCertain = false;
        const certain = file.certain().then(() => { isCertain = true; });
        await new Promise((resolve) => { setTimeout(resolve); }); // all that needs no more bytes is done
        const before = isCertain;
        open();
        await Promise.all([taken, certain]);
        return [before, file.wasMisread];"""
    )
    assert not certain and misread


def test_create__aborted_while_it_reads_ahead__ends_and_asks_no_more(script: Script, served: dict[str, Served]) -> None:
    file = served["/m/model.onnx"] = Served(model(LAYERS), gate=4 << 20)
    failed = script(
        """const controller = new AbortController();
        return failure(() => InferenceSession.create('/m/model.onnx', {
            signal: controller.signal,
            onProgress: ({ phase, status }) => phase === 'shaders' && status === 'begin' && controller.abort() }));"""
    )
    assert failed["name"] == "AbortError"
    file.opened.set()
    served["/m/one.onnx"] = Served(model(4))
    np.testing.assert_array_equal(loaded(script, "/m/one.onnx"), expected(4))
    assert len(file.parts) == LAYERS


def test_create__many_tensors_between_large_ones__few_requests(script: Script, served: dict[str, Served]) -> None:
    """Small tensors after each large one come together with it; the end of the file is reached in time."""
    made = onnx.load_from_string(model(LAYERS))
    weights = list(made.graph.initializer)
    del made.graph.initializer[:]
    rng = np.random.default_rng(0)
    for i in range(MANY):
        if i % (MANY // LAYERS) == 0:
            made.graph.initializer.append(weights[i // (MANY // LAYERS)])
        made.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(500).astype(np.float32), f"s{i}"))
        if i < 3:  # some are used
            name = f"a{i}"
            made.graph.node.append(helper.make_node("ReduceSum", [f"s{i}"], [name], keepdims=0))
            made.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, []))
    file = served["/m/model.onnx"] = Served(made.SerializeToString(), gate=4 << 20)
    begin(script)
    file.opened.set()
    np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(LAYERS))
    assert LAYERS <= len(file.parts) <= 6 * LAYERS


def test_create__hundreds_of_tensors_of_a_hundred_kilobytes__little_comes_twice(
    script: Script, served: dict[str, Served]
) -> None:
    made = onnx.load_from_string(model(LAYERS))
    part = np.zeros(25_000, np.float32)
    for i in range(300):
        made.graph.initializer.append(numpy_helper.from_array(part, f"s{i}"))
    file = served["/m/model.onnx"] = Served(made.SerializeToString())
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx"), expected(LAYERS))
    ranges = [p.removeprefix("bytes=").split("-") for p in file.parts]
    assert sum(int(b) - int(a) + 1 for a, b in ranges) <= len(file.data) / 8 and len(ranges) < 100


@pytest.mark.parametrize(("kind", "width", "waits"), [(np.float32, 4, 0), (np.int64, 8, 0), (np.float32, 16, 1)])
def test_create__planning_folds_a_table__plans_once_where_a_mask_is_small(
    script: Script, served: dict[str, Served], kind: type[np.generic], width: int, waits: int
) -> None:
    """Masks that are folded have up to `HEAVY` bytes, one an element; what they are made from has `width` for each."""
    count = width * HEAVY // np.dtype(kind).itemsize
    made = onnx.load_from_string(model(LAYERS))
    made.graph.initializer.append(numpy_helper.from_array((np.arange(count) % 3).astype(kind), "table"))
    made.graph.initializer.append(numpy_helper.from_array(np.array(2, kind), "two"))
    made.graph.node.append(helper.make_node("Equal", ["table", "two"], ["mask"]))
    made.graph.node.append(helper.make_node("Cast", ["mask"], ["ones"], to=TensorProto.FLOAT))
    made.graph.node.append(helper.make_node("ReduceSum", ["ones"], ["sum"], keepdims=0))
    made.graph.output.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, []))
    file = served["/m/model.onnx"] = Served(made.SerializeToString(), gate=4 << 20)
    script.preload()
    script.worker.evaluate(COUNT)
    begin(script)
    planned_ahead = script.worker.evaluate("() => waits")
    file.opened.set()
    found = script(
        f"{FEED} const r = await s.run(feeds); await s.release(); return [r.sum.data[0], ...r.y.data];", x=ROW
    )
    assert found[0] == count // 3
    np.testing.assert_array_equal(np.float32(found[1:]), expected(LAYERS))
    assert script.worker.evaluate("() => waits") == planned_ahead == waits
    assert len(file.parts) <= LAYERS + 3


def test_create__planning_wants_a_large_constant__waits_for_it(script: Script, served: dict[str, Served]) -> None:
    """What is gathered is known when it is planned: 8 MB of numbers after other 38 MB."""
    made = onnx.load_from_string(model(4))
    count = 1 << 20
    table = numpy_helper.from_array(np.arange(count, dtype=np.int64), "table")
    made.graph.initializer.append(table)
    made.graph.initializer.append(numpy_helper.from_array(np.array([SIZE], np.int64), "where"))
    made.graph.node.append(helper.make_node("Gather", ["table", "where"], ["wide"]))
    one = numpy_helper.from_array(np.array([1], np.int64), "one")
    made.graph.initializer.append(one)
    made.graph.node.append(helper.make_node("Concat", ["one", "wide"], ["shape"], axis=0))
    made.graph.node.append(helper.make_node("Reshape", ["y", "shape"], ["z"]))
    made.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["a", "b"]))
    file = served["/m/model.onnx"] = Served(made.SerializeToString(), gate=4 << 20)
    script.preload()
    script.worker.evaluate(COUNT)
    script.page.evaluate(f"() => {{ ({BEGIN})().catch(() => {{}}); }}")
    script.wait_for("waits > 0")
    file.opened.set()
    z = script(
        "const s = await made; const r = await s.run({ x: new Tensor(Float32Array.from(x), [1, x.length]) }); "
        "await s.release(); return [[...r.z.data], r.z.dims];",
        x=ROW,
    )
    np.testing.assert_array_equal(np.float32(z[0]), expected(4))
    assert z[1] == [1, SIZE]


def test_create__weights_inside_and_in_another_file__come_in_parallel(
    script: Script, served: dict[str, Served]
) -> None:
    file = served["/m/model.onnx"] = Served(model(LAYERS + 1, {LAYERS: ("model.onnx.data", 0)}), gate=4 << 20)
    served["/m/model.onnx.data"] = Served(weight(LAYERS))
    begin(script)
    assert served["/m/model.onnx.data"].comes_to(NBYTES) and "ready" not in script.page.evaluate("events")
    file.opened.set()
    np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(LAYERS + 1))
