"""The indexes of a typed graph: made once for its nodes, whichever way these become others."""

from __future__ import annotations

from pyruntime.ops.registry import newest
from tests.passes.support import graph_of, node


def test_indexes__nodes_stay__are_made_once() -> None:
    graph = graph_of([node("Add", ["x", "x"], ["a"]), node("Mul", ["a", "x"], ["y"])], {"x": (2,)}, ["y"])
    first, second = graph.nodes
    makers, readers = graph.producers(), graph.consumers()
    assert makers == {"a": first, "y": second}
    assert readers == {"x": [first, second], "a": [second]}, "each reader once, however often it reads"
    graph.nodes = list(graph.nodes)
    assert graph.producers() is makers
    assert graph.consumers() is readers


def test_indexes__nodes_become_others__are_made_anew() -> None:
    graph = graph_of([node("Add", ["x", "x"], ["a"]), node("Mul", ["a", "x"], ["y"])], {"x": (2,)}, ["y"])
    graph.producers(), graph.consumers()
    last = node("Mul", ["x", "a"], ["y"])
    graph.nodes[1] = last
    assert graph.producers()["y"] is last
    assert graph.consumers() == {"x": [graph.nodes[0], last], "a": [last]}
    graph.nodes.pop()
    assert "y" not in graph.producers()
    assert graph.consumers() == {"x": [graph.nodes[0]]}
    graph.nodes.append(node("Relu", ["a"], ["y"]))
    assert graph.producers()["y"].op == newest("Relu")


def test_consumers__input_left_out__is_no_value() -> None:
    graph = graph_of([node("Clip", ["x", "", "x"], ["y"])], {"x": ()}, ["y"])
    assert graph.consumers() == {"x": [graph.nodes[0]]}
