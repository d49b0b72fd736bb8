"""Python in a page lives as long as the page. Where it ends, each waiting caller hears why."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.python import BrowserPython, BrowserPythonError
from e2e.harness.script import Script
from pyruntime.session.aot.compile_ahead import compile_model
from tests.compiler.test_saved import DIGITS
from tests.session import models

STACK = """
import asyncio, random
import js, pyodide_js
from pyodide.ffi import run_sync

top = pyodide_js._module.stackSave

async def taken(work, turns):
    before = top()
    for _ in range(turns):
        await work()
    return before - top()

async def nothing():
    pass

async def rejected():
    try:
        await js.Promise.reject(js.Error.new("on purpose"))
    except Exception:
        pass

async def fails():
    raise ValueError("on purpose")
"""

LEAST = 16 * 1000
"""Bytes that 2,000 turns take at least where only half of them keep theirs."""


RUN = """
const run = (session) => session.run({ x: new Tensor('float32', new Float32Array([-1, 0, 1, 2]), [1, 4]) })
  .then(({ y }) => [...y.data].join(), ({ message }) => message);
"""


@pytest.mark.parametrize(
    "work",
    [
        "lambda: asyncio.sleep(0)",
        "lambda: asyncio.ensure_future(nothing())",
        "lambda: asyncio.gather(nothing(), nothing())",
        "lambda: js.Promise.resolve(1)",
        "rejected",
        "lambda: asyncio.gather(fails(), fails(), return_exceptions=True)",
    ],
)
def test_event_loop__thousands_of_turns__take_nothing_of_the_stack(python_in_browser: BrowserPython, work: str) -> None:
    taken = python_in_browser(f"{STACK}\nawait taken({work}, 2000)")
    assert abs(taken) < LEAST / 10


def test_event_loop__turns_while_a_call_waits__take_nothing_of_the_stack(python_in_browser: BrowserPython) -> None:
    taken = python_in_browser(
        f"""{STACK}
waiting = asyncio.get_running_loop().create_future()

async def waits():
    return run_sync(waiting)  # a call below all others, as asyncio.run makes of a program

held = asyncio.ensure_future(waits())
found = await taken(lambda: asyncio.sleep(0), 2000)
inside = await taken(lambda: asyncio.gather(nothing(), nothing()), 1000)
found = max(abs(found), abs(inside))
waiting.set_result("there")
[found, await held]
"""
    )
    assert taken[0] < LEAST / 10 and taken[1] == "there"


def test_calls_that_wait__ended_in_any_order__keep_what_is_theirs(python_in_browser: BrowserPython) -> None:
    found = python_in_browser(
        f"""{STACK}
def deep(number, levels):
    mine = [number] * 50
    if levels:
        inner = sorted([levels, number], key=lambda n: n)  # frames of C between those of Python
        below = deep(number, levels - 1)
    else:
        below = run_sync(asyncio.sleep(random.random() / 50, number))  # ends in any order, on purpose
    assert mine == [number] * 50
    return below

async def one(number):
    await asyncio.sleep(random.random() / 50)  # begins in any order, on purpose
    if number % 7 == 3:
        with_error = asyncio.gather(fails(), return_exceptions=True)
        await with_error
    return deep(number, number % 5)

before = top()
right = 0
for _ in range(20):
    right += await asyncio.gather(*(one(n) for n in range(30))) == list(range(30))
await asyncio.sleep(0)
[right, before - top()]
"""
    )
    assert found[0] == 20 and abs(found[1]) < LEAST / 10


def test_program_that_waits_again_and_again__takes_nothing_of_the_stack(python_in_browser: BrowserPython) -> None:
    taken = python_in_browser(
        f"""{STACK}
def program():
    found = []
    for number in range(2000):
        before = top()
        assert run_sync(asyncio.sleep(0, number)) == number
        run_sync(asyncio.gather(nothing(), nothing()))
        found.append(before - top())
    return found

