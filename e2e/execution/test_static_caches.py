"""Caches that do not grow, written over where they are, on WebGPU: right over branches and rewinding.

The oracle is onnxruntime, where it has the operators; else the CPU provider, which knows no caches in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime
from e2e.execution.test_growing_caches import RUN, run_on_host
from e2e.harness.python import BrowserPython
from e2e.harness.script import Script
from e2e.text.test_javascript_decoding import BRANCHING, COUNTS, DECODING, HELPERS, spent_between, wired
from tests.cache_models import STATIC, STATIC_ROWS, Cached
from tests.sampling import matrix

pytestmark = pytest.mark.unguarded

PLAN = [(0, 0, 7), (1, 7, 1), (2, 8, 1), (3, 9, 1), (4, 10, 1), (2, 8, 1), (4, 10, 1), (3, 5, 1), (8, 6, 1), (5, 11, 1)]
"""(state that is fed, rows of it that count, new rows): on, back to older ones, and over rows that count."""


def expected(cached: Cached, steps: list[Any], empty: Any) -> tuple[list[Any], list[Any]]:
    """Other outputs, and the caches after each step."""
    try:
        reference: Any = onnxruntime.InferenceSession(cached.model)
    except Exception:
        reference = pyruntime.InferenceSession(cached.model, providers=["CPUExecutionProvider"])
    return run_on_host(cached, steps, empty, reference)


def compare(cached: Cached, found: tuple[list[Any], list[Any]], steps: list[Any], empty: Any) -> None:
    """Outputs are the same, and so are the rows of caches that count."""
    results, ends = expected(cached, steps, empty)
    for number, (got, wanted) in enumerate(zip(found[0], results, strict=True)):
        for name, value in wanted.items():
            np.testing.assert_allclose(got[name], value, cached.atol, cached.atol, err_msg=f"{number} {name}")
    for (_, past, new), got, wanted in zip(PLAN, found[1], ends, strict=False):
        for name, value in wanted.items():
            rows = np.s_[:, :, : past + new]
            np.testing.assert_allclose(got[name][rows], value[rows], cached.atol, cached.atol, err_msg=f"{past} {name}")


@pytest.mark.parametrize(("name", "batch", "kernels"), matrix(list(STATIC), [1, 2], ["software", "gpu"]))
def test_caches__fed_back_and_branched__hold_what_counts(
    name: str, batch: int, kernels: str, python_in_browser: BrowserPython
) -> None:
    cached, gpu = STATIC[name], kernels == "gpu"
    empty = cached.empty(batch)
    steps = [(state, cached.feeds(batch, new, past)) for state, past, new in PLAN]
    results, ends, kept = python_in_browser(
        RUN, model=cached.model, caches=cached.caches, empty=empty, steps=steps, gpu=gpu
    )
    assert kept == cached.in_place
    compare(cached, (results, ends), steps, empty)


@pytest.mark.parametrize("name", ["scatter", "group_query_scalar"])
def test_javascript__branches__hold_what_counts(name: str, script: Script) -> None:
    cached = STATIC[name]
    empty = cached.empty(1)
    steps = [(state, cached.feeds(1, new, past)) for state, past, new in PLAN]
    script.page.reload()
    wire = [[state, wired(feeds)] for state, feeds in steps]
    found = script(
        HELPERS + BRANCHING, model=cached.model, caches=cached.caches, empty=wired(empty), steps=wire, worker=True
    )
    results, ends = (
        [{n: np.array(data).reshape(dims) for n, (data, dims) in one.items()} for one in found[part]]
        for part in ("results", "ends")
    )
    compare(cached, (results, ends), steps, empty)


@pytest.mark.parametrize("name", ["scatter", "group_query_scalar"])
def test_javascript__after_a_few_tokens__makes_nothing_and_asks_python_nothing(name: str, script: Script) -> None:
    """One submit a token, no buffer, bind group or pipeline; the caches stay where they are."""
    cached = STATIC[name]
    fed = [cached.feeds(1, 7, 0), *(cached.feeds(1, 1, past) for past in range(7, STATIC_ROWS))]
    empty = cached.empty(1)
    script.page.reload()
    script.watch()
    found, counts, warm = [], [], 36
    for start, end in [(0, warm), (warm, len(fed))]:
        given = {"fed": [wired(f) for f in fed[start:end]], "last": end == len(fed), "empty": wired(empty)}
        found += script(HELPERS + DECODING, model=cached.model, caches=cached.caches, **given)
        counts.append(script.worker.evaluate(COUNTS))
    results, _ = expected(cached, list(enumerate(fed)), empty)
    for number, (got, wanted) in enumerate(zip(found, results, strict=True)):
        for output, value in wanted.items():
            array = np.array(got[output][0]).reshape(value.shape)
            np.testing.assert_allclose(array, value, cached.atol, cached.atol, err_msg=f"{number} {output}")
    runs = len(fed) - warm
    assert spent_between(*counts) == {"all": runs, "withoutPython": runs, "buffers": 0, "groups": 0, "pipelines": 0}
