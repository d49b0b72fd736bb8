"""What writes the nodes of a graph anew: new values, also static ones, and views of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.ir import Array, DType, Node, TensorType, TypedGraph, int_array
from pyruntime.ops.registry import newest
from pyruntime.passes.match import Matcher

__all__ = ["Writer"]


class Writer:
    """Collects in `made` what takes the place of the graph's nodes."""

    def __init__(self, graph: TypedGraph, match: Matcher) -> None:
        self.graph = graph
        self.match = match
        self.made: list[Node] = []

    def _static(self, name: str, made: Callable[[Array], Array], shape: tuple[Any, ...], hint: str) -> str:
        """A value that follows from the static value `name`, "" where that is not static."""
        kind = self.graph.tensor(name)
        if name not in self.graph.static:
            return ""
        result = self.graph.fresh(hint)
        self.graph.types[result] = replace(kind, shape=shape, source=lambda: made(kind.value()), name=result)
        self.graph.static.add(result)
        return result

    def _value(self, hint: str, dtype: DType, shape: tuple[Any, ...]) -> str:
        name = self.graph.fresh(hint)
        self.graph.types[name] = TensorType(dtype, shape, None, name)
        return name

    def _reshape(self, source: str, result: str, shape: Sequence[Any]) -> Node:
        wanted = self.graph.add_constant(int_array(shape), DType.INT64, f"{result}.shape")
        return Node(newest("Reshape"), (source, wanted), (result,), result)
