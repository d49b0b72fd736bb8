"""Where a model file has its tensors, by the types at its end; what is read ahead of the stream by that."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, TensorProto, helper, numpy_helper

from e2e.harness.chain import BEGIN, FINISH, ROW, SIZE, expected, model
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script

LAYERS = 5
"""47 MB."""

PLACES = """
const { Scanner } = await import('/src/web/onnx/scanner.js');
const { placesOf } = await import('/src/web/loading/tensor_layout.js');
const bytes = new Uint8Array(await (await fetch('/m/file.onnx')).arrayBuffer());
const scanner = new Scanner(bytes.length);
scanner.push(bytes);
const at = Math.max(0, bytes.length - tail);
const found = placesOf({ at, bytes: bytes.subarray(at) }, scanner.graph);
return found && found.map(({ at: begin, head, end }) => [begin, begin + head.length, end]);
"""


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
    """The graph with the types of its tensors before others, and of those that `order` names."""
    kinds = {t.name: helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.initializer}
    infos = [kinds[name] for name in (order if order is not None else kinds)]
    others = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, ["batch", i]) for i in range(9)]
    graph.value_info.extend([*infos, *others])
    return graph


def graph_of(initializers: list[TensorProto]) -> GraphProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="a" * 70_000)]
    return helper.make_graph(nodes, "g", [x], [y], initializers)


def file_of(graph: GraphProto) -> bytes:
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    made.metadata_props.add(key="by", value="hand" * 99)
    return bytes(made.SerializeToString())


def encoded(value: int) -> bytes:
    made = b""
    while value >= 128:
        made, value = made + bytes([value % 128 | 128]), value // 128
    return made + bytes([value])


def places(script: Script, served: dict[str, Served], data: bytes, tail: int = 1 << 17) -> Any:
    served["/m/file.onnx"] = Served(data)
    return script(PLACES, tail=tail)


@pytest.mark.parametrize("more", ["", "text", "metadata"])
def test_places_of__types_in_the_order_of_the_file__finds_every_tensor(
    script: Script, served: dict[str, Served], more: str
) -> None:
    graph = typed(graph_of(tensors()))
    if more == "text":
        graph.doc_string = "Z" * 5000 + "j\x05R\x02"
    elif more == "metadata":
        graph.metadata_props.add(key="k", value="v" * 300)
    data = file_of(graph)
    at = data.index(tensors()[0].SerializeToString()) - 4
    wanted = []
    for tensor in tensors():
        head = b"\x2a" + encoded(tensor.ByteSize())
        assert data[at : at + len(head)] == head
        end = at + len(head) + tensor.ByteSize()
        wanted.append([at, end - len(tensor.raw_data), end])
        at = end
    assert places(script, served, data) == wanted


@pytest.mark.parametrize(
    "how", ["untyped", "one is missing", "another type", "text", "typed data", "external", "short tail"]
)
def test_places_of__end_that_does_not_tell__is_nothing(script: Script, served: dict[str, Served], how: str) -> None:
    made = tensors()
    names = [tensor.name for tensor in made]
    if how == "text":
        made[2].doc_string = "no more elements"
    elif how == "typed data":
        made[3] = helper.make_tensor(names[3], TensorProto.INT64, [3, 1, 5], np.ones(15))
    elif how == "external":
        made[0].ClearField("raw_data")
        made[0].data_location = TensorProto.EXTERNAL
        made[0].external_data.add(key="location", value="w.bin")
    order = {"untyped": [], "one is missing": names[:-1]}.get(how, names)
    graph = typed(graph_of(made), order)
    if how == "another type":
        graph.value_info[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    assert places(script, served, file_of(graph), 300 if how == "short tail" else 1 << 17) is None


def begun(script: Script, served: dict[str, Served], file: Served, parts: int) -> None:
    """Begin to make a session of the file, until so many parts of it were asked for and shaders are compiled."""
    script.preload()
    served["/m/model.onnx"] = file
    script.page.evaluate(f"() => {{ ({BEGIN})().catch(() => {{}}); }}")
    for _ in range(600):
        if len(file.parts) >= parts and "shaders begin" in script.page.evaluate("globalThis.events ?? []"):
            break
        script.page.wait_for_timeout(50)
    assert len(file.parts) == parts


def test_create__types_at_the_end__asks_for_that_alone(script: Script, served: dict[str, Served]) -> None:
    """Every weight is large, and their headers are known."""
    file = Served(model(LAYERS, typed=True), gate=4 << 20)
    begun(script, served, file, 1)
    assert file.comes_to(4 << 20)
    file.opened.set()
    np.testing.assert_array_equal(np.float32(script(FINISH, x=ROW)), expected(LAYERS))
    assert file.asked == [""] and len(file.parts) == 1


@pytest.mark.parametrize("etag", ['"one"', None])
def test_create__stream_has_another_header_of_the_same_length__session_is_that_of_the_stream(
    script: Script, served: dict[str, Served], etag: str | None
) -> None:
    """The end tells of [1536, 1536], the tensor is [768, 3072]: that is told when the stream has brought it."""
    data = model(LAYERS, typed=True)
    square, wide = (
        b"\x08" + dims + b"\x10\x01\x42\x02w1" for dims in (b"\x80\x0c\x08\x80\x0c", b"\x80\x06\x08\x80\x18")
    )
    assert SIZE == 1536 and data.count(square) == 1
    file = Served(data.replace(square, wide), gate=4 << 20, etag=etag)
    begun(script, served, file, 1)
    file.opened.set()
    found = script("return failure(() => made)")
    assert f"got float[1,{SIZE}] and float[{SIZE // 2},{2 * SIZE}]" in found["message"]


def between() -> bytes:
    """y = W (x reshaped, and cut at the sum of a mask), all of which lies between large weights."""
    rng = np.random.default_rng(0)
    large = [
        numpy_helper.from_array(rng.standard_normal(1 << 22, np.float32).reshape(2048, -1) / 64, f"w{i}")
        for i in range(3)
    ]
    mask = numpy_helper.from_array(np.ones(25_000, np.float32), "mask")
    shape = numpy_helper.from_array(np.array([2, 2048], np.int64), "shape")
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
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2048])
    infos = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in inits]
    graph = helper.make_graph(nodes, "g", [x], [y], inits, value_info=infos)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


def test_create__values_between_large_weights__come_with_the_end(script: Script, served: dict[str, Served]) -> None:
    data = between()
    file = Served(data, gate=4 << 20)
    begun(script, served, file, 3)
    assert sum(int(b) - int(a) + 1 for a, b in (p.removeprefix("bytes=").split("-") for p in file.parts)) < 1 << 19
    assert file.comes_to(4 << 20)
    file.opened.set()
    x = [float(v) for v in np.linspace(-1, 1, 4096)]
    got = script(
        """const s = await made; const { y } = await s.run({ x: new Tensor(Float32Array.from(x), [4096]) });
        await s.release(); return [...y.data];""",
        x=x,
    )
    weights = {
        t.name: numpy_helper.to_array(t).astype(np.float64) for t in onnx.load_from_string(data).graph.initializer
    }
    want = np.array(x[:2048]) @ weights["w0"] @ weights["w1"] @ weights["w2"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())
