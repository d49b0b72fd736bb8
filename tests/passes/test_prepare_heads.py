"""Queries, keys and values made ready for attention in one dispatch: matches in the ways of exporters, and none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.fused.prepared_heads import PreparedHeads
from pyruntime.passes.cleanup import dead_code
from pyruntime.passes.decoding import prepare_heads
from pyruntime.passes.fusion import fuse_rotary
from tests.passes.support import apply, graph_of, node, op_types

B, N, SIZE, PAST = 2, 3, 8, 5
HEADS = {"q": 4, "k": 2, "v": 2}
LAST = 2**63 - 1


class Layer:
    """What stands between the product `x` and attention."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self.nodes: list[Node] = []
        self.constants: dict[str, Any] = {}
        self.inputs: dict[str, tuple[int, ...]] = {
            "x": (B, N, sum(HEADS.values()) * size),
            "cos": (B, 1, N, size),
            "sin": (B, 1, N, size),
        }
        widths = [n * size for n in HEADS.values()]
        self.add("Split", ["x", self.given(widths)], list("qkv"), axis=2)

    def add(self, op: str, inputs: list[str], outputs: list[str] | None = None, **attributes: Any) -> str:
        names = outputs or [f"n{len(self.nodes)}"]
        self.nodes.append(node(op, inputs, names, **attributes))
        return names[0]

    def given(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        array = np.asarray(value)
        self.constants[name] = array.astype(np.int64) if array.dtype.kind == "i" else array.astype(np.float32)
        return name

    def heads(self, part: str, norm: bool = False, late: bool = False) -> str:
        """[B, H, N, D]; `norm` of the heads as they are in the product; `late`: [B, N, H, D]."""
        made = self.add("Reshape", [part, self.given([B, N, HEADS[part], self.size])])
        if norm:
            scale = self.given(np.random.default_rng(1).uniform(0.5, 1.5, self.size))
            made = self.add("RMSNormalization", [made, scale], axis=-1, epsilon=1e-6)
        return made if late else self.transposed(made)

    def transposed(self, x: str) -> str:
        return self.add("Transpose", [x], perm=(0, 2, 1, 3))

    def turned(self, x: str, cos: str = "cos", sin: str = "sin") -> str:
        half, axis, one = self.given([self.size // 2]), self.given([3]), self.given([1])
        first = self.add("Slice", [x, self.given([0]), half, axis, one])
        second = self.add("Slice", [x, half, self.given([LAST]), axis, one])
        rotated = self.add("Concat", [self.add("Neg", [second]), first], axis=-1)
        return self.add("Add", [self.add("Mul", [x, cos]), self.add("Mul", [rotated, sin])])

    def appended(self, part: str, x: str, axis: int = 2) -> str:
        self.inputs[f"past_{part}"] = (B, HEADS[part], PAST, self.size)
        return self.add("Concat", [f"past_{part}", x], [f"present_{part}"], axis=axis)

    def graph(self, *outputs: str) -> TypedGraph:
        ends = [self.add("Relu", [name]) for name in outputs]
        graph = graph_of(self.nodes, self.inputs, ends, self.constants)
        apply(fuse_rotary.run, graph)
        dead_code.run(graph, Target())
        return graph


def prepared(graph: TypedGraph) -> list[PreparedHeads]:
    """Run the pass, which must match; the operators it made."""
    assert apply(prepare_heads.run, graph)
    dead_code.run(graph, Target())
    return [n.op for n in graph.nodes if isinstance(n.op, PreparedHeads)]


@pytest.mark.parametrize("norm", [False, True])
def test_prepare_heads__queries_keys_and_values_with_caches__are_one(norm: bool) -> None:
    layer = Layer()
    q = layer.turned(layer.heads("q", norm))
    k = layer.appended("k", layer.turned(layer.heads("k", norm)))
    v = layer.appended("v", layer.heads("v"))
    graph = layer.graph(q, k, v)
    (op,) = prepared(graph)
    assert op_types(graph) == ["PreparedHeads", "Relu", "Relu", "Relu"]
    assert [p.past >= 0 for p in op.parts] == [False, True, True]
    assert [p.angles is not None for p in op.parts] == [True, True, False]
    assert [p.weight >= 0 for p in op.parts] == [norm, norm, False]
    assert {p.x for p in op.parts} == {0}
    assert not apply(prepare_heads.run, graph)


def test_prepare_heads__turned_before_heads_come_first__are_one() -> None:
    layer = Layer()
    layer.inputs |= {"cos": (B, N, 1, SIZE), "sin": (B, N, 1, SIZE)}
    q = layer.transposed(layer.turned(layer.heads("q", norm=True, late=True)))
    k = layer.appended("k", layer.transposed(layer.turned(layer.heads("k", norm=True, late=True))))
    graph = layer.graph(q, k)
    (op,) = prepared(graph)
    assert len(op.parts) == 2
    assert "Concat" not in op_types(graph) and "RMSNormalization" not in op_types(graph)


def test_prepare_heads__keys_and_values_that_nothing_turns__are_one() -> None:
    layer = Layer()
    k, v = layer.appended("k", layer.heads("k")), layer.appended("v", layer.heads("v"))
    (op,) = prepared(layer.graph(k, v))
    assert len(op.parts) == 2 and op.tables == (-1, -1)


def test_prepare_heads__no_rows_in_the_caches__are_one() -> None:
    layer = Layer()
    k, v = layer.appended("k", layer.turned(layer.heads("k"))), layer.appended("v", layer.heads("v"))
    layer.inputs |= {f"past_{p}": (B, HEADS[p], 0, SIZE) for p in "kv"}
    assert len(prepared(layer.graph(k, v))) == 1


def test_prepare_heads__tables_of_their_own__are_two() -> None:
    layer = Layer()
    layer.inputs |= {"cos2": (B, 1, N, SIZE), "sin2": (B, 1, N, SIZE)}
    q = layer.turned(layer.heads("q", norm=True))
    k = layer.appended("k", layer.turned(layer.heads("k"), "cos2", "sin2"))
    ops = prepared(layer.graph(q, k))
    assert [len(op.parts) for op in ops] == [1, 1]


def test_prepare_heads__what_depends_on_the_other__is_not_joined() -> None:
    layer = Layer()
    k = layer.appended("k", layer.turned(layer.heads("k")))
    rows = layer.add("Slice", [k, layer.given([0]), layer.given([N]), layer.given([2]), layer.given([1])])
    v = layer.appended("v", layer.add("Add", [layer.heads("v"), layer.turned(rows)]))
    graph = layer.graph(k, v)
    ops = prepared(graph)
    assert [len(op.parts) for op in ops] == [1]
    graph.verify()


def test_prepare_heads__a_norm_that_others_read__stays() -> None:
    layer = Layer()
    heads = layer.heads("q", norm=True)
    graph = layer.graph(layer.turned(heads), layer.turned(layer.heads("k")), heads)
    (op,) = prepared(graph)
    assert "RMSNormalization" in op_types(graph)
    assert all(p.weight < 0 for p in op.parts)


def test_prepare_heads__readers_between_the_parts__come_after() -> None:
    layer = Layer()
    q = layer.turned(layer.heads("q"))
    early = layer.add("Exp", [q])
    k = layer.turned(layer.heads("k"))
    graph = layer.graph(early, k)
    assert len(prepared(graph)) == 1
    graph.verify()


@pytest.mark.parametrize(("size", "axis"), [(6, 2), (SIZE, 3), (260, 2)])
def test_prepare_heads__what_the_kernel_does_not_take__is_left_alone(size: int, axis: int) -> None:
    layer = Layer(size)
    ends = [layer.appended(part, layer.heads(part), axis) for part in "kv"]
    if axis == 3:
        layer.inputs |= {f"past_{part}": (B, HEADS[part], N, size) for part in "kv"}
    graph = layer.graph(*ends)
    before = op_types(graph)
    assert not apply(prepare_heads.run, graph)
    assert op_types(graph) == before


def test_prepare_heads__one_step_of_one_tensor__is_left_alone() -> None:
    layer = Layer()
    graph = layer.graph(layer.appended("v", layer.heads("v")))
    assert not apply(prepare_heads.run, graph)
