"""What a graph pass is: a function that rewrites a graph, what it needs of the graph, and what it leaves."""

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
    """What holds of a graph after a pass: nothing is left for that pass to do, until another one breaks it."""

    NO_DEAD_NODES = "every node has an output that is read or is the graph's"
    SHAPES_CONSTANT = "Reshape and Expand read their shapes from constants"
    INTEGER_PRODUCTS = "products of dequantized operands are integer products"
    QUANTIZATION_MOVED = "no bytes are dequantized, moved and quantized as they were"
    NORMS_FUSED = "normalizations are one node each"
    CHANNELS_LAST = "regions between transpositions have the layout that moves fewer bytes"
    ROLLS_FUSED = "rolls and the movements around them are one node each"
    ROTARY_FUSED = "rotary embeddings are one node each"
    ATTENTION_FUSED = "attention that is written out is one node each"
    PATCHES_TRANSPOSED = "concatenations of strided slices are transpositions"
    HALF_PRECISION = "nodes compute in float16 where a session wants that and they can"
    ELEMENTWISE_FUSED = "chains of elementwise operators are one node each"
    PRODUCTS_PAIRED = "gated products with packed weights are one node each"
    EPILOGUES_FUSED = "products have the elementwise operators that follow them"
    PRODUCT_NORMS_FUSED = "products have the normalizations of their rows"
    SKIP_NORMS_FUSED = "normalizations have the additions before them"
    NORMED_PRODUCTS_FUSED = "products with packed weights have the norms before them"
    CACHES_IN_PLACE = "caches that may stay in the memory of an input do"


@dataclass(frozen=True, slots=True)
class Pass:
    """A graph pass.

    Attributes:
        name: that of its module, which a session config entry `pyruntime.disable` leaves it out by.
        run: rewrites the graph in place, and says whether it changed.
        requires: facts without which it finds less.
        ensures: facts that hold after it.
        breaks: facts that need not hold any more where it changed something.
        repeats: calls run it until nothing changes.
        always: it runs where a session leaves out optimizations, too.
    """

    name: str
    run: Callable[[TypedGraph, Target], bool]
    requires: frozenset[Fact] = frozenset()
    ensures: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()
    repeats: bool = False
    always: bool = False

    def __call__(self, graph: TypedGraph, target: Target) -> bool:
        """Run the pass; True where the graph changed."""
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
    """Declare the function that is decorated as the pass of its module; see `Pass`."""

    def made(run: Callable[[TypedGraph, Target], bool]) -> Pass:
        name = run.__module__.rpartition(".")[2]
        return Pass(name, run, frozenset(requires), frozenset(ensures), frozenset(breaks), repeats, always)

    return made


def node_pass(
    requires: Iterable[Fact] = (), ensures: Iterable[Fact] = (), breaks: Iterable[Fact] = (), always: bool = False
) -> Callable[[Callable[[Matcher, Target, Node], Edit | None]], Pass]:
    """Declare the function that is decorated, of a node, as what a pass gives to `TypedGraph.rewrite`."""

    def made(instead: Callable[[Matcher, Target, Node], Edit | None]) -> Pass:
        @wraps(instead)
        def run(graph: TypedGraph, target: Target) -> bool:
            match = Matcher(graph)
            return graph.rewrite(lambda node: instead(match, target, node))

        return graph_pass(requires, ensures, breaks, always=always)(run)

    return made
