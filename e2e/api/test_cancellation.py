"""AbortSignals of loads and runs: what is aborted rejects with the signal's reason and leaves nothing.

What is left is counted in the worker by e2e/pages/watch.js, not by pyruntime. Seen to fail without `undo` in
web/api/client.js, and without the worker's answer to `cancel`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Request, Route

from e2e.harness.script import Script
from tests.session import models
from tools.devkit.shell import ROOT

DIGITS = (ROOT / "models" / "digits.onnx").read_bytes()

LATER = """
const image = () => new Tensor('float32', new Float32Array(256).map((_, i) => Math.sin(i)), [1, 1, 16, 16]);
const digits = async (options) => InferenceSession.create(decode(model), options);
const prepared = async (options) => (
  InferenceSession.create(decode(model), { ...options, freeDimensionOverrides: { rows: 2 } }));
const probabilities = async (session) => [...(await session.run({ image: image() })).probabilities.data];
const outcome = async (work) => {
  try { return (await work) && 'done'; } catch (error) { return error?.name ?? String(error); }
};
"""


@pytest.fixture
def watched(script: Script) -> Iterator[Script]:
    """A script whose GPU memory is counted: nothing is left after the test."""
    script.watch()
    yield script
    script.wait_for_worker()
    assert script.gpu_bytes() == {}


def test_create__aborted_while_python_starts__rejects_and_the_next_one_loads(script: Script) -> None:
    found = script(
        LATER
        + """
        const control = new AbortController();
        const { Worker } = globalThis;
        globalThis.Worker = class extends Worker {
          constructor(...given) {
            super(...given);
            setTimeout(() => control.abort()); // the worker is made, and its Python takes longer
          }
        };
        const load = digits({ signal: control.signal });
        const aborted = await outcome(load);
        globalThis.Worker = Worker;
        const before = await outcome(digits({ signal: AbortSignal.abort('a reason') }));
        const session = await digits();
        const sum = (await probabilities(session)).reduce((a, b) => a + b);
        await session.release();
        return { aborted, before, sum };
        """,
        model=DIGITS,
    )
    assert found["aborted"] == "AbortError"
    assert found["before"] == "a reason"
    assert found["sum"] == pytest.approx(1, abs=1e-4)


def test_create__aborted_in_each_phase__leaves_nothing_and_the_next_one_loads(watched: Script) -> None:
    found = watched(
        LATER
        + """
        const seen = [];
        const session = await prepared({ onProgress: ({ phase, status }) => seen.push(`${phase} ${status}`) });
        const outcomes = {};
        for (const moment of seen) {
          const control = new AbortController();
          const onProgress = ({ phase, status }) => { if (`${phase} ${status}` === moment) control.abort(); };
          outcomes[moment] = await outcome(prepared({ signal: control.signal, onProgress }));
        }
        for (const ms of [0, 1, 2, 4, 8, 16, 32]) {
          const control = new AbortController();
          setTimeout(() => control.abort(), ms); // moments of a load, on purpose
          await outcome(prepared({ signal: control.signal }).then((late) => late.release()));
        }
        const z = async () => [...(await session.run({ x: new Tensor('float32', Float32Array.from(
          { length: 320 }, (_, i) => Math.cos(i)), [2, 160]) })).z.data];
        const first = await z();
        globalThis.session = await prepared();
        return { outcomes, first, again: await z(), done: await session.release() };
        """,
        model=models.staged(),
    )
    assert {"parse begin", "adapter end", "shaders begin", "shaders end"} <= set(found["outcomes"])
    assert set(found["outcomes"].values()) == {"AbortError"}, found["outcomes"]
    assert found["first"] == found["again"]
    assert sum(watched.gpu_bytes().values()) > 100_000, "loading this model takes memory"
    watched("await session.release()")


def test_create__aborted_while_it_downloads__ends_the_download(watched: Script) -> None:
    context = watched.page.context

    def never(route: Route) -> None:
        pass

    def is_it(request: Request) -> bool:
        return request.url.endswith("/never.onnx")

    context.route("**/never.onnx", never)
    try:
        with context.expect_event("request", is_it):
            watched(
                """
                globalThis.control = new AbortController();
                const load = InferenceSession.create('/never.onnx', { signal: control.signal });
                globalThis.failed = failure(() => load);
                """
            )
        with context.expect_event("requestfailed", is_it):
            found = watched("control.abort(new Error('enough')); return failed;")
    finally:
        context.unroute("**/never.onnx", never)
    assert found["message"] == "enough"


@pytest.mark.parametrize("kind", ["staged", "segmented"])
def test_run__aborted_at_many_moments__rejects_or_answers_and_the_next_one_is_right(watched: Script, kind: str) -> None:
    found = watched(
        LATER
        + """
        const x = new Tensor('float32', new Float32Array(size).map((_, i) => Math.cos(i)), dims);
        const session = await InferenceSession.create(decode(model));
        const values = (results) => Object.values(results).map(({ data }) => [...data].map(String));
        const expected = JSON.stringify(values(await session.run({ x })));
        await session.release();
        const ends = [];
        for (let ms = 0; ms < 60; ms = ms * 1.5 + 1) {
          const fresh = await InferenceSession.create(decode(model));
          const control = new AbortController();
          const run = fresh.run({ x }, { signal: control.signal });
          setTimeout(() => control.abort(), ms); // moments of a run, on purpose
          let end = await outcome(run);
          if (end === 'done') end = JSON.stringify(values(await run)) === expected ? 'right' : 'wrong';
          const after = JSON.stringify(values(await fresh.run({ x }))) === expected;
          await fresh.release();
          ends.push([end, after]);
        }
        return ends;
        """,
        model=getattr(models, kind)(),
        dims=[2, 160] if kind == "staged" else [3, 2, 2],
        size=320 if kind == "staged" else 12,
    )
    assert {end for end, _ in found} <= {"AbortError", "right"}
    assert sum(end == "AbortError" for end, _ in found) >= 2, found
    assert all(after for _, after in found)


def test_run__half_of_many_aborted__the_others_are_right(watched: Script) -> None:
    found = watched(
        LATER
        + """
        const session = await InferenceSession.create(decode(model));
        const control = new AbortController();
        const runs = [...Array(32).keys()].map((i) => {
          const x = new Tensor('float32', new Float32Array(8).fill(i), [2, 4]);
          const run = session.run({ x }, i % 2 ? { signal: control.signal } : {});
          return run.then(({ y }) => [...y.data], ({ name }) => name);
        });
        control.abort();
        const ends = await Promise.all(runs);
        const late = new AbortController();
        const { y } = await session.run({ x: new Tensor('float32', [1, 2, 3, 4], [1, 4]) }, { signal: late.signal });
        late.abort();
        await session.release();
        return { ends, y: [...y.data] };
        """,
        model=models.double(),
    )
    for i, end in enumerate(found["ends"]):
        if i % 2:
            assert end == "AbortError"
        else:
            np.testing.assert_array_equal(end, np.full(8, 2 * i))
    assert found["y"] == [2, 4, 6, 8]


def test_run__aborted_while_the_gpu_does_not_answer__holds_nothing(watched: Script) -> None:
    watched("globalThis.session = await InferenceSession.create(decode(model))", model=models.double())
    watched.worker.evaluate("""() => {
        globalThis.map = GPUBuffer.prototype.mapAsync;
        GPUBuffer.prototype.mapAsync = () => new Promise(() => {});
    }""")
    run = """
        const x = new Tensor('float32', [1, 2, 3, 4], [1, 4]);
        const { y } = await session.run({ x }, { signal: AbortSignal.timeout(ms) });
        return [...y.data];
    """
    assert watched(f"return failure(async () => {{ {run} }})", ms=300)["name"] == "TimeoutError"
    watched.worker.evaluate("() => { GPUBuffer.prototype.mapAsync = globalThis.map; }")
    assert watched(run, ms=60_000) == [2, 4, 6, 8]
    watched("await session.release()")


def test_create__aborted_when_the_answer_is_on_its_way__is_released(watched: Script) -> None:
    """The message that would end the load arrives too late; without `undo` in web/api/client.js its memory stays."""
    found = watched(
        LATER
        + """
        const { postMessage } = Worker.prototype;
        const control = new AbortController();
        let answered;
        const answer = new Promise((resolve) => { answered = resolve; });
        Worker.prototype.postMessage = function late(message, transfer) {
          if (message.method === 'create') {
            setTimeout(() => control.abort(), 0);
            this.addEventListener('message', ({ data: { id, value } }) => {
              if (id === message.id && value !== undefined) answered();
            });
          }
          if (message.method !== 'cancel') postMessage.call(this, message, transfer);
        };
        try {
          const end = await outcome(prepared({ signal: control.signal }));
          await answer;
          await adapterInfo(); // what follows from the answer is sent, and was handled before this
          return end;
        } finally {
          Worker.prototype.postMessage = postMessage;
        }
        """,
        model=models.staged(),
    )
    assert found == "AbortError"
