"""Plans: views cost nothing, elementwise runs in place, host steps split segments, folded values vanish."""

from __future__ import annotations

import numpy as np

from pyruntime.compiler.build import build_plan
from pyruntime.compiler.constants import part, split_static
from pyruntime.compiler.plan import GpuSegment, HostStep, Space
from pyruntime.ir import Constant, DType, Node, TensorType
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from tests.compiler.graphs import node, typed_graph
from tests.passes.support import evaluate

F = DType.FLOAT
X = {"x": TensorType(F, (8, 8))}


def test_plan__chain__is_one_segment_with_one_upload_and_one_download() -> None:
    plan = build_plan(typed_graph([node("Transpose", ["x"], ["t"]), node("Softmax", ["t"], ["y"])], X, ["y"]), Target())
    (segment,) = plan.steps
    assert isinstance(segment, GpuSegment)
    assert [t.name for t in segment.uploads] == ["x"]
    assert [t.name for t in segment.downloads] == ["y"]
    assert [c.kernel.split("_")[0] for c in segment.commands] == ["transpose", "softmax"]


def test_plan__reshape__shares_its_inputs_storage() -> None:
    constants = {"s": Constant.from_array(np.array([64], np.int64))}
    nodes = [node("Softmax", ["x"], ["a"]), node("Reshape", ["a", "s"], ["b"]), node("Softmax", ["b"], ["y"])]
    plan = build_plan(typed_graph(nodes, X, ["y"], constants), Target())
    assert len(plan.commands) == 2
    assert not plan.constants, "the shape is folded into the plan, not uploaded"
    assert any({"a", "b"} <= set(s.names) for s in plan.memory.storages)


def test_plan__relu_of_a_dying_value__runs_in_place() -> None:
    nodes = [node("Softmax", ["x"], ["a"]), node("Relu", ["a"], ["y"])]
    plan = build_plan(typed_graph(nodes, X, ["y"]), Target())
    assert len(plan.commands[-1].regions) == 1
    assert plan.memory.total_without_reuse == 3 * 256


def test_plan__relu_of_a_value_read_later__does_not_run_in_place() -> None:
    nodes = [node("Softmax", ["x"], ["a"]), node("Relu", ["a"], ["r"]), node("Add", ["a", "r"], ["y"])]
    plan = build_plan(typed_graph(nodes, X, ["y"]), Target())
    assert len(plan.commands[1].regions) == 2


def test_plan__same_tensor_twice__is_bound_once() -> None:
    plan = build_plan(typed_graph([node("Add", ["x", "x"], ["y"])], X, ["y"]), Target())
    assert len(plan.commands[0].regions) <= 2


def test_plan__constant_branch__is_folded() -> None:
    constants = {"w": Constant.from_array(np.ones((8, 8), np.float32))}
    nodes = [node("Transpose", ["w"], ["wt"]), node("Add", ["x", "wt"], ["y"])]
    plan = build_plan(typed_graph(nodes, X, ["y"], constants), Target())
    assert len(plan.commands) == 1
    assert [r.space for r in plan.commands[0].regions].count(Space.WEIGHTS) == 1


def test_plan__node_without_kernel__becomes_a_host_step_with_its_reason() -> None:
    double = {"x": TensorType(DType.DOUBLE, (8, 8))}
    plan = build_plan(typed_graph([node("Softmax", ["x"], ["y"])], double, ["y"]), Target())
    assert [type(s) for s in plan.steps] == [HostStep]
    (assignment,) = plan.assignments
    assert assignment.placement == "host" and "float64" in assignment.reason


def test_plan__output_that_is_static__needs_no_step() -> None:
    plan = build_plan(typed_graph([node("Shape", ["x"], ["y"])], X, ["y"]), Target())
    assert plan.steps == []
    np.testing.assert_array_equal(np.asarray(plan.host_values["y"][1]), [8, 8])


def test_plan__dead_node__does_not_run() -> None:
    nodes = [node("Softmax", ["x"], ["dead"]), node("Transpose", ["x"], ["y"])]
    plan = build_plan(typed_graph(nodes, X, ["y"]), Target())
    assert [c.node for c in plan.commands] == [0]
    assert {a.placement for a in plan.assignments} == {"gpu", "none"}


