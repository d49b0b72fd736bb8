"""The use-def chains of a typed graph: producers and consumers of each value follow every change."""

from __future__ import annotations

import pytest

from pyruntime.ir import Node, TypedGraph
from pyruntime.ops.registry import newest
from tests.passes.support import graph_of, node, op_types


def two_steps() -> TypedGraph:
    """y = (x + x) * x."""
    graph = graph_of([node("Add", ["x", "x"], ["a"]), node("Mul", ["a", "x"], ["y"])], {"x": (2,)}, ["y"])
    assert graph.producer("a") is graph.nodes[0]
    return graph


def test_producer_and_consumers__of_each_value__are_nodes_once_in_order() -> None:
    graph = two_steps()
    first, second = graph.nodes
    assert (graph.producer("x"), graph.producer("y")) == (None, second)
    assert list(graph.consumers("x")) == [first, second], "each consumer once, however often it reads"
    assert (graph.reads("x"), graph.reads("a"), graph.reads("y")) == (2, 1, 0)


def test_consumers__input_left_out__is_no_value() -> None:
    graph = graph_of([node("Clip", ["x", "", "x"], ["y"])], {"x": ()}, ["y"])
    assert list(graph.consumers("x")) == list(graph.nodes)
    assert graph.reads("") == 0


def test_consumers__node_inserted_between_two__are_in_the_order_of_the_graph() -> None:
    graph = two_steps()
    first, second = graph.nodes
    between = node("Neg", ["x"], ["n"])
    graph.types["n"] = graph.types["x"]
    graph.insert_after(first, between)
    assert list(graph.nodes) == [first, between, second] and list(graph.consumers("x")) == [first, between, second]
    graph.verify()


def test_update__inputs_and_outputs__chains_follow() -> None:
    graph = two_steps()
    first, second = graph.nodes
    graph.types["b"] = graph.types["a"]
    graph.update(first, newest("Mul"), outputs=["b"])
    assert graph.producer("a") is None and graph.producer("b") is first and first.op == newest("Mul")
    graph.update(second, inputs=["b", "b"])
    assert (graph.reads("a"), graph.reads("x"), graph.reads("b")) == (0, 1, 1)
    graph.verify()


def test_replace_all_uses__value_read_twice__has_no_consumer_left() -> None:
    graph = two_steps()
    graph.replace_all_uses("a", "x")
    assert graph.nodes[1].inputs == ("x", "x") and graph.reads("a") == 0
    graph.remove([graph.nodes[0]])
    assert op_types(graph) == ["Mul"] and graph.producer("a") is None
    graph.verify()


def test_substitute__one_node_by_several_and_another_by_none__keeps_the_order() -> None:
    graph = two_steps()
    first, second = graph.nodes
    square = graph.add_value("square", graph.tensor("x"))
    made = [node("Mul", ["x", "x"], [square]), node("Add", [square, square], ["y"])]
    before = graph.nodes
    assert graph.substitute({first: [], second: made}) and not graph.substitute({})
    assert list(graph.nodes) == made and list(before) == [first, second], "a list that was given stays"
    assert graph.producer("y") is made[1] and graph.producer("a") is None and list(graph.consumers("x")) == made[:1]
    graph.verify()


def test_substitute__new_node_before_the_order_was_read__is_replaced_too() -> None:
    graph = two_steps()
    first, second = graph.nodes
    new, newer = node("Mul", ["x", "x"], ["a"]), node("Sub", ["x", "x"], ["a"])
    graph.substitute({first: [new]})
    graph.substitute({new: [newer]})
    graph.insert_before(second, one := node("Neg", ["x"], ["n"]))
    graph.insert_before(second, other := node("Abs", ["x"], ["m"]))
    graph.types |= dict.fromkeys(("n", "m"), graph.types["x"])
    assert list(graph.nodes) == [newer, one, other, second]
    graph.verify()


def test_rewrite__nodes_of_an_unchanged_graph__are_seen_by_all() -> None:
    graph = two_steps()
    seen = set()

    def as_product(n: Node) -> list[Node]:
        seen.add(graph.producer("a"))
        return [node("Mul", list(n.inputs), list(n.outputs))]

    assert graph.rewrite(as_product) and not graph.rewrite(lambda n: None)
    assert op_types(graph) == ["Mul", "Mul"] and len(seen) == 1
    graph.verify()


def test_sort__node_before_what_it_reads__comes_after_it() -> None:
    graph = two_steps()
    first, second = graph.nodes
    graph.remove([first])
    graph.insert_after(second, first)
    with pytest.raises(AssertionError, match="before it is made"):
        graph.verify()
    graph.sort()
    assert list(graph.nodes) == [first, second]
    graph.verify()


def test_nodes__changed_in_a_graph__stay_in_that_of_the_model() -> None:
    nodes = [node("Neg", ["x"], ["y"])]
    graph = graph_of(nodes, {"x": (2,)}, ["y"])
    graph.update(graph.nodes[0], newest("Abs"))
    assert nodes[0].op == newest("Neg")
