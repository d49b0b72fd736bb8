"""Graph passes: functions that rewrite a graph, with the facts that they require, ensure and break."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import wraps

from pyruntime.ir import Edit, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.passes.match import Matcher

__all__ = ["Fact", "Pass", "graph_pass", "node_pass"]


class Fact(Enum):
    """Property of a graph that a pass establishes: nothing is left to do for it, until another pass breaks it."""

    NO_DEAD_NODES = "every node has an output that is read or is a graph output"
    SHAPES_CONSTANT = "Reshape and Expand read their shapes from constants"
    INTEGER_PRODUCTS = "products of dequantized operands are integer products"
    QUANTIZATION_MOVED = "no integers are dequantized, rearranged and quantized with the same parameters"
    NORMS_FUSED = "normalizations are one node each"
    CHANNELS_LAST = "regions between transposes have the layout that moves fewer bytes"
    ROLLS_FUSED = "rolls and the transposes between them are one node each"
    ROTARY_FUSED = "rotary embeddings are one node each"
    ATTENTION_FUSED = "attentions composed of several operators are one node each"
    PATCHES_TRANSPOSED = "concatenations of strided slices are transposes"
    HALF_PRECISION = "nodes compute in float16 if the session asks for it and their values allow it"
    ELEMENTWISE_FUSED = "chains of elementwise operators are one node each"
    PRODUCTS_PAIRED = "gated products with packed weights are one node each"
    EPILOGUES_FUSED = "products include the elementwise operators that follow them"
    PRODUCT_NORMS_FUSED = "products include the normalizations of their rows"
    SKIP_NORMS_FUSED = "normalizations include the additions before them"
    NORMED_PRODUCTS_FUSED = "products with packed weights include the norms before them"
    CACHES_IN_PLACE = "caches are updated in the memory of an input where possible"


@dataclass(frozen=True, slots=True)
class Pass:
    """A graph pass.

    Attributes:
        name: name of its module, by which the session config entry `pyruntime.disable` excludes it.
        run: rewrites the graph in place and returns whether it changed.
        requires: facts that let the pass find more matches.
        ensures: facts that hold after it.
        breaks: facts that may no longer hold if it changed something.
        repeats: run it until nothing changes.
        always: run it even in sessions without optimization.
    """

    name: str
    run: Callable[[TypedGraph, Target], bool]
    requires: frozenset[Fact] = frozenset()
    ensures: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()
    repeats: bool = False
    always: bool = False

    def __call__(self, graph: TypedGraph, target: Target) -> bool:
        """Run the pass; returns whether the graph changed."""
        changed = self.run(graph, target)
        while changed and self.repeats and self.run(graph, target):
            pass
        return changed


def graph_pass(
    requires: Iterable[Fact] = (),
    ensures: Iterable[Fact] = (),
    breaks: Iterable[Fact] = (),
    repeats: bool = False,
    always: bool = False,
) -> Callable[[Callable[[TypedGraph, Target], bool]], Pass]:
    """Decorator: make a function the pass of its module; for the arguments see `Pass`."""

    def made(run: Callable[[TypedGraph, Target], bool]) -> Pass:
        name = run.__module__.rpartition(".")[2]
        return Pass(name, run, frozenset(requires), frozenset(ensures), frozenset(breaks), repeats, always)

    return made


def node_pass(
    requires: Iterable[Fact] = (), ensures: Iterable[Fact] = (), breaks: Iterable[Fact] = (), always: bool = False
) -> Callable[[Callable[[Matcher, Target, Node], Edit | None]], Pass]:
    """Decorator: make a function of a node, as `TypedGraph.rewrite` takes it, the pass of its module."""

    def made(instead: Callable[[Matcher, Target, Node], Edit | None]) -> Pass:
        @wraps(instead)
        def run(graph: TypedGraph, target: Target) -> bool:
            match = Matcher(graph)
            return graph.rewrite(lambda node: instead(match, target, node))

        return graph_pass(requires, ensures, breaks, always=always)(run)

    return made
