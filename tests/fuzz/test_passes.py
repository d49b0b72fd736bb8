"""Passes keep what random graphs compute: node by node on NumPy, before them and after each that changes something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from pyruntime.errors import OrtError
from pyruntime.ir import Array, DType, TensorType, TypedGraph
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.passes.pipeline import PASSES
from tests.compiler.graphs import typed_graph
from tests.fuzz.build import Family, Sample
from tests.fuzz.graphs import graphs
from tests.fuzz.layouts import layouts
from tests.fuzz.plans import random_sample, targets
from tests.fuzz.reuse import reuse
from tests.passes.support import evaluate

SAMPLES = 120
"""Graphs of a family."""

TOLERANCE = (2e-3, 2e-3)
"""float32; sums in another order, convolutions as products."""


def typed(sample: Sample) -> TypedGraph | None:
    """The sample's graph with its types; None where shapes follow from what is fed."""
    graph = import_model(read_model(sample.model.SerializeToString())).graph
    kinds = {n: TensorType(DType.from_numpy(x.dtype), x.shape) for n, x in sample.feeds.items()}
    try:
        return typed_graph(list(graph.nodes), kinds, [v.name for v in graph.outputs], dict(graph.constants))
    except (AssertionError, OrtError):
        return None


def changes(graph: TypedGraph, seed: int) -> Iterator[str]:
    """Run the passes for one of three devices; the names of those that changed something, each before the next runs."""
    target = targets(seed)[seed % 3]
    for one in PASSES:
        if one.name not in target.disabled and one(graph, target):
            graph.verify()
            yield one.name


def agree(graph: TypedGraph, feeds: Mapping[str, Array], wanted: list[Array], what: str) -> None:
    for mine, theirs in zip(evaluate(graph, feeds), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, *TOLERANCE, err_msg=what)


@pytest.mark.parametrize("family", [layouts, graphs, reuse], ids=lambda f: f.__name__)
def test_passes__random_graphs__keep_what_they_compute(family: Family) -> None:
    seen: set[str] = set()
    for seed in range(SAMPLES):
        sample = random_sample(family, seed)
        graph = typed(sample)
        if graph is None:
            continue
        with np.errstate(all="ignore"):
            wanted = evaluate(graph, sample.feeds)
            for name in changes(graph, seed):
                agree(graph, sample.feeds, wanted, f"seed {seed}, {name}{sample!r}")
                seen.add(name)
    assert {"dead_code", "fuse_elementwise", "fuse_epilogue"} <= seen
    assert family is not layouts or {"channels_last", "merge_transposes"} <= seen
