"""Graphs that are well-formed protobuf and no valid model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, helper, numpy_helper

from tests.bad_models.case import Case, graph_model, info, node

__all__ = ["cases"]

_X = {"x": np.ones(2, np.float32)}


def cases() -> Iterator[Case]:
    yield from _names()
    yield from _versions()
    yield from _operators()
    yield from _attributes()
    yield from _subgraphs()
    yield from _functions()


def _relu(a: str = "x", b: str = "y") -> NodeProto:
    return node("Relu", [a], [b], name=f"{a}_{b}")


def _names() -> Iterator[Case]:
    yield Case("names: unknown input of a node", graph_model([_relu("nowhere")]), "InvalidGraph", "nowhere")
    yield Case("names: output that no node makes", graph_model([_relu("x", "z")]), "Fail", "y")
    yield Case("names: value made twice", graph_model([_relu(), _relu()]), "Fail", "y")
    yield Case("names: a node makes an input", graph_model([_relu("x", "x"), _relu()]), "Fail", "x")
    twice = graph_model([_relu()], inputs=[info("x"), info("x")])
    yield Case("names: input declared twice", twice, "Fail", "x")
    w = numpy_helper.from_array(np.ones(2, np.float32), "w")
    yield Case("names: node makes an initializer", graph_model([_relu("x", "w"), _relu("w")], [w]), "Fail", "w")
    yield Case("names: empty output", graph_model([node("Relu", ["x"], [""])]), "Fail")
    cycle = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["a"], ["y"])]
    yield Case("cycle: of two nodes", graph_model(cycle), "Fail", "acyclic")
    yield Case("cycle: of one node", graph_model([node("Add", ["x", "y"], ["y"])]), "Fail", "acyclic")
    long = [node("Relu", [f"v{(i + 1) % 50}"], [f"v{i}"]) for i in range(50)] + [_relu("v0")]
    yield Case("cycle: of fifty nodes", graph_model(long), "Fail", "acyclic")
    yield Case("names: output of no name", graph_model([_relu()], outputs=[info("")]), "Fail")


def _versions() -> Iterator[Case]:
    yield Case("version: IR missing", graph_model([_relu()], ir=None), "Fail", "IR version")
    yield Case("version: IR of the future", graph_model([_relu()], ir=1000), "Fail", "IR version")
    yield Case("version: IR negative", graph_model([_relu()], ir=-1), "Fail", "IR version")
    yield Case("version: no operator set", graph_model([_relu()], opset=None), "Fail", "operator set")
    yield Case("version: opset of the future", graph_model([_relu()], opset=9999), "Fail", "newest supported")
    yield Case("version: opset 0", graph_model([_relu()], opset=0), "NotImplemented")
    yield Case("version: opset negative", graph_model([_relu()], opset=-5), "NotImplemented")
    yield Case(
        "version: operator newer than its opset",
        graph_model([node("Gelu", ["x"], ["y"])], opset=7),
        "NotImplemented",
        "Gelu",
    )


def _operators() -> Iterator[Case]:
    unknown = graph_model([node("Teleport", ["x"], ["y"], name="beam")])
    yield Case("operator: unknown", unknown, "NotImplemented", "Teleport")
    foreign = graph_model([node("Relu", ["x"], ["y"], domain="com.example")])
    yield Case("operator: domain not imported", foreign, "InvalidGraph", "com.example")
    yield Case("operator: no name", graph_model([node("", ["x"], ["y"])]), "NotImplemented")
    yield Case("operator: very long name", graph_model([node("A" * 100_000, ["x"], ["y"])]), "NotImplemented")
    yield Case("operator: too few inputs", graph_model([node("Add", ["x"], ["y"])]), "InvalidGraph", feeds=_X)
    yield Case("operator: no inputs", graph_model([node("Relu", [], ["y"])]), "InvalidGraph", feeds=_X)
    yield Case(
        "operator: too many inputs", graph_model([node("Relu", ["x", "x", "x"], ["y"])]), "InvalidGraph", feeds=_X
    )
    yield Case(
        "operator: required input absent", graph_model([node("Add", ["x", ""], ["y"])]), "InvalidGraph", feeds=_X
    )
    yield Case("operator: too many outputs", graph_model([node("Relu", ["x"], ["y", "z"])]), "InvalidGraph", feeds=_X)
    text = numpy_helper.from_array(np.array(["a", "b"], object), "t")
    yield Case(
        "types: text into arithmetic", graph_model([node("Add", ["x", "t"], ["y"])], [text]), "InvalidGraph", feeds=_X
    )
    ints = numpy_helper.from_array(np.ones(2, np.int64), "i")
    yield Case(
        "types: two types added", graph_model([node("Add", ["x", "i"], ["y"])], [ints]), "InvalidGraph", feeds=_X
    )
    three = numpy_helper.from_array(np.ones(3, np.float32), "w")
    yield Case(
        "shapes: do not broadcast", graph_model([node("Add", ["x", "w"], ["y"])], [three]), "InvalidGraph", feeds=_X
    )
    square = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    yield Case(
        "shapes: matrices do not fit",
        graph_model([node("MatMul", ["x", "w"], ["y"])], [square]),
        "InvalidGraph",
        feeds=_X,
    )
    yield Case(
        "shapes: convolution of a vector",
        graph_model([node("Conv", ["x", "w"], ["y"])], [square]),
        "InvalidGraph",
        feeds=_X,
    )
    axis = graph_model([node("Softmax", ["x"], ["y"], axis=7)])
    yield Case("shapes: axis out of range", axis, "InvalidGraph", feeds=_X)
    perm = graph_model([node("Transpose", ["x"], ["y"], perm=[0, 0])])
    yield Case("shapes: permutation of the same axis", perm, "InvalidGraph", feeds=_X)


def _attributes() -> Iterator[Case]:
    def wrong(name: str, value: Any, op_type: str = "Softmax") -> bytes:
        return graph_model([node(op_type, ["x"], ["y"], **{name: value})])

    yield Case("attribute: float for an int", wrong("axis", 1.5), "InvalidGraph", "axis")
    yield Case("attribute: text for an int", wrong("axis", "last"), "InvalidGraph", "axis")
    yield Case("attribute: list for an int", wrong("axis", [1, 2]), "InvalidGraph", "axis")
    yield Case("attribute: unknown", wrong("axiz", 1), "InvalidGraph", "axiz")
    yield Case("attribute: int for a list", wrong("perm", 0, "Transpose"), "InvalidGraph", "perm")
    yield Case(
        "attribute: int for a tensor", graph_model([node("Constant", [], ["y"], value=3)]), "InvalidGraph", "value"
    )
    yield Case("attribute: required one missing", graph_model([node("Cast", ["x"], ["y"])]), "InvalidGraph", "to")
    yield Case("attribute: no such type", wrong("to", 99, "Cast"), "InvalidGraph", feeds=_X)
    yield Case(
        "attribute: bad choice",
        graph_model(
            [node("Pad", ["x", "p"], ["y"], mode="sideways")], [numpy_helper.from_array(np.zeros(2, np.int64), "p")]
        ),
        "InvalidGraph",
        feeds=_X,
    )

    counts: dict[str, Any] = {"ngram_counts": [0, 1 << 31], "ngram_indexes": [0, 1], "pool_int64s": [2, 3]}
    counts["mode"] = "TF"
    lengths: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
    grams = [node("Cast", ["x"], ["i"], to=6), node("TfIdfVectorizer", ["i"], ["y"], **counts, **lengths)]
    yield Case("attribute: n-grams of two billion", graph_model(grams), "InvalidGraph", "ngram_counts", feeds=_X)

    def twice(model: ModelProto) -> None:
        model.graph.node[0].attribute.extend([helper.make_attribute("axis", 0), helper.make_attribute("axis", 1)])

    def untyped(model: ModelProto) -> None:
        model.graph.node[0].attribute.append(AttributeProto(name="axis", i=0))

    def liar(model: ModelProto) -> None:
        model.graph.node[0].attribute.append(AttributeProto(name="axis", type=AttributeProto.GRAPH, i=0))

    def stray(model: ModelProto) -> None:
        model.graph.node[0].attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="a"))

    softmax = [node("Softmax", ["x"], ["y"])]
    yield Case("attribute: given twice", graph_model(softmax, edit=twice), "InvalidGraph", "axis")
    yield Case("attribute: a graph that is not there", graph_model(softmax, edit=liar), "InvalidGraph", "axis")
    yield Case("attribute: reference outside of a function", graph_model(softmax, edit=stray), "InvalidGraph")


def _branch(nodes: list[NodeProto], output: str = "r", inputs: list[Any] | None = None) -> Any:
    return helper.make_graph(nodes, "branch", inputs or [], [info(output, shape=None)])


def _subgraphs() -> Iterator[Case]:
    yes = numpy_helper.from_array(np.array(True), "c")
    good = _branch([node("Relu", ["x"], ["r"])])

    def branches(then: Any, other: Any = good) -> bytes:
        return graph_model([node("If", ["c"], ["y"], then_branch=then, else_branch=other)], [yes])

    lost = _branch([node("Relu", ["nowhere"], ["r"])])
    yield Case("subgraph: reads what is not there", branches(lost), "InvalidGraph", "nowhere")
    yield Case("subgraph: output that no node makes", branches(_branch([node("Relu", ["x"], ["q"])])), "Fail", "r")
    yield Case("subgraph: cycle", branches(_branch([node("Add", ["x", "r"], ["r"])])), "Fail", "acyclic")
    yield Case(
        "subgraph: missing",
        graph_model([node("If", ["c"], ["y"], then_branch=good)], [yes]),
        "InvalidGraph",
        "else_branch",
    )
    yield Case(
        "subgraph: unknown operator within",
        branches(_branch([node("Teleport", ["x"], ["r"])])),
        "NotImplemented",
        "Teleport",
    )
    none = helper.make_graph([node("Relu", ["x"], ["r"])], "branch", [], [])
    yield Case("subgraph: branch without outputs", branches(none), "InvalidGraph", feeds=_X)
    two = numpy_helper.from_array(np.array([True, False]), "c")
    vector = graph_model([node("If", ["c"], ["y"], then_branch=good, else_branch=good)], [two])
    yield Case("subgraph: condition of two elements", vector, "InvalidGraph", feeds=_X)


def _functions() -> Iterator[Case]:
    def function(name: str, nodes: list[NodeProto], inputs: tuple[str, ...] = ("a",)) -> Any:
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
        return helper.make_function("f", name, list(inputs), ["b"], nodes, opsets)

    def call(name: str) -> list[NodeProto]:
        return [node(name, ["x"], ["y"], domain="f")]

    self_call = function("F", [node("F", ["a"], ["b"], domain="f")])
    yield Case("function: calls itself", graph_model(call("F"), functions=[self_call]), "InvalidGraph", "F")
    ring = [function("F", [node("G", ["a"], ["b"], domain="f")]), function("G", [node("F", ["a"], ["b"], domain="f")])]
    yield Case("function: two call each other", graph_model(call("F"), functions=ring), "InvalidGraph")
    bomb = [function("F0", [node("Relu", ["a"], ["b"])])]
    for i in range(1, 40):
        inner = [node(f"F{i - 1}", ["a"], ["m"], domain="f"), node(f"F{i - 1}", ["m"], ["b"], domain="f")]
        bomb.append(function(f"F{i}", inner))
    limits = {"nodes": 5000}
    yield Case("function: bomb of 2^39 nodes", graph_model(call("F39"), functions=bomb), "Fail", "nodes", limits=limits)
    lost = function("F", [node("Relu", ["nowhere"], ["b"])])
    yield Case("function: reads what is not there", graph_model(call("F"), functions=[lost]), "InvalidGraph", "nowhere")
    same = [function("F", [node("Relu", ["a"], ["b"])])] * 2
    yield Case("function: defined twice", graph_model(call("F"), functions=same), "Fail", "F")
    yield Case("function: not defined", graph_model(call("H"), functions=same[:1]), "NotImplemented", "H")
    unmade = function("F", [node("Relu", ["a"], ["c"])])
    yield Case("function: output that no node makes", graph_model(call("F"), functions=[unmade]), "InvalidGraph", "b")
    many = [node("F", ["x", "x", "x"], ["y"], domain="f")]
    yield Case("function: too many inputs", graph_model(many, functions=same[:1]), "InvalidGraph", "F")
