"""Models that load and would take all memory or all time when they run, or fail on these values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.bad_models.case import Case, graph_model, info, node
from tests.session.models import branching

__all__ = ["cases"]

_X = {"x": np.ones(2, np.float32)}


def _ints(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def cases() -> Iterator[Case]:
    yield from _sizes()
    yield from _loops()
    yield from _values()
    yield from _feeds()


def _sizes() -> Iterator[Case]:
    def shaped(name: str, nodes: list[NodeProto], *dims: int, error: str = "OutOfMemory", **attributes: Any) -> Case:
        return Case(f"size: {name}", graph_model(nodes, [_ints("s", *dims)]), error, feeds=_X, **attributes)

    fill = [node("ConstantOfShape", ["s"], ["y"])]
    yield shaped("ConstantOfShape of terabytes", fill, 1 << 20, 1 << 20)
    yield shaped("ConstantOfShape whose size wraps 64 bits", fill, 1 << 32, 1 << 32, error="OutOfMemory")
    yield shaped("ConstantOfShape of 2^62", fill, 1 << 62)
    yield shaped("ConstantOfShape of a negative shape", fill, -5, error="InvalidGraph")
    yield shaped("Expand to terabytes", [node("Expand", ["x", "s"], ["y"])], 1 << 40, 2)
    yield shaped("Tile to terabytes", [node("Tile", ["x", "s"], ["y"])], 1 << 40)
    yield shaped("Tile a negative time", [node("Tile", ["x", "s"], ["y"])], -1, error="InvalidGraph")
    yield shaped("Reshape to another size", [node("Reshape", ["x", "s"], ["y"])], 7, error="InvalidGraph")
    yield shaped("Reshape with two open axes", [node("Reshape", ["x", "s"], ["y"])], -1, -1, error="InvalidGraph")
    yield shaped("Pad by terabytes", [node("Pad", ["x", "s"], ["y"])], 1 << 40, 1 << 40)
    depth = [_ints("i", 0, 1), _ints("d", 1 << 40), numpy_helper.from_array(np.array([0, 1], np.float32), "v")]
    hot = graph_model([node("OneHot", ["i", "d", "v"], ["y"])], depth)
    yield Case("size: OneHot of terabytes", hot, "OutOfMemory", feeds=_X)
    ends = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("a", 0), ("b", 1 << 40), ("c", 1))]
    counted = graph_model([node("Range", ["a", "b", "c"], ["y"])], ends, outputs=[info("y", TensorProto.INT64, None)])
    yield Case("size: Range of terabytes", counted, "OutOfMemory", feeds=_X)
    still = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("a", 0), ("b", 5), ("c", 0))]
    zero = graph_model([node("Range", ["a", "b", "c"], ["y"])], still, outputs=[info("y", TensorProto.INT64, None)])
    yield Case("size: Range with steps of 0", zero, "InvalidGraph", feeds=_X)
    double = [node("Concat", ["x" if i == 0 else f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(60)]
    doubled = graph_model([*double, node("Identity", ["v60"], ["y"])])
    yield Case("size: doubled sixty times", doubled, "OutOfMemory", feeds=_X, limits={"node_bytes": 1 << 20})
    yield Case("size: EyeLike of terabytes", _eye(), "OutOfMemory", feeds=_X)


def _eye() -> bytes:
    shape = [_ints("s", 1 << 20, 1 << 20)]
    return graph_model([node("ConstantOfShape", ["s"], ["c"]), node("EyeLike", ["c"], ["y"])], shape)


def _loops() -> Iterator[Case]:
    few = {"loop_trips": 200}
    error = "RuntimeException"
    yield Case("loop: 2^62 trips", branching(), error, "loop_trips", feeds=_X, limits=few)
    yield Case("loop: 2^63 - 1 trips", branching((1 << 63) - 1), error, "loop_trips", feeds=_X, limits=few)
    slow = graph_model([_loop(None)], [numpy_helper.from_array(np.array(True), "c")])
    yield Case("loop: without a bound", slow, error, "loop_trips", feeds=_X, limits=few)
    yield Case("loop: longer than a run may take", slow, "Fail", "run_seconds", feeds=_X, limits={"run_seconds": 0.2})
    grows = graph_model([_loop(None, "Concat")], [numpy_helper.from_array(np.array(True), "c")])
    yield Case("loop: doubles its state", grows, "OutOfMemory", "node_bytes", feeds=_X, limits={"node_bytes": 1 << 20})
    within = _nested(4)
    inlined = "branches that are known are planned without recursion"
    limits = {"body_depth": 3}
    yield Case("loop: bodies within bodies", within, error, "body_depth", _X, limits=limits, host_only=inlined)


def _loop(trips: str | None, op_type: str = "Add") -> NodeProto:
    attributes: dict[str, Any] = {"axis": 0} if op_type == "Concat" else {}
    body = helper.make_graph(
        [node(op_type, ["v", "v"], ["w"], **attributes), node("Identity", ["k"], ["d"])],
        "body",
        [info("i", TensorProto.INT64, []), info("k", TensorProto.BOOL, []), info("v", shape=None)],
        [info("d", TensorProto.BOOL, []), info("w", shape=None)],
    )
    return node("Loop", [trips or "", "c", "x"], ["y"], body=body)


def _nested(depth: int) -> bytes:
    inner = helper.make_graph([node("Relu", ["x"], ["r0"])], "b0", [], [info("r0", shape=None)])
    for i in range(1, depth + 1):
        chosen = node("If", ["c"], [f"r{i}"], then_branch=inner, else_branch=inner)
        inner = helper.make_graph([chosen], f"b{i}", [], [info(f"r{i}", shape=None)])
    yes = numpy_helper.from_array(np.array(True), "c")
    return graph_model([node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], [yes])


def _values() -> Iterator[Case]:
    far = graph_model([node("Gather", ["x", "i"], ["y"])], [_ints("i", 100)])
    clamped = "kernels read the nearest element, as onnxruntime's do; a check would cost a readback"
    yield Case("values: Gather out of range", far, "RuntimeException", feeds=_X, host_only=clamped)
    cut = graph_model([node("Split", ["x", "s"], ["y", "z"])], [_ints("s", 5, 5)])
    yield Case("values: Split sizes do not add up", cut, "InvalidGraph", feeds=_X)
    top = graph_model([node("TopK", ["x", "k"], ["y", "i"])], [_ints("k", 100)])
    yield Case("values: TopK of more than there are", top, "InvalidGraph", feeds=_X)
    squeezed = graph_model([node("Squeeze", ["x", "a"], ["y"])], [_ints("a", 0)])
    yield Case("values: Squeeze of a long axis", squeezed, "InvalidGraph", feeds=_X)


def _feeds() -> Iterator[Case]:
    data = graph_model([node("Relu", ["x"], ["y"])])
    yield Case("feed: nothing", data, "MissingInput", "x")
    yield Case("feed: another type", data, "InvalidArgument", "x", feeds={"x": np.ones(2, np.int64)})
    yield Case("feed: another shape", data, "InvalidArgument", "x", feeds={"x": np.ones(3, np.float32)})
    yield Case("feed: another rank", data, "InvalidArgument", "x", feeds={"x": np.ones((2, 1), np.float32)})
    yield Case("feed: an input too many", data, "InvalidArgument", "z", feeds={**_X, "z": np.ones(2, np.float32)})
