"""A model as the planner sees it after all passes: its dispatches counted, and run node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from pyruntime.compiler.constants import split_static
from pyruntime.compiler.placement import Placed, place
from pyruntime.compiler.typing import Guards, Typing
from pyruntime.ir import Array, Node, TensorType, TypedGraph, ValueType, known
from pyruntime.kernels import Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.interpreter import execute
from pyruntime.passes import optimize
from tests.harness import carrier, run_typed

__all__ = ["Planned", "planned"]

PACKED_DOT = frozenset({"packed_4x8_integer_dot_product"})


class Planned:
    """`graph`, optimised; `prologue` makes its large computed constants, if any; `placed`: the nodes that run."""

    def __init__(self, graph: TypedGraph, target: Target) -> None:
        self.target = target
        self.prologue = split_static(graph, target)
        self.graph = graph
        self.placed, _ = place(graph, target)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels of a run, in order."""
        return [d.kernel.name for p in self.placed for d in p.dispatches]

    @property
    def on_host(self) -> list[Placed]:
        """Nodes that have no kernel."""
        return [p for p in self.placed if p.where == "host"]

    def held(self) -> dict[str, TensorType]:
        """Constants that the dispatches of a run read, by name."""
        made = set(self.prologue.outputs) if self.prologue else set()
        names = {n for p in self.placed if p.where == "gpu" for n in p.reads}
        return {n: self.graph.tensor(n) for n in names if n in self.graph.constants or n in made}

    def run(self, feeds: Mapping[str, Array], gpu: Any = None) -> list[Array]:
        """The outputs: every node on NumPy, or on `gpu` where it has a kernel."""
        values: dict[str, Any] = {n: carrier(x)[1] for n, x in feeds.items()}
        for node in self.prologue.nodes if self.prologue else ():
            self._step(node, values, gpu)
        wanted = {id(p.node): p for p in self.placed}
        for node in self.graph.nodes:
            if id(node) in wanted:
                self._step(node, values, gpu if wanted[id(node)].where != "host" else None)
        return [self._value(values, n) for n in self.graph.outputs]

    def _value(self, values: dict[str, Any], name: str) -> Any:
        return values[name] if name in values else self.graph.tensor(name).value()

    def _step(self, node: Node, values: dict[str, Any], gpu: Any) -> None:
        op: Any = node.op
        kinds = [
            known(TensorType(self.graph.tensor(n).dtype, self.graph.tensor(n).shape), self._value(values, n))
            if n
            else None
            for n in node.inputs
        ]
        if gpu is None:
            made: list[Any] = [None if y is None else y.value() for y in execute(op, *kinds)]
        else:
            arrays = [None if k is None else k.value() for k in kinds]
            # What the plan made of it was made without these values, but for those of constants.
            types = [self.graph.types[n] if n else None for n in node.inputs]
            made = run_typed(op, types, arrays, gpu)
        values.update({n: y for n, y in zip(node.outputs, made, strict=False) if n and y is not None})


def planned(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], target: Target | None = None) -> Planned:
    """The plan's graph for inputs of these shapes, on a device that has packed dot products where none is given."""
    target = target or Target(features=PACKED_DOT)
    graph = import_model(read_model(model.SerializeToString())).graph
    types: dict[str, ValueType] = {
        n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in graph.constants.items()
    }
    for value in graph.inputs:
        declared: Any = value.type
        types[value.name] = TensorType(declared.dtype, shapes[value.name], None, value.name)
    typing = Typing(types, set(graph.constants), Guards({}))
    rest, boundary = typing.run(graph.nodes)
    assert not rest and boundary is None, f"planning waits for values at {boundary}"
    typed = typing.graph(list(shapes), [v.name for v in graph.outputs], graph.constants)
    optimize(typed, target)
    typed.verify()
    return Planned(typed, target)
