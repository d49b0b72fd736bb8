"""Decoding through the JavaScript API, caches on the GPU: right over branches, without Python once under way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from e2e.execution.test_growing_caches import run_on_host, steps_of
from e2e.harness.script import Script
from tests.cache_models import CACHED
from tests.sampling import ALL

pytestmark = pytest.mark.unguarded

HELPERS = """
const arrays = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array };
const tensor = ([type, data, dims]) => (
  new Tensor(type, arrays[type].from(type === 'int64' ? data.map(BigInt) : data), dims));
const tensors = (feeds) => Object.fromEntries(Object.entries(feeds).map(([name, value]) => [name, tensor(value)]));
const plain = (data) => [...data].map(Number);
const onGpu = Object.fromEntries(Object.keys(caches).map((name) => [name, 'gpu-buffer']));
const options = { preferredOutputLocation: onGpu };
"""

BRANCHING = """
env.worker = worker;
const session = await InferenceSession.create(decode(model), options);
const states = [tensors(empty)];
const results = [];
for (const [state, feeds] of steps) {
  const made = await session.run({ ...tensors(feeds), ...states[state] });
  states.push(Object.fromEntries(Object.entries(caches).map(([output, input]) => [input, made[output]])));
  results.push(Object.fromEntries(Object.entries(made).filter(([name]) => !(name in caches))
    .map(([name, { data, dims }]) => [name, [plain(data), [...dims]]])));
}
const ends = [];
for (const state of states.slice(1)) {
  const end = {};
  for (const [name, cache] of Object.entries(state)) {
    const { dims } = cache;
    if (!worker) {
      const device = await env.webgpu.device;
      if (!(cache.gpuBuffer instanceof GPUBuffer)) throw new Error('no buffer');
    }
    end[name] = [plain(await cache.getData(true)), [...dims]];
  }
  ends.push(end);
}
await session.release();
return { results, ends };
"""


def wired(feeds: dict[str, Any]) -> dict[str, Any]:
    return {n: [v.dtype.name, v.ravel().tolist(), list(v.shape)] for n, v in feeds.items()}


BRANCHED = ["concat", "group_query", "merged", "rows_inside", "int64"]
PLACES = ["worker", "page"]
"""Where Python is: models alternate between them, with PYRUNTIME_SOAK in both."""
CASES = [(name, place) for i, name in enumerate(BRANCHED) for j, place in enumerate(PLACES) if ALL or (i + j) % 2 == 0]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_caches__grown_and_branched__are_what_onnxruntime_has(name: str, place: str, script: Script) -> None:
    cached = CACHED[name]
    empty, steps = cached.empty(1), steps_of(cached, 1)
    wanted, wanted_ends = run_on_host(cached, steps, empty)
    script.page.reload()  # the first session decides where Python runs
    found = script(
        f"{HELPERS}{BRANCHING}",
        model=cached.model,
        caches=cached.caches,
        empty=wired(empty),
        steps=[[state, wired(feeds)] for state, feeds in steps],
        worker=place == "worker",
    )
    pairs = zip([*found["results"], *found["ends"]], [*wanted, *wanted_ends], strict=True)
    for number, (got, expected) in enumerate(pairs):
        for output, value in expected.items():
            data, dims = got[output]
            assert dims == list(value.shape), (number, output)
            array = np.array(data).reshape(value.shape)
            np.testing.assert_allclose(array, value, cached.atol, cached.atol, err_msg=f"{number} {output}")


DECODING = """
env.runAhead = false; // what they take is counted in test_run_ahead.py
globalThis.session ??= await InferenceSession.create(decode(model), options);
globalThis.state ??= tensors(empty);
const results = [];
for (const feeds of fed) {
  const before = state;
  const made = await session.run({ ...tensors(feeds), ...before });
  state = Object.fromEntries(Object.entries(caches).map(([output, input]) => [input, made[output]]));
  for (const cache of Object.values(before)) if (cache.location === 'gpu-buffer') cache.dispose();
  results.push(Object.fromEntries(Object.entries(made).filter(([name]) => !(name in caches))
    .map(([name, { data, dims }]) => [name, [plain(data), [...dims]]])));
}
if (last) {
  for (const cache of Object.values(state)) cache.dispose();
  await session.release();
  delete globalThis.session;
  delete globalThis.state;
}
return results;
"""

TOKENS = 300
COUNTS = "() => ({ ...submits, ...created, staging: stagingMade })"


def spent_between(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Counts of what was made, but for one buffer that results are read with.

    It goes after five seconds without any, as there may be between two parts on a busy machine.
    """
    spent = {k: after[k] - before[k] for k in after}
    staging = spent.pop("staging")
    assert staging <= 1
    return spent | {"buffers": spent["buffers"] - staging}


@pytest.mark.parametrize("name", ["concat", "group_query", "group_query_scalar"])
def test_decoding__after_a_few_tokens__makes_nothing_and_asks_python_nothing(name: str, script: Script) -> None:
    """One submit a token, no buffer, bind group or pipeline, but for the tokens around a doubling of the caches."""
    cached = CACHED[name]
    fed, lengths = [cached.feeds(1, 7, 0)], [7]
    for _ in range(TOKENS):
        fed.append(cached.feeds(1, 1, lengths[-1]))
        lengths.append(lengths[-1] + 1)
    empty = cached.empty(1)
    wanted, _ = run_on_host(cached, list(enumerate(fed)), empty)
    script.page.reload()
    script.watch()
    given = {"model": cached.model, "caches": cached.caches, "empty": wired(empty)}
    parts = [(0, 6), (6, 240), (240, 260), (260, TOKENS + 1)]
    found, counts = [], [script.worker.evaluate(COUNTS)]
    for start, end in parts:
        last = end > TOKENS
        found += script(HELPERS + DECODING, fed=[wired(f) for f in fed[start:end]], last=last, **given)
        counts.append(script.worker.evaluate(COUNTS))
    for number, (got, expected) in enumerate(zip(found, wanted, strict=True)):
        for output, value in expected.items():
            array = np.array(got[output][0]).reshape(value.shape)
            np.testing.assert_allclose(array, value, cached.atol, cached.atol, err_msg=f"{number} {output}")
    for part in (1, 3):
        start, end = parts[part]
        spent = spent_between(counts[part], counts[part + 1])
        assert spent == {"all": end - start, "withoutPython": end - start, "buffers": 0, "groups": 0, "pipelines": 0}
    assert (
        script("const { client } = await import('/src/web/api/client.js'); return client().call('keptTensors', {})")
        == 0
    )