before = top()
found = program()
[max(map(abs, found)), abs(before - top())]
"""
    )
    assert max(taken) < LEAST / 10


def test_python__ended__is_told_to_who_waits_and_the_next_session_has_another(browser: Browser, site_url: str) -> None:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        guard.allow("fatal error|on purpose")
        script = Script(page, guard)
        script("env.workerUrl = '/e2e/ending_worker.js'; await preload();")
        script.worker.evaluate(
            """() => {
                globalThis.isWaiting = false;
                GPUBuffer.prototype.mapAsync = () => { isWaiting = true; return new Promise(() => {}); };
            }"""
        )
        script(
            RUN + "const session = await InferenceSession.create(decode(model)); globalThis.waiting = run(session);",
            model=models.double(),
        )
        script.wait_for("isWaiting")
        script.worker.evaluate("() => endPython()")
        found = script(
            RUN
            + """
            const told = await waiting;
            const session = await InferenceSession.create(decode(model));
            const after = await run(session);
            await session.release();
            return { told, after };
            """,
            model=models.double(),
        )
    assert "Python has ended, and its sessions with it: on purpose" in found["told"]
    assert found["after"] == "0,0,2,4"


CALLS = """
const x = () => new Tensor('float32', new Float32Array(4), [1, 4]);
const told = (call) => call.then((value) => value ?? 'nothing', ({ message }) => message);
"""


@pytest.mark.parametrize("worker", [True, False])
def test_python__ended__its_sessions_say_so_and_new_ones_work(browser: Browser, site_url: str, worker: bool) -> None:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        guard.allow("fatal error|on purpose")
        script = Script(page, guard)
        script(
            CALLS
            + """
            if (worker) env.workerUrl = '/e2e/ending_worker.js';
            else {
              env.worker = false;
              await import('/e2e/ending.js');
            }
            globalThis.session = await InferenceSession.create(decode(model));
            globalThis.onGpu = await InferenceSession.create(decode(model), { preferredOutputLocation: 'gpu-buffer' });
            globalThis.planned = await InferenceSession.create(new Blob([decode(digits)]), { plan: decode(plan) });
            globalThis.y = (await onGpu.run({ x: x() })).y;
            await session.run({ x: x() });
            await planned.explain();
            """,
            model=models.double(),
            digits=DIGITS.read_bytes(),
            plan=compile_model(DIGITS),
            worker=worker,
        )
        (script.worker if worker else page).evaluate("() => endPython()")
        found = script(
            CALLS
            + """
            const signal = new AbortController().signal;
            const calls = {
              run: session.run({ x: x() }), signalled: session.run({ x: x() }, { signal }), explain: session.explain(),
              summary: session.summary(), profile: session.startProfiling(), getData: y.getData(),
              fed: onGpu.run({ x: y }), planned: planned.explain(),
            };
            const ends = {};
            for (const [name, call] of Object.entries(calls)) ends[name] = await told(call);
            const released = [];
            for (const one of [session, onGpu, planned]) released.push(await told(one.release()));
            const again = await InferenceSession.create(decode(model));
            const after = await again.run({ x: x() }).then(({ y: { data } }) => [...data].join());
            await again.release();
            return { ends, released, after };
            """,
            model=models.double(),
        )
    assert [
        name for name, end in found["ends"].items() if "Python has ended, and its sessions with it" not in end
    ] == []
    assert found["released"] == ["nothing"] * 3
    assert found["after"] == "0,0,0,0"


@pytest.mark.parametrize("warm", [0, 3], ids=["by Python", "replayed"])
def test_run__the_gpu_never_answers__ends_at_the_limit(browser: Browser, site_url: str, warm: int) -> None:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        script = Script(page, guard)
        script("await preload()")
        script(
            RUN
            + """
            const extra = { 'pyruntime.limits.run_seconds': '1' };
            globalThis.session = await InferenceSession.create(decode(model), { extra });
            globalThis.told = [];
            for (let n = 0; n < warm; n += 1) told.push(await run(session));
            """,
            model=models.double(),
            warm=warm,
        )
        script.worker.evaluate("() => { GPUBuffer.prototype.mapAsync = () => new Promise(() => {}); }")
        told = script(RUN + "return [...told, await run(session)];")
    assert told[:-1] == ["0,0,2,4"] * warm
    assert "more than 1 s, the limit `run_seconds`" in told[-1]


def test_fuzzer__python_ended__says_so(browser: Browser, site_url: str) -> None:
    with guarded_page(browser, site_url) as (page, guard):
        guard.allow("fatal error|on purpose|Pyodide")
        python = BrowserPython(page, guard, site_url)
        with pytest.raises(BrowserPythonError, match=r"Python has ended.*on purpose"):
            python(
                """
                import asyncio, js, pyodide_js
                js.setTimeout(pyodide_js._api.fatal_error, 0, js.RangeError.new("on purpose"))
                await asyncio.get_running_loop().create_future()
                """
            )
