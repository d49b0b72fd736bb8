"""Runs that are aborted: they reject at once, wherever they run, and what they still make is freed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from e2e.harness.browser import Guard, guarded_page
from e2e.harness.script import Script
from pyruntime.session.aot.compile_ahead import compile_model
from tests.compiler.test_saved import DIGITS
from tests.session import models

RUN = """
const { client } = await import('/src/web/api/client.js');
const held = () => client().call('keptTensors', {});
const run = (options = {}) => session.run({ x: new Tensor('float32', new Float32Array(8), [2, 4]) }, options);
"""

HOLD_ANSWER = """() => {
    const { postMessage } = self;
    globalThis.answered = new Promise((resolve) => {
        self.postMessage = (message, options) => {
            if (!message.value?.y) return postMessage.call(self, message, options);
            self.postMessage = postMessage;
            globalThis.release = () => postMessage.call(self, message, options);
            resolve();
        };
    });
}"""
"""Keeps the next answer to a run in the worker until `release()`."""

PLAN = """
const { Program } = await import('/src/web/plans/program.js');
const image = () => new Tensor('float32', new Float32Array(256).map((_, i) => Math.sin(i)), [1, 1, 16, 16]);
const outcome = (run) => run.then(({ probabilities }) => [...probabilities.data].length, ({ name }) => name);
const left = () => Object.fromEntries(Object.entries(gpuBytes()).filter(([label]) => label !== 'staging'));
await import('/e2e/watch.js');
const { mapAsync } = GPUBuffer.prototype;
let answer;
const opened = new Promise((resolve) => { answer = resolve; });
const asked = new Promise((resolve) => {
  GPUBuffer.prototype.mapAsync = function later(mode, ...range) {
    if (mode !== GPUMapMode.READ) return mapAsync.call(this, mode, ...range);
    resolve();
    return opened.then(() => mapAsync.call(this, mode, ...range));
  };
});
const session = await InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) });
const control = new AbortController();
"""
"""A session over a plan whose runs get no results from the GPU until `answer()`; `asked`: one waits for these."""


@pytest.fixture
def fresh(page: Page, guard: Guard, site_url: str) -> Script:
    """A page of its own: nothing has asked for a device there."""
    page.goto(f"{site_url}e2e/blank.html")
    return Script(page, guard)


@pytest.mark.parametrize("options", [{}, {"tag": "t"}], ids=["replayed", "by Python"])
def test_run__aborted_while_its_answer_is_on_the_way__leaves_no_tensor(script: Script, options: dict[str, str]) -> None:
    script(
        "const place = { preferredOutputLocation: 'gpu-buffer' };"
        "globalThis.session = await InferenceSession.create(decode(model), place);"
        f"{RUN} for (let k = 0; k < 3; k++) (await run(options)).y.dispose();",
        model=models.double(),
        options=options,
    )
    script.worker.evaluate(HOLD_ANSWER)
    script(
        RUN
        + """
        globalThis.before = await held();
        globalThis.control = new AbortController();
        globalThis.end = run({ ...options, signal: control.signal }).then(() => 'done', ({ name }) => name);
        """,
        options=options,
    )
    script.worker.evaluate("() => answered")
    end = script("control.abort(); return end;")
    script.worker.evaluate("() => release()")
    # The second question follows the answer, and so follows what frees its tensor.
    left = script(f"{RUN} await held(); const left = await held() - before; await session.release(); return left;")
    assert end == "AbortError"
    assert left == 0


def test_run__of_a_plan_that_hangs__is_aborted_at_once_and_the_session_released(fresh: Script) -> None:
    found = fresh(
        PLAN
        + """
        const hanging = [session.run({ image: image() }, { signal: control.signal }), session.run({ image: image() })];
        await asked;
        control.abort();
        const ends = [await outcome(hanging[0])];
        await session.release();
        const held = Object.keys(left()).length > 0;
        answer();
        ends.push(await outcome(hanging[1]));
        await null;
        return { ends, held, left: left() };
        """,
        model=DIGITS.read_bytes(),
        plan=compile_model(DIGITS),
    )
    assert found["ends"] == ["AbortError", 10], "the run that was not aborted has its result"
    assert found["held"], "memory stays while a run uses it"
    assert found["left"] == {}


def test_release__only_aborted_runs_hang__frees_everything(fresh: Script) -> None:
    found = fresh(
        PLAN
        + """
        const hanging = session.run({ image: image() }, { signal: control.signal });
        await asked;
        control.abort();
        const end = await outcome(hanging);
        await session.release();
        return { end, left: left() };
        """,
        model=DIGITS.read_bytes(),
        plan=compile_model(DIGITS),
    )
    assert found == {"end": "AbortError", "left": {}}


def test_create__aborted_while_a_plan_is_prepared__rejects_at_once_and_leaves_nothing(fresh: Script) -> None:
    found = fresh(
        PLAN
        + """
        await session.release();
        const { prepare } = Program.prototype;
        let done;
        const prepared = new Promise((resolve) => {
          Program.prototype.prepare = async function later(...given) {
            control.abort();
            await new Promise((go) => { done = go; });
            try { return await prepare.apply(this, given); } finally { resolve(); }
          };
        });
        const source = new Blob([decode(model)]);
        const create = InferenceSession.create(source, { plan: decode(plan), signal: control.signal });
        const end = await create.then(() => 'done', ({ name }) => name);
        done();
        await prepared;
        await new Promise((resolve) => { setTimeout(resolve, 0); });
        return { end, left: left() };
        """,
        model=DIGITS.read_bytes(),
        plan=compile_model(DIGITS),
    )
    assert found == {"end": "AbortError", "left": {}}


def test_run__of_a_plan_aborted_before_its_outputs_are_there__leaves_none_on_the_gpu(
    browser: Browser, site_url: str
) -> None:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(f"{site_url}e2e/blank.html")
        script = Script(page, guard)
        found = script(
            """
            await import('/e2e/watch.js');
            const options = { cachePlan: true, preferredOutputLocation: 'gpu-buffer' };
            const x = new Tensor('float32', new Float32Array(8), [2, 4]);
            const first = await InferenceSession.create(decode(model), options);
            (await first.run({ x })).y.dispose();
            await first.release();
            const session = await InferenceSession.create(decode(model), options);
            (await session.run({ x })).y.dispose();
            const { popErrorScope } = GPUDevice.prototype;
            let answer;
            const opened = new Promise((resolve) => { answer = resolve; });
            const asked = new Promise((resolve) => {
              GPUDevice.prototype.popErrorScope = function later() {
                resolve();
                const scope = popErrorScope.call(this);
                return opened.then(() => scope);
              };
            });
            const { sessions } = await import('/src/web/plans/locations.js');
            const plans = sessions.size;
            const control = new AbortController();
            const run = session.run({ x }, { signal: control.signal });
            await asked;
            control.abort();
            const end = await run.then(() => 'done', ({ name }) => name);
            answer();
            GPUDevice.prototype.popErrorScope = popErrorScope;
            await session.run({ x }).then(({ y }) => y.dispose());
            await session.release();
            return { plans, end, left: gpuBytes().tensor ?? 0 };
            """,
            model=models.double(),
        )
    assert found == {"plans": 1, "end": "AbortError", "left": 0}
