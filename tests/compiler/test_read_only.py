"""Constants are bound as memory that is only read, where nothing else in their buffers is bound otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings

from pyruntime.compiler.build import build_plan
from pyruntime.compiler.constants import split_static
from pyruntime.compiler.plan import GpuSegment, Plan, Space
from pyruntime.compiler.verify import complaints
from pyruntime.ir import Constant, DType, TensorType, TypedGraph
from pyruntime.kernels import Dispatch, Kernel, Target, elementwise, inp, out
from pyruntime.kernels.ir.kernel import bindings
from pyruntime.kernels.wgsl.module import Module
from pyruntime.passes.cleanup import dead_code
from tests.compiler.graphs import node, random_graph, typed_graph

F = DType.FLOAT
OFF = Target(disabled=frozenset({"read_only_constants"}))
SQUARE = TensorType(F, (160, 160))
WEIGHT = Constant.from_array(np.random.default_rng(0).standard_normal((160, 160)).astype(np.float32))


def declared(text: str) -> dict[str, str]:
    """How a shader accesses its storage, by name."""
    return {r.name: r.access for r in Module(text).resources if r.space == "storage"}


def accesses(plan: Plan) -> Iterator[tuple[str, str]]:
    """Each value that commands bind, and how."""
    for command in plan.commands:
        ways = list(declared(plan.shaders[command.shader]).values())
        assert len(ways) == len(command.regions)
        yield from ((access.value, ways[access.region]) for access in command.accesses)


def both_ways(text: str) -> str:
    """A shader as it is without constants that are only read."""
    return text.replace("<storage, read>", "<storage, read_write>")


def summed() -> Dispatch:
    kind = TensorType(F, (64,))
    return elementwise(Target(), "sum", {"a": inp(0, kind), "b": inp(1, kind)}, out(0, kind), "a + b")


def test_wgsl__constant_operands__are_read() -> None:
    kernel = summed().kernel
    assert declared(kernel.wgsl()) == {"a": "read_write", "b": "read_write", "y": "read_write"}
    assert declared(kernel.wgsl(None, frozenset({1}))) == {"a": "read_write", "b": "read", "y": "read_write"}
    assert declared(kernel.wgsl((0, 0, 2), frozenset({0, 1}))) == {"a": "read", "y": "read_write"}


def test_wgsl__array_shared_with_another_operand__leaves_all_constants_as_they_were() -> None:
    kernel = summed().kernel
    assert set(declared(kernel.wgsl((0, 0, 2), frozenset({0}))).values()) == {"read_write"}
    assert set(declared(kernel.wgsl((0, 1, 0), frozenset({0, 1}))).values()) == {"read_write"}


def test_wgsl__constant_that_is_written_or_atomic__leaves_all_constants_as_they_were() -> None:
    body = "@compute @workgroup_size(4) fn main() { atomicAdd(&a[0], load_b(0u)); store_y(0u, 1u); }"
    kernel = Kernel("count", body, bindings(dict.fromkeys("ab", DType.UINT32), {"y": DType.UINT32}))
    at = [b.name for b in kernel.bindings].index
    assert declared(kernel.wgsl(None, frozenset({at("b")})))["b"] == "read"
    for constants in ({at("a"), at("b")}, {at("b"), at("y")}):
        assert set(declared(kernel.wgsl(None, frozenset(constants))).values()) == {"read_write"}


def test_plan__constants_views_and_operators_own__are_read_and_nothing_else() -> None:
    constants = {"w": WEIGHT, "s": Constant.from_array(np.array([1, 160, 160], np.int64))}
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Reshape", ["w", "s"], ["v"]),
        node("Add", ["h", "v"], ["z"]),
        node("Relu", ["z"], ["y"]),
    ]
    plan = build_plan(typed_graph(nodes, {"x": SQUARE}, ["y"], constants), Target())
    found = set(accesses(plan))
    assert {value for value, way in found if way == "read"} == {"w", "v"}
    assert {value for value, way in found if way == "read_write"} == {"x", "h", "z", "y"}


def test_plan__constant_that_dies__is_not_overwritten_in_place() -> None:
    plan = build_plan(typed_graph([node("Add", ["x", "w"], ["y"])], {"x": SQUARE}, ["y"], {"w": WEIGHT}), Target())
    assert dict(accesses(plan))["w"] == "read"
    assert len(plan.commands[0].regions) == 2


def test_plan__one_constant_by_two_names__is_read_through_two_bindings() -> None:
    constants = {"w": WEIGHT, "v": WEIGHT}
    nodes = [node("Where", ["c", "w", "v"], ["y"])]
    plan = build_plan(typed_graph(nodes, {"c": TensorType(DType.BOOL, (160, 160))}, ["y"], constants), Target())
    (command,) = plan.commands
    assert len(command.regions) == 4 and len(plan.constants) == 1
    assert {"w": "read", "v": "read", "c": "read_write"}.items() <= dict(accesses(plan)).items()


def test_plan__constant_that_is_an_output__is_read() -> None:
    graph = typed_graph([node("Add", ["x", "w"], ["y"])], {"x": SQUARE}, ["y", "w"], {"w": WEIGHT})
    plan = build_plan(graph, Target())
    assert dict(accesses(plan))["w"] == "read" and "w" in plan.host_values


def test_plan__computed_constant__is_read_by_who_uses_it_and_written_where_it_is_made() -> None:
    nodes = [node("Sigmoid", ["w"], ["v"]), node("MatMul", ["x", "v"], ["h"]), node("Add", ["h", "t"], ["y"])]
    graph = typed_graph(nodes, {"x": SQUARE, "t": SQUARE}, ["y"], {"w": WEIGHT})
    first = split_static(graph, Target())
    assert first is not None and graph.computed == {"v"}
    graph.resident |= {"t"}  # which a run brings
    made, used = build_plan(first, Target(), ["v"]), build_plan(graph, Target())
    assert dict(accesses(made)) == {"w": "read", "v": "read_write"}
    (segment,) = used.steps
    assert isinstance(segment, GpuSegment)
    assert {r.space for c in segment.commands for r in c.regions} == {Space.ARENA, Space.EXTERNAL}
    ways = dict(accesses(used))
    assert ways["v"] == "read" and ways["t"] == "read_write"


def test_plan__switched_off__is_the_same_but_for_what_shaders_declare() -> None:
    graphs = [typed_graph([node("MatMul", ["x", "w"], ["y"])], {"x": SQUARE}, ["y"], {"w": WEIGHT}) for _ in range(2)]
    plan, off = (build_plan(g, t) for g, t in zip(graphs, (Target(), OFF), strict=True))
    assert {way for _, way in accesses(off)} == {"read_write"}
    assert plan.shaders != off.shaders
    assert [both_ways(text) for text in plan.shaders] == off.shaders
    assert plan.commands == off.commands


@given(random_graph())
@settings(max_examples=60, deadline=None)
def test_any_graph__shaders_predicted__declare_what_the_plan_has(graph: TypedGraph) -> None:
    """One input is a constant, so that texts of kernels depend on which operand it is.

    Nodes without consumers are removed, as in every graph that is planned: they would count as readers.
    """
    dead_code.run(graph, Target())
    asked: list[str] = []
    kind = graph.tensor("x1")
    graph.inputs.remove("x1")
    graph.add_constant(np.ones(kind.shape, np.float32), kind.dtype, "w")
    graph.constants["x1"] = Constant.from_array(np.ones(kind.shape, np.float32))
    plan = build_plan(graph, Target(), ask=asked.append)
    assert not list(complaints(plan))
    constants = {n for n in plan.views if plan.root(n) == "x1"} | {"x1"}
    for value, way in accesses(plan):
        assert (way == "read") == (value in constants)
    if {both_ways(text) for text in asked} == {
        both_ways(text) for text in plan.shaders
    }:  # what shares memory is as predicted
        assert set(plan.shaders) <= set(asked)


def test_complaints__constants_bound_both_ways__are_named() -> None:
    constants = {"w": WEIGHT, "v": Constant.from_array(np.ones((160, 160), np.float32))}
    graph = typed_graph(
        [node("Where", ["c", "w", "v"], ["y"])], {"c": TensorType(DType.BOOL, (160, 160))}, ["y"], constants
    )
    plan = build_plan(graph, Target())
    assert not list(complaints(plan))
    plan.shaders[0] = plan.shaders[0].replace("<storage, read>", "<storage, read_write>", 1)
    assert any("binds constants as read and as read_write" in text for text in complaints(plan))


def test_complaints__activation_bound_as_read__is_named() -> None:
    plan = build_plan(typed_graph([node("Softmax", ["x"], ["y"])], {"x": SQUARE}, ["y"]), Target())
    plan.shaders[0] = plan.shaders[0].replace("<storage, read_write>", "<storage, read>", 1)
    assert any("as read, which commands write" in text for text in complaints(plan))


def test_complaints__shader_that_binds_more__is_named() -> None:
    plan = build_plan(typed_graph([node("Softmax", ["x"], ["y"])], {"x": SQUARE}, ["y"]), Target())
    plan.shaders[0] += "@group(0) @binding(7) var<storage, read> z: array<u32>;\n"
    assert any("and its shader declares" in text for text in complaints(plan))


def test_kernel__rendered_twice__is_one_text() -> None:
    kernel: Kernel = summed().kernel
    assert kernel.wgsl((0, 1, 2), frozenset({1})) is kernel.wgsl(None, frozenset({1}))
