"""Random graphs rewritten as ONNX: onnxruntime computes the same of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from pyruntime.compiler.rewriting import rewrite
from pyruntime.onnx.graph_writer import write_model
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from tests.fuzz.build import Family
from tests.fuzz.graphs import graphs
from tests.fuzz.layouts import layouts
from tests.fuzz.plans import random_sample
from tests.fuzz.reuse import reuse
from tests.oracle import OPTIONS

SAMPLES = 40
"""Graphs of a family."""


@pytest.mark.parametrize("family", [layouts, graphs, reuse], ids=lambda f: f.__name__)
def test_rewrite__random_graphs__onnxruntime_computes_the_same(family: Family, tmp_path: Path) -> None:
    compared = 0
    for seed in range(SAMPLES):
        sample = random_sample(family, seed)
        content = sample.model.SerializeToString()
        try:
            wanted = ort.InferenceSession(content, OPTIONS).run(None, sample.feeds)
            given = import_model(read_model(content))
        except Exception:  # onnxruntime's have no base class: not a graph that both take
            continue
        write_model(tmp_path / "m.onnx", rewrite(given.graph, {}), given.opsets)
        made = ort.InferenceSession(str(tmp_path / "m.onnx"), OPTIONS).run(None, sample.feeds)
        for mine, theirs in zip(made, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, 2e-3, 2e-3, err_msg=f"seed {seed}{sample!r}")
        compared += 1
    assert compared > SAMPLES // 2
