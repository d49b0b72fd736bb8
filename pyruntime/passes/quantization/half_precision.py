"""Convert float32 nodes to float16, with casts between, under the session option `precision: 'float16'`.

Graph inputs and outputs keep their types. Weights are cast once, when the model is loaded. The pass runs after norms
and attention are fused, whose kernels accumulate in float32, and before elementwise chains are fused, so that casts
join the chains. `float32_nodes.py` selects the nodes that stay in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, Node, TensorType, TypedGraph, ValueType
from pyruntime.ir.encoding import round_to
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.quantization.float16_range import LARGEST
from pyruntime.passes.quantization.float32_nodes import Float32Nodes, float32_operands, is_static, named

__all__ = ["run"]


@graph_pass(requires=(Fact.NORMS_FUSED, Fact.ATTENTION_FUSED), ensures=(Fact.HALF_PRECISION,), always=True)
def run(graph: TypedGraph, target: Target) -> bool:
    """Convert all eligible nodes; return whether there was one."""
    if target.half is None:
        return False
    kept = Float32Nodes(graph, target)
    kept.find()
    for node in kept.computing:
        graph.precision[named(node)] = kept.reasons.get(node, "")
    return _Conversion(graph, kept).run()


class _Conversion:
    """Inserts casts between float32 and float16 nodes.

    `half` maps a float32 value to its name in float16, `full` a value that has become float16 to its name in float32.
    """

    def __init__(self, graph: TypedGraph, kept: Float32Nodes) -> None:
        self.graph, self.kept = graph, kept
        self.wanted = set(graph.outputs)
        self.half: dict[str, str] = {}
        self.full: dict[str, str] = {}
        self.before: list[Node] = []

    def run(self) -> bool:
        """Convert the graph; return whether it changed."""
        converted = set(self.kept.computing) - self.kept.reasons.keys()
        edits: dict[Node, Sequence[Node]] = {}
        for node in self.graph.nodes:
            if is_static(self.graph, node):
                continue
            self.before, after = [], list[Node]()
            if node in converted:
                after = self._convert(node)
            else:
                self.graph.update(node, inputs=[self._in_float32(n) for n in node.inputs])
            if self.before or after:
                edits[node] = (*self.before, node, *after)
        return self.graph.substitute(edits) or bool(converted)

    def _convert(self, node: Node) -> list[Node]:
        """Let a node compute in float16; return the casts of its outputs to float32."""
        op: Any = node.op
        stay = float32_operands(op)
        inputs = [self._in_float32(n) if i in stay else self._in_float16(n) for i, n in enumerate(node.inputs)]
        made = op.infer(*(self.graph.types[n] if n else None for n in inputs))
        outputs, after = list(node.outputs), list[Node]()
        for i, (name, kind) in enumerate(zip(node.outputs, made, strict=False)):
            if not name or not _is(self.graph.types[name], DType.FLOAT) or not _is(kind, DType.FLOAT16):
                continue
            half = replace(self.graph.tensor(name), dtype=DType.FLOAT16, source=None)
            if name in self.wanted:
                outputs[i] = self.half[name] = self.graph.add_value(f"{name}.float16", half)
                after.append(_cast(outputs[i], name, DType.FLOAT, node.name))
            else:
                self.half[name], self.graph.types[name] = name, half
        self.graph.update(node, inputs=inputs, outputs=outputs)
        return after

    def _in_float32(self, name: str) -> str:
        if self.half.get(name) != name or not name:
            return name
        if name not in self.full:
            whole = replace(self.graph.tensor(name), dtype=DType.FLOAT)
            self.full[name] = self.graph.add_value(f"{name}.float32", whole)
            self.before.append(_cast(name, self.full[name], DType.FLOAT))
        return self.full[name]

    def _in_float16(self, name: str) -> str:
        name = self._original(name)
        if not name or name in self.half or not _is(self.graph.types[name], DType.FLOAT):
            return self.half.get(name, name)
        kind, source = self.graph.tensor(name), name
        half = TensorType(DType.FLOAT16, kind.shape)
        if name in self.graph.static:
            made = self.graph.add_value(f"{name}.float16", half, lambda: _rounded(kind))
        else:
            if name in self.kept.derived:
                source = self._within_range(name)
            made = self.graph.add_value(f"{name}.float16", half)
        self.before.append(_cast(source, made, DType.FLOAT16))
        self.half[name] = made
        return made

    def _original(self, name: str) -> str:
        """Follow Identity nodes from a static value to the constant, so that a shared weight is cast once."""
        while name in self.graph.static and (node := self.graph.producer(name)) is not None:
            if node.op.op_type != "Identity":
                break
            name = node.inputs[0]
        return name

    def _within_range(self, name: str) -> str:
        """Clip a value to the float16 range: masks contain -3.4e38, which must not become -inf."""
        bounds = [self.graph.add_constant(np.array(b, np.float32), DType.FLOAT, "bound") for b in (-LARGEST, LARGEST)]
        made = self.graph.add_value(f"{name}.bounded", self.graph.tensor(name))
        self.before.append(Node(newest("Clip"), (name, *bounds), (made,), made))
        return made


def _is(kind: ValueType, dtype: DType) -> bool:
    return isinstance(kind, TensorType) and kind.dtype is dtype


def _rounded(kind: TensorType) -> Array:
    with np.errstate(all="ignore"):
        return round_to(kind.value(), DType.FLOAT16)


def _cast(source: str, result: str, dtype: DType, name: str = "") -> Node:
    return Node(newest("Cast", to=dtype.code), (source,), (result,), name or result)
