"""The list of passes: what each requires holds when it runs, and what it ensures holds after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from pyruntime.ir import TypedGraph
from pyruntime.kernels import Target
from pyruntime.passes.cleanup import dead_code
from pyruntime.passes.graph_pass import Fact, Pass
from pyruntime.passes.pipeline import PASSES, PassRun, optimize
from tests.fuzz.build import Family
from tests.fuzz.graphs import graphs
from tests.fuzz.layouts import layouts
from tests.fuzz.plans import random_sample, targets
from tests.fuzz.reuse import reuse
from tests.fuzz.test_passes import typed
from tests.passes.support import copied, graph_of, node, op_types

SAMPLES = 40
"""Graphs of a family."""

ENSURED = {fact: [one for one in dict.fromkeys(PASSES) if fact in one.ensures] for fact in Fact}


def broken(facts: Iterable[Fact], graph: TypedGraph, target: Target) -> list[str]:
    """Those of `facts` that do not hold: the pass that ensures one, if it is not left out, would change the graph."""
    found: list[str] = []
    for one in (one for fact in facts for one in ENSURED[fact] if one.name not in target.disabled):
        copy = copied(graph)
        if Fact.NO_DEAD_NODES not in one.ensures:
            dead_code.run(copy, target)
        if Fact.SHAPES_CONSTANT in one.ensures:
            nodes = [n for n in copy.nodes if n.op.op_type in ("Reshape", "Expand") and n.outputs[0] not in copy.static]
            found += [repr(n) for n in nodes if n.inputs[1] not in copy.constants]
        elif one.run(copy, target):
            found.append(one.name)
    return found


def test_passes__what_each_requires__was_ensured_before_and_not_broken_since() -> None:
    held: set[Fact] = set()
    for one in PASSES:
        assert one.requires <= held, f"{one.name} requires {one.requires - held}"
        held = (held - one.breaks) | one.ensures
    assert all(len(passes) == 1 for passes in ENSURED.values()), "each fact has the pass that ensures it"


def test_passes__names__are_those_of_one_module_each() -> None:
    names = Counter(one.name for one in dict.fromkeys(PASSES))
    assert not [name for name, count in names.items() if count > 1]
    always = ["split_large_weights", "wide_sums", "half_precision", "grow_in_place"]
    assert [one.name for one in PASSES if one.always] == always


@pytest.mark.parametrize("family", [layouts, graphs, reuse], ids=lambda f: f.__name__)
def test_passes__random_graphs__find_what_they_require_and_leave_what_they_ensure(family: Family) -> None:
    for seed in range(SAMPLES):
        graph, target = typed(random_sample(family, seed)), targets(seed)[seed % 3]
        if graph is None:
            continue
        with np.errstate(all="ignore"):
            for one in PASSES:
                if one.name in target.disabled:
                    continue
                assert not broken(one.requires, graph, target), f"seed {seed}: before {one.name}"
                before = [*map(repr, graph.nodes)]
                if not one(graph, target):
                    assert before == [*map(repr, graph.nodes)], f"seed {seed}: {one.name} says that nothing changed"
                assert not broken(one.ensures, graph, target), f"seed {seed}: after {one.name}"


def test_optimize__passes_left_out__do_not_run_and_others_are_observed() -> None:
    graph = graph_of(
        [node("Neg", ["x"], ["dead"]), node("Identity", ["x"], ["a"]), node("Relu", ["a"], ["y"])], X, ["y"]
    )
    seen: list[tuple[str, list[str]]] = []
    runs = optimize(
        graph, Target(disabled=frozenset({"dead_code"})), observe=lambda run, g: seen.append((run.name, op_types(g)))
    )
    assert [one.name for one in runs] == [one.name for one in PASSES if one.name != "dead_code"]
    assert [(one.name, one.nodes) for one in runs if one.changed] == [("simplify_shapes", 2)]
    assert dict(seen)["simplify_shapes"] == ["Neg", "Relu"] and all(one.seconds >= 0 for one in runs)


@pytest.mark.parametrize(("repeats", "steps"), [(False, 1), (True, 3)])
def test_pass__repeats__runs_until_nothing_changes(repeats: bool, steps: int) -> None:
    """A pass that takes the last of three nodes away each time."""

    def shorten(graph: TypedGraph, target: Target) -> bool:
        return graph.remove(graph.nodes[-1:])

    nodes = [node("Neg", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["b"], ["y"])]
    graph = graph_of(nodes, X, ["y"])
    (run,) = optimize(graph, Target(), (Pass("shorten", shorten, repeats=repeats),))
    assert run == PassRun("shorten", True, 3 - steps, run.seconds) and len(graph.nodes) == 3 - steps


X = {"x": (4,)}