def test_split_static__small_static_input_of_a_heavy_value__is_folded_into_its_plan() -> None:
    constants = {
        "table": Constant.from_array(np.ones((64, 512), np.float32)),
        "grid": Constant.from_array(np.arange(128).reshape(1, 128) % 64),
        "at": Constant.from_array(np.arange(100).reshape(1, 100)),
    }
    nodes = [
        node("GatherElements", ["grid", "at"], ["ids"], axis=1),
        node("Gather", ["table", "ids"], ["rows"]),
        node("Add", ["x", "rows"], ["y"]),
    ]
    graph = typed_graph(nodes, {"x": TensorType(F, (1, 100, 512))}, ["y"], constants)
    first = split_static(graph, Target())
    assert first is not None and first.outputs == ["rows"]
    plan = build_plan(first, Target(), first.outputs)
    assert len(plan.commands) == 1
    assert not [s for s in plan.steps if isinstance(s, GpuSegment) and s.uploads]
    assert len(build_plan(graph, Target()).commands) == 1


def test_split_static__node_in_front_of_what_it_reads__gets_it_first() -> None:
    weights = {n: np.random.default_rng(i).standard_normal((160, 160)).astype(np.float32) for i, n in enumerate("ab")}
    constants = {n: Constant.from_array(w) for n, w in weights.items()}
    nodes = [
        node("Transpose", ["a"], ["at"]),
        node("Transpose", ["b"], ["bt"]),
        node("Concat", ["at", "bt"], ["both"], axis=1),
        node("MatMul", ["x", "both"], ["y"]),
        node("MatMul", ["x", "bt"], ["z"]),
    ]
    graph = typed_graph(nodes, {"x": TensorType(F, (8, 160))}, ["y", "z"], constants)
    late = graph.nodes[1]
    graph.remove([late])
    graph.insert_before(graph.nodes[-1], late)  # as merging products leaves it
    graph.verify()
    first = split_static(graph, Target())
    assert first is not None and set(first.outputs) == {"both", "bt"}
    graph.verify()
    for name in first.outputs:
        alone = part(first, name)
        alone.verify()
        plan = build_plan(alone, Target(), alone.outputs)
        assert not [s for s in plan.steps if isinstance(s, HostStep) or s.uploads]
        (value,) = evaluate(alone, {})
        bt = weights["b"].T
        np.testing.assert_array_equal(value, bt if name == "bt" else np.concatenate([weights["a"].T, bt], 1))


def test_split_static__view_of_a_constant_that_host_and_gpu_read__keeps_its_value() -> None:
    flat = np.arange(40000, dtype=np.float32)
    constants = {"w": Constant.from_array(flat), "s": Constant.from_array(np.array([200, 200]))}
    nodes = [
        node("Reshape", ["w", "s"], ["v"]),
        node("Add", ["v", "x"], ["z"]),
        Node(_OnHost(), ("v", "x"), ("y",), "host"),
    ]
    graph = typed_graph(nodes, {"x": TensorType(F, (200, 200))}, ["y", "z"], constants)
    assert split_static(graph, Target()) is None
    assert "v" not in graph.static, "it stays a view on the GPU"
    (step,) = (s for s in build_plan(graph, Target()).steps if isinstance(s, HostStep))
    view = step.inputs[0]
    assert view is not None
    np.testing.assert_array_equal(view.value().reshape(-1), flat)


class _OnHost(Op):
    """y = a + b, without a kernel."""

    def infer(self, a: TensorType, b: TensorType) -> tuple[TensorType, ...]:
        return (b,)


def test_plan__equal_weights_of_two_names__are_one_that_is_bound_for_each() -> None:
    ones = {n: Constant.from_array(np.ones(4, np.float32)) for n in ("scale", "bias", "mean", "variance")}
    batch_norm = node("BatchNormalization", ["x", *ones], ["y"])
    plan = build_plan(typed_graph([batch_norm], {"x": TensorType(DType.FLOAT, (1, 4, 3, 3))}, ["y"], ones), Target())
    assert len(plan.constants) == 1
    (command,) = plan.commands
    assert [r.index for r in command.regions if r.space is Space.WEIGHTS] == [0] * 4
    alike = {n: Constant.from_array(np.full(4, i, np.float32)) for i, n in enumerate(ones)}
    other = build_plan(typed_graph([batch_norm], {"x": TensorType(DType.FLOAT, (1, 4, 3, 3))}, ["y"], alike), Target())
    assert len(other.constants) == 4 and list(other.shaders) == list(plan.shaders)


def test_plan__view_whose_other_inputs_only_the_gpu_could_make__is_no_host_step() -> None:
    """ScatterND of no index is its data; nothing makes the indices and updates that it does not read."""
    given = {"x": TensorType(F, (2, 3)), "i": TensorType(DType.INT64, (0, 2))}
    nodes = [node("GatherND", ["x", "i"], ["g"]), node("ScatterND", ["x", "i", "g"], ["y"])]
    graph = typed_graph(nodes, given, ["y"])
    plan = build_plan(graph, Target())
    assert not plan.host_steps
