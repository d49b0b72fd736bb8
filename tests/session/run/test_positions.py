"""Positions outside the caches of rotary embeddings: an error on the GPU too, where the host knows them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.compiler.saved import read
from pyruntime.device.null import NullDevice
from pyruntime.errors import RuntimeException
from pyruntime.ir import Array
from pyruntime.session import InferenceSession
from pyruntime.session.aot.compile_ahead import compile_model
from tests.session.doubles import on_device

ROWS, HALF = 16, 4
MICROSOFT = "com.microsoft"
node = helper.make_node


def model(nodes: list[Any], inputs: dict[str, Array], constants: dict[str, Array], open_tokens: bool = False) -> bytes:
    r = np.random.default_rng(0)
    tables = {k: r.random((ROWS, HALF), np.float32) for k in ("cos", "sin")}
    declared = [
        helper.make_tensor_value_info(
            n,
            helper.np_dtype_to_tensor_dtype(x.dtype),
            ["b", "s", 2 * HALF] if open_tokens and x.ndim == 3 else x.shape,
        )
        for n, x in inputs.items()
    ]
    initializers = [numpy_helper.from_array(x, n) for n, x in (tables | constants).items()]
    graph = helper.make_graph(
        nodes, "g", declared, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], initializers
    )
    imports = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return made


def told(source: bytes, *feeds: dict[str, Array]) -> list[str]:
    """What runs on the null device raise, one after another; '' where they do not."""

    async def main() -> list[str]:
        session = await InferenceSession.create(source)
        found = []
        for feed in feeds:
            try:
                await session.run_async(None, feed)
                found.append("")
            except RuntimeException as error:
                found.append(str(error))
        return found

    with on_device(NullDevice()):
        return asyncio.run(main())


def on_numpy(source: bytes, feed: dict[str, Array]) -> str:
    with pytest.raises(RuntimeException) as caught:
        InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feed)
    return str(caught.value)


X = np.ones((1, 3, 2 * HALF), np.float32)


def positions(*numbers: int) -> Array:
    return np.array([numbers], np.int64)


def rotary(domain: str) -> Any:
    inputs = ["x", "p", "cos", "sin"] if domain else ["x", "cos", "sin", "p"]
    return node("RotaryEmbedding", inputs, ["y"], domain=domain, num_heads=1)


@pytest.mark.parametrize("domain", ["", MICROSOFT])
def test_positions__fed__are_checked_in_every_run_as_on_numpy(domain: str) -> None:
    source = model([rotary(domain)], {"x": X, "p": positions(0, 1, 2)}, {})
    feeds = [{"x": X, "p": positions(*p)} for p in ((0, 1, 15), (0, 1, 16), (0, 15, 2), (0, -1, 2))]
    found = told(source, *feeds)
    assert found[::2] == ["", ""]
    assert found[1::2] == [on_numpy(source, feed) for feed in feeds[1::2]]


def test_positions__read_by_many_nodes__are_checked_once_and_the_first_node_is_named() -> None:
    nodes = [node("RotaryEmbedding", [f"{n}", "cos", "sin", "p"], [m], num_heads=1) for n, m in ("xh", "hy")]
    source = model(nodes, {"x": X, "p": positions(0, 1, 2)}, {})
    feed = {"x": X, "p": positions(0, 1, 16)}
    assert told(source, feed) == [on_numpy(source, feed)]


def test_positions__of_mrotary_embedding__are_checked() -> None:
    op = node(
        "MRotaryEmbedding", ["x", "p", "cos", "sin"], ["y"], domain=MICROSOFT, num_heads=1, mrope_section=[2, 1, 1]
    )
    feeds: list[dict[str, Array]] = [{"x": X, "p": np.full((3, 1, 3), at, np.int64)} for at in (15, 16)]
    source = model([op], feeds[0], {})
    assert told(source, *feeds) == ["", on_numpy(source, feeds[1])]


def test_positions__offset_of_tokens_whose_number_is_open__is_checked_with_that_number() -> None:
    source = model([rotary(MICROSOFT)], {"x": X, "p": np.array([1])}, {}, open_tokens=True)
    feeds = [
        {"x": np.ones((1, n, 2 * HALF), np.float32), "p": np.array([p])} for n, p in ((3, 0), (5, 1), (6, 11), (7, 9))
    ]
    assert told(source, *feeds)[:2] == ["", ""]
    assert [bool(e) for e in told(source, *feeds)] == [False, False, True, False]


def test_positions__moved_and_cast__are_checked() -> None:
    moves = [node("Cast", ["i"], ["l"], to=TensorProto.INT64), node("Unsqueeze", ["l", "axes"], ["p"])]
    source = model([*moves, rotary("")], {"x": X, "i": np.zeros(3, np.int32)}, {"axes": np.array([0])})
    found = told(source, *({"x": X, "i": np.array(i, np.int32)} for i in ((0, 1, 2), (0, 1, 99))))
    assert found[0] == "" and "expected positions in [0, 15], the rows of the caches, got 99" in found[1]


def test_positions__constant__are_checked() -> None:
    source = model([rotary("")], {"x": X}, {"p": positions(0, 1, 16)})
    assert told(source, {"x": X}) == [on_numpy(source, {"x": X})]


def test_positions__of_a_node_that_a_run_does_without__are_not_checked() -> None:
    def branch(*nodes: Any) -> Any:
        return helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])

    taken, other = branch(node("Relu", ["x"], ["y"])), branch(rotary(""))
    chosen = node("If", ["c"], ["y"], then_branch=taken, else_branch=other)
    source = model([chosen], {"x": X, "c": np.array(True)}, {"p": positions(0, 1, 16)})
    feeds = [{"x": X, "c": np.array(c)} for c in (True, False)]
    first, second = told(source, *feeds)
    assert first == "" and second.split("opset 23")[1] == on_numpy(source, feeds[1]).split("opset 23")[1]


def test_positions__of_grouped_queries__are_counted_from_the_keys() -> None:
    names = ["q", "k", "v", "pk", "pv", "seqlens_k", "total", "cos", "sin"]
    op = node("GroupQueryAttention", names, ["y", "", ""], domain=MICROSOFT, num_heads=1, kv_num_heads=1, do_rotary=1)
    row = np.ones((1, 1, 2 * HALF), np.float32)

    for past in (15, 16):
        cache = np.ones((1, 1, past, 2 * HALF), np.float32)
        counts = {"seqlens_k": np.array([past], np.int32), "total": np.array(past + 1, np.int32)}
        feed = {"q": row, "k": row, "v": row, "pk": cache, "pv": cache, **counts}
        source = model([op], feed, {})
        (found,) = told(source, feed)
        assert found == "" if past == 15 else found == on_numpy(source, feed)


@pytest.mark.parametrize(
    ("past", "lengths", "total", "range_"),
    [(8, [8], 8, "[0, 7]"), (8, [9], 9, "[0, 8]"), (8, [-1], 9, "[0, 8]"), (0, [1], 1, "[0, 0]")],
)
def test_lengths__of_more_keys_than_the_caches_have__are_refused_as_on_numpy(
    past: int, lengths: list[int], total: int, range_: str
) -> None:
    names = ["q", "k", "v", "pk", "pv", "seqlens_k", "total"]
    op = node("GroupQueryAttention", names, ["y", "", ""], domain=MICROSOFT, num_heads=1, kv_num_heads=1)
    row, cache = np.ones((1, 1, 2 * HALF), np.float32), np.ones((1, 1, past, 2 * HALF), np.float32)
    counts = {"seqlens_k": np.array(lengths, np.int32), "total": np.array(total, np.int32)}
    feed = {"q": row, "k": row, "v": row, "pk": cache, "pv": cache, **counts}
    source = model([op], feed, {})
    (found,) = told(source, feed)
    assert f"expected lengths in {range_}, the rows of present_key, got {lengths[0]} at [0]" in found
    assert found == on_numpy(source, feed)


def test_tokens__of_a_padded_prompt_longer_than_the_caches__are_refused_as_on_numpy() -> None:
    names = ["q", "q", "q", "", "", "seqlens_k", "total", "cos", "sin"]
    op = node("GroupQueryAttention", names, ["y", "", ""], domain=MICROSOFT, num_heads=1, kv_num_heads=1, do_rotary=1)
    for tokens in (ROWS, ROWS + 1):
        counts = {"seqlens_k": np.array([5], np.int32), "total": np.array(tokens, np.int32)}
        feed = {"q": np.ones((1, tokens, 2 * HALF), np.float32), **counts}
        source = model([op], feed, {})
        (found,) = told(source, feed)
        assert found == "" if tokens == ROWS else found == on_numpy(source, feed)


def test_compile__of_positions__leaves_their_bounds_to_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model([rotary(MICROSOFT)], {"x": X, "p": np.array([1])}, {}, open_tokens=True))
    (program,) = read(compile_model(path, {"x": [(1, 3, 2 * HALF), (1, 7, 2 * HALF)]})).programs
    (bounded,) = program.plan.bounds
    tokens = program.plan.expressions[bounded.expressions[1]]
    assert (bounded.input, bounded.least, bounded.most, bounded.expressions[0]) == ("p", 0, ROWS - 7, -1)
    assert tokens == [[-1, [0]], [16, []]] or tokens == [[16, []], [-1, [0]]]


def test_compile__of_constants_outside__is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    source = model([rotary("")], {"x": X}, {"p": positions(0, 1, 16)})
    path.write_bytes(source)
    with pytest.raises(RuntimeException) as caught:
        compile_model(path)
    assert str(caught.value) == on_numpy(source, {"x": X})
