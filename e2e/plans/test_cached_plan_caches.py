"""Caches of decoders in sessions over cached plans: grown, written over and branched on later visits, without Python.

A sample of how caches are written; with PYRUNTIME_SOAK all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext

from e2e.conftest import mounts
from e2e.execution.test_growing_caches import run_on_host, steps_of
from e2e.execution.test_static_caches import PLAN, compare
from e2e.harness.browser import fresh_page
from e2e.harness.script import Script
from e2e.harness.visits import Visits
from e2e.text.test_javascript_decoding import HELPERS, wired
from tests.cache_models import CACHED, STATIC, Cached
from tools.devkit.server import Server

pytestmark = pytest.mark.unguarded

ALL = bool(os.environ.get("PYRUNTIME_SOAK"))
GROWING = list(CACHED) if ALL else ["concat", "group_query_4", "merged", "attention", "rows_inside", "float16", "int64"]
WRITTEN = list(STATIC) if ALL else ["scatter", "group_query_masked", "group_query_8"]

STEPS = """
Object.assign(arrays, { int8: Int8Array, uint8: Uint8Array, float16: globalThis.Float16Array });
await import('/e2e/watch.js');
const session = await InferenceSession.create('/x/model.onnx', { ...options, cachePlan: true });
const states = [tensors(empty)];
const results = [];
const first = { ...created };
for (const [state, feeds] of steps) {
  const made = await session.run({ ...tensors(feeds), ...states[state] });
  states.push(Object.fromEntries(Object.entries(caches).map(([output, input]) => [input, made[output]])));
  results.push(Object.fromEntries(Object.entries(made).filter(([name]) => !(name in caches))
    .map(([name, { data, dims }]) => [name, [plain(data), [...dims]]])));
}
const pipelines = created.pipelines - first.pipelines;
const ends = [];
for (const state of states.slice(1)) {
  const end = {};
  for (const [name, cache] of Object.entries(state)) {
    const { dims } = cache;
    end[name] = [plain(await cache.getData(true)), [...dims]];
  }
  ends.push(end);
}
await session.release();
const left = gpuBytes();
return { results, ends, said, left, pipelines };
"""


@pytest.fixture
def visits(context: BrowserContext, site: Path, tmp_path: Path) -> Iterator[Visits]:
    with Server(mounts(site) | {"/x/": tmp_path}) as server, fresh_page(context, server.url) as (page, guard):
        yield Visits(Script(page, guard), server, tmp_path)
        guard.allow("404")  # the icon of a page that has none


def visit(visits: Visits, cached: Cached, steps: list[Any], empty: Any) -> Any:
    """The steps on one visit: other outputs and the caches after each."""
    wire = [[state, wired(feeds)] for state, feeds in steps]
    given = {"caches": cached.caches, "empty": wired(empty), "steps": wire}
    return visits(HELPERS + STEPS, **given)


def arrays(found: Any, part: str) -> list[dict[str, Any]]:
    return [{n: np.array(data).reshape(dims) for n, (data, dims) in one.items()} for one in found[part]]


def twice(visits: Visits, cached: Cached, steps: list[Any], empty: Any) -> Any:
    """What the second of two visits finds, without Python, which is what the first one found."""
    (visits.folder / "model.onnx").write_bytes(cached.model)
    first = visit(visits, cached, steps, empty)
    assert first["said"] == [] and visits.has_python()
    visits.without_pyodide()
    second = visit(visits, cached, steps, empty)
    assert second["said"] == [] and not visits.has_python()
    assert second["pipelines"] <= 0, "all of them are asked for before the first run"
    for part in ("results", "ends"):
        for number, (one, other) in enumerate(zip(first[part], second[part], strict=True)):
            assert one == other, (part, number)
    assert {k: v for k, v in second["left"].items() if k != "staging"} == {}, "everything is given back"
    return second


@pytest.mark.parametrize("name", GROWING)
def test_caches__grown_and_branched_on_the_second_visit__are_what_onnxruntime_has(name: str, visits: Visits) -> None:
    """Over a doubling, from older states and from one state twice, which is copied."""
    cached = CACHED[name]
    empty, steps = cached.empty(1), steps_of(cached, 1)
    found = twice(visits, cached, steps, empty)
    wanted, wanted_ends = run_on_host(cached, steps, empty)
    pairs = zip([*arrays(found, "results"), *arrays(found, "ends")], [*wanted, *wanted_ends], strict=True)
    for number, (one, other) in enumerate(pairs):
        for output, value in other.items():
            assert one[output].shape == value.shape
            np.testing.assert_allclose(one[output], value, cached.atol, cached.atol, err_msg=f"{number} {output}")


@pytest.mark.parametrize("name", WRITTEN)
def test_caches__written_over_and_branched_on_the_second_visit__hold_what_counts(name: str, visits: Visits) -> None:
    cached = STATIC[name]
    empty = cached.empty(1)
    steps = [(state, cached.feeds(1, new, past)) for state, past, new in PLAN]
    found = twice(visits, cached, steps, empty)
    compare(cached, (arrays(found, "results"), arrays(found, "ends")), steps, empty)


TOKENS = """
await import('/e2e/watch.js');
const session = await InferenceSession.create('/x/model.onnx', { ...options, cachePlan: true });
let state = tensors(empty);
const results = [];
const counts = [];
for (const [at, feeds] of fed.entries()) {
  if (marks.includes(at)) counts.push({ ...submits, ...created });
  const before = state;
  const made = await session.run({ ...tensors(feeds), ...before });
  state = Object.fromEntries(Object.entries(caches).map(([output, input]) => [input, made[output]]));
  for (const cache of Object.values(before)) if (cache.location === 'gpu-buffer') cache.dispose();
  results.push(Object.fromEntries(Object.entries(made).filter(([name]) => !(name in caches))
    .map(([name, { data, dims }]) => [name, [plain(data), [...dims]]])));
}
for (const cache of Object.values(state)) cache.dispose();
await session.release();
return { results, counts, said, left: gpuBytes() };
"""


@pytest.mark.parametrize("name", ["concat", "group_query", "group_query_scalar", "static scatter"])
def test_tokens__second_visit__one_submit_each_that_makes_nothing_but_at_a_doubling(name: str, visits: Visits) -> None:
    rows = name.startswith("static ")
    cached = STATIC[name.removeprefix("static ")] if rows else CACHED[name]
    ends = range(7, 60 if rows else 300)
    fed = [cached.feeds(1, 7, 0), *(cached.feeds(1, 1, past) for past in ends)]
    marks = [10, 50] if rows else [6, 240, 260, 290]
    (visits.folder / "model.onnx").write_bytes(cached.model)
    given = {"caches": cached.caches, "empty": wired(cached.empty(1)), "fed": [wired(f) for f in fed], "marks": marks}
    first = visits(HELPERS + TOKENS, **given)
    visits.without_pyodide()
    second = visits(HELPERS + TOKENS, **given)
    assert second["said"] == [] and not visits.has_python()
    assert first["results"] == second["results"]
    counts = second["counts"]
    for at in range(0, len(marks), 2):
        spent = {k: counts[at + 1][k] - counts[at][k] for k in counts[at]}
        steps = marks[at + 1] - marks[at]
        assert spent == {"all": steps, "withoutPython": steps, "buffers": 0, "groups": 0, "pipelines": 0}
    assert {k: v for k, v in second["left"].items() if k != "staging"} == {}
