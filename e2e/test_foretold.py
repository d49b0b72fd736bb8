"""Where a file has its tensors, foretold from the types at its end; what is planned of a file in memory by that."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from e2e.harness.chain import BEGIN, FINISH, ROW, SIZE, expected, model
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script

LAYERS = 2
"""19 MB."""

FORETELL = """
const { Scanner } = await import('/web/loading/scanner.js');
const { foretell } = await import('/web/loading/foretold.js');
const bytes = new Uint8Array(await (await fetch('/m/file.onnx')).arrayBuffer());
const scanner = new Scanner(bytes.length);
scanner.push(bytes);
const at = Math.max(0, bytes.length - tail);
const told = foretell({ at, bytes: bytes.subarray(at) }, scanner.tensors, scanner.graphEnd);
return told && told.tensors.map(({ at: begin, head, end }) => [begin, begin + head.length, end]);
"""

FAIL = "return failure(() => InferenceSession.create('/m/model.onnx'))"


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


def raw(name: str, kind: int, dims: list[int], nbytes: int) -> TensorProto:
    content = bytes(range(256)) * (nbytes // 256 + 1)
    return TensorProto(name=name, data_type=kind, dims=dims, raw_data=content[:nbytes])


def tensors() -> list[TensorProto]:
    """Of every size of length, of all kinds of elements, without dimensions and without elements."""
    return [
        raw("w", TensorProto.FLOAT, [300, 200], 240_000),
        raw("scalar", TensorProto.FLOAT, [], 4),
        raw("empty", TensorProto.INT64, [0], 0),
        raw("gewicht_ä_重み", TensorProto.FLOAT16, [3, 1, 5], 30),
        raw("n" * 200, TensorProto.INT64, [2, 100], 1600),
        raw("bits", TensorProto.BOOL, [77], 77),
        raw("nibbles", TensorProto.UINT4, [3, 3], 5),
        raw("eight", TensorProto.FLOAT8E4M3FN, [130], 130),
        raw("complex", TensorProto.COMPLEX128, [2], 32),
        raw("large", TensorProto.DOUBLE, [400, 700], 2_240_000),
    ]


def typed(graph: GraphProto, order: list[str] | None = None) -> GraphProto:
    """The graph with the types of its tensors in front of others, and of those that `order` names."""
    kinds = {t.name: helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.initializer}
    infos = [kinds[name] for name in (order if order is not None else kinds)]
    others = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, ["batch", i]) for i in range(9)]
    graph.value_info.extend([*infos, *others])
    return graph


def file_of(graph: GraphProto) -> bytes:
    made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    made.metadata_props.add(key="by", value="hand" * 99)
    return bytes(made.SerializeToString())


def graph_of(initializers: list[TensorProto]) -> GraphProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="a" * 70_000)]
    return helper.make_graph(nodes, "g", [x], [y], initializers)


def foretold(script: Script, served: dict[str, Served], data: bytes, tail: int = 1 << 17) -> Any:
    served["/m/file.onnx"] = Served(data)
    return script(FORETELL, tail=tail)


@pytest.mark.parametrize("more", ["", "text", "metadata"])
def test_foretell__types_in_the_order_of_the_file__finds_every_tensor(
    script: Script, served: dict[str, Served], more: str
) -> None:
    graph = typed(graph_of(tensors()))
    if more == "text":
        graph.doc_string = "Z" * 5000 + "j\x05R\x02"
    elif more == "metadata":
        graph.metadata_props.add(key="k", value="v" * 300)
    data = file_of(graph)
    at = data.index(tensors()[0].SerializeToString()) - 4
    places = []
    for tensor in tensors():
        head = b"\x2a" + encoded(tensor.ByteSize())
        content = len(tensor.raw_data)
        end = at + len(head) + tensor.ByteSize()
        places.append([at, end - content, end])
        assert data[at : at + len(head)] == head
        at = end
    assert foretold(script, served, data) == places


def encoded(value: int) -> bytes:
    made = b""
    while value >= 128:
        made, value = made + bytes([value % 128 | 128]), value // 128
    return made + bytes([value])


@pytest.mark.parametrize(
    "how", ["untyped", "one is missing", "another type", "text", "typed data", "beside", "short tail"]
)
def test_foretell__end_that_does_not_tell__is_nothing(script: Script, served: dict[str, Served], how: str) -> None:
    made = tensors()
    names = [tensor.name for tensor in made]
    if how == "text":
        made[2].doc_string = "no more elements"
    elif how == "typed data":
        made[3] = helper.make_tensor(names[3], TensorProto.INT64, [3, 1, 5], np.ones(15))
    elif how == "beside":
        made[0].ClearField("raw_data")
        made[0].data_location = TensorProto.EXTERNAL
        made[0].external_data.add(key="location", value="w.bin")
    order = {"untyped": [], "one is missing": names[:-1]}.get(how, names)
    graph = typed(graph_of(made), order)
    if how == "another type":
        graph.value_info[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    assert foretold(script, served, file_of(graph), 300 if how == "short tail" else 1 << 17) is None


def test_rehearse__file_that_is_made_up__finds_its_graph(script: Script) -> None:
    assert script("return (await import('/web/loading/rehearsal.js')).rehearse()") is True


def test_create__types_at_the_end__plans_before_the_weights_of_a_file_in_memory_come(
    script: Script, served: dict[str, Served]
) -> None:
    """One request for the end is all: every weight is large, and their headers are known."""
    script.preload()
    file = served["/m/model.onnx"] = Served(model(LAYERS, typed=True), gate=1 << 20)
    script.page.evaluate(BEGIN)
    events = script.page.evaluate("events")
    assert "shaders begin" in events and "shaders end" not in events and "ready" not in events
    assert file.comes_to(1 << 20) and len(file.parts) == 1
    file.opened.set()
    np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(LAYERS))
    assert file.asked == [""]


def test_create__many_large_weights__asks_for_the_end_alone(script: Script, served: dict[str, Served]) -> None:
    script.preload()
    file = served["/m/model.onnx"] = Served(model(5, typed=True), gate=4 << 20)
    script.page.evaluate(BEGIN)
    assert "shaders begin" in script.page.evaluate("events") and file.comes_to(4 << 20) and len(file.parts) == 1
    file.opened.set()
    np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(5))


def test_create__types_in_another_order__is_planned_when_all_has_come(
    script: Script, served: dict[str, Served]
) -> None:
    made = onnx.load_from_string(model(LAYERS, typed=True))
    made.graph.value_info.extend([made.graph.value_info.pop(0)])
    script.preload()
    file = served["/m/model.onnx"] = Served(made.SerializeToString(), gate=1 << 20)
    script.page.evaluate(f"() => {{ ({BEGIN})().catch(() => {{}}); }}")
    script.page.wait_for_timeout(1500)
    assert "shaders begin" not in script.page.evaluate("events") and len(file.parts) == 1
    file.opened.set()
    np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(LAYERS))


@pytest.mark.parametrize("wrong", ["graph", "noise", "types"])
def test_create__end_is_of_another_file__session_is_that_of_the_stream(
    script: Script, served: dict[str, Served], wrong: str
) -> None:
    data = model(LAYERS, typed=True)
    made = onnx.load_from_string(data)
    made.graph.output[0].name = "z"
    other = {"graph": made.SerializeToString(), "noise": np.random.default_rng(0).bytes(len(data)), "types": data}[
        wrong
    ]
    if wrong == "types":  # as many bytes of another shape
        data = data.replace(
            b"\x08\x80\x0c\x08\x80\x0c\x10\x01\x42\x02w1", b"\x08\x80\x06\x08\x80\x18\x10\x01\x42\x02w1"
        )
        assert data != other and len(data) == len(other)
    script.preload()
    file = served["/m/model.onnx"] = Served(data, gate=1 << 20, other=other, etag=None)
    script.page.evaluate(f"() => {{ ({BEGIN})().catch(() => {{}}); }}")
    script.page.wait_for_timeout(1500)
    assert len(file.parts) == 1 and file.comes_to(1 << 20)
    file.opened.set()
    if wrong == "types":
        found = script("return failure(() => made)")
        assert f"got float[1,{SIZE}] and float[{SIZE // 2},{2 * SIZE}]" in found["message"]
    else:
        np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(LAYERS))


@pytest.mark.parametrize("etag", ['"one"', None])
def test_create__mistake_in_the_graph__is_told_early_where_the_server_vouches(
    script: Script, served: dict[str, Served], etag: str | None
) -> None:
    made = onnx.load_from_string(model(LAYERS, typed=True))
    made.graph.node[1].op_type = "Nonesuch"
    script.preload()
    file = served["/m/model.onnx"] = Served(made.SerializeToString(), gate=1 << 20, etag=etag)
    if etag is None:
        file.opened.set()
    failed = script(FAIL)
    assert failed["name"] == "NotImplemented" and "Nonesuch" in failed["message"]
    assert file.opened.is_set() == (etag is None)
    file.opened.set()


def between() -> bytes:
    """y = W₁ (x reshaped, and cut at the sum of a mask), all of which lies between large weights."""
    rng = np.random.default_rng(0)
    large = [
        numpy_helper.from_array(rng.standard_normal(1 << 20, np.float32).reshape(1024, -1), f"w{i}") for i in range(3)
    ]
    mask = numpy_helper.from_array(np.ones(25_000, np.float32), "mask")  # 100 KB: not asked for
    shape = numpy_helper.from_array(np.array([2, 1024], np.int64), "shape")
    nodes = [
        helper.make_node("Cast", ["mask"], ["bytes"], to=TensorProto.UINT8),
        helper.make_node("ReduceMax", ["bytes"], ["one"], keepdims=0),
        helper.make_node("Cast", ["one"], ["rows"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["rows", "axis"], ["end"]),
        helper.make_node("Reshape", ["x", "shape"], ["two"]),
        helper.make_node("Slice", ["two", "start", "end"], ["first"]),
        helper.make_node("MatMul", ["first", "w0"], ["a"]),
        helper.make_node("MatMul", ["a", "w1"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    zero = [numpy_helper.from_array(np.array([0], np.int64), name) for name in ("axis", "start")]
    inits = [large[0], shape, large[1], mask, *zero, large[2]]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2048])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1024])
    infos = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in inits]
    graph = helper.make_graph(nodes, "g", [x], [y], inits, value_info=infos)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


def test_create__values_between_large_weights__are_asked_for_or_waited_for(
    script: Script, served: dict[str, Served]
) -> None:
    data = between()
    script.preload()
    file = served["/m/model.onnx"] = Served(data, gate=1 << 20)
    script.page.evaluate(f"() => {{ ({BEGIN})().catch(() => {{}}); }}")
    script.page.wait_for_timeout(1500)
    assert "shaders begin" in script.page.evaluate("events")
    assert len(file.parts) == 3 and file.comes_to(1 << 20)
    assert sum(int(b) - int(a) + 1 for a, b in (p.removeprefix("bytes=").split("-") for p in file.parts)) < 1 << 18
    file.opened.set()
    check_between(script, data)


def wait_for(script: Script, event: str) -> None:
    """Until progress was told of it."""
    for _ in range(600):
        if event in script.page.evaluate("globalThis.events ?? []"):
            return
        script.page.wait_for_timeout(50)
    raise AssertionError(f"{event}: not heard")


def check_between(script: Script, data: bytes) -> None:
    """What the session `made` of `between` computes."""
    x = [float(v) for v in np.linspace(-1, 1, 2048)]
    got = script(
        """const s = await made; const { y } = await s.run({ x: new Tensor(Float32Array.from(x), [2048]) });
        await s.release(); return [...y.data];""",
        x=x,
    )
    weights = {
        t.name: numpy_helper.to_array(t).astype(np.float64) for t in onnx.load_from_string(data).graph.initializer
    }
    want = np.array(x[:1024]) @ weights["w0"] @ weights["w1"] @ weights["w2"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@pytest.mark.parametrize("first", ["values", "stream"])
def test_create__values_come_late__graph_is_read_before_them(
    script: Script, served: dict[str, Served], first: str
) -> None:
    data = between()
    script.preload()
    file = served["/m/model.onnx"] = Served(data, gate=1 << 20, held=1)
    script.page.evaluate(f"() => {{ ({BEGIN})().catch(() => {{}}); }}")
    wait_for(script, "parse end")
    script.page.wait_for_timeout(500)
    assert len(file.parts) == 3 and "shaders begin" not in script.page.evaluate("events")
    (file.released if first == "values" else file.opened).set()
    wait_for(script, "shaders begin")
    assert file.comes_to(1 << 20 if first == "values" else len(data))
    file.released.set()
    file.opened.set()
    check_between(script, data)
    assert script.page.evaluate("events").count("parse begin") == 1


def test_create__outline_was_of_another_file__session_is_that_of_the_stream(
    script: Script, served: dict[str, Served]
) -> None:
    """The values that would tell are there too late; the graph was read by then."""
    data = between()
    narrow, wide = (b"\x08\x80" + sizes + b"\x10\x01\x42\x02w1" for sizes in (b"\x08\x08\x80\x08", b"\x04\x08\x80\x10"))
    assert data.count(narrow) == 1
    script.preload()
    file = served["/m/model.onnx"] = Served(data.replace(narrow, wide), gate=1 << 20, other=data, held=1, etag=None)
    script.page.evaluate(f"() => {{ ({BEGIN})().catch(() => {{}}); }}")
    wait_for(script, "parse end")
    file.opened.set()
    found = script("return failure(() => made)")
    file.released.set()
    assert script.page.evaluate("events").count("parse begin") == 2
    assert "got float[1,1024] and float[512,2048]" in found["message"]
