"""Never crash, never lie, through web/pyruntime.js: runs that web/gpu/player.js replays without Python, from a page.

Devices, GPU memory and submits are watched in the worker by e2e/pages/watch.js, heaps by the browser's debugger:
nothing here is counted by pyruntime itself.
tests/mutations takes defences away to see tests here fail.
"""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import Browser

from e2e.harness.heaps import Heaps
from e2e.harness.script import Script
from tests.session import models

SOAK = int(os.environ.get("PYRUNTIME_SOAK", "1"))

TOOLS = """
const load = (options) => InferenceSession.create(decode(model), options);
const feeds = (i = 0, rows = 2) => (
  { x: new Tensor('float32', Float32Array.from({ length: rows * 4 }, (_, at) => at - 3 + i), [rows, 4]) });
const expected = (i = 0, rows = 2) => Array.from({ length: rows * 4 }, (_, at) => Math.max(2 * (at - 3 + i), 0));
const run = async (session, i = 0, rows = 2) => {
  const { y } = await session.run(feeds(i, rows), { signal: AbortSignal.timeout(20_000) });
  return String([...y.data]) === String(expected(i, rows)) ? 'right' : `wrong: ${y.data}`;
};
const end = (error) => `${error.name}: ${error.message}`;
const count = (ends) => Object.fromEntries([...new Set(ends)].map((e) => [e, ends.filter((x) => x === e).length]));
"""


@pytest.fixture
def script(watched_script: Script) -> Script:
    return watched_script


def replayed(script: Script) -> int:
    """Submits so far that Python had no part in."""
    counted: int = script.worker.evaluate("() => submits.withoutPython")
    return counted


def session_that_replays(script: Script) -> None:
    """A page's `session` over y = relu(x + x), whose runs Python has no part in any more."""
    ends = script(TOOLS + "globalThis.session = await load(); return [await run(session), await run(session)]",
                  model=models.double())  # fmt: skip
    before = replayed(script)
    assert [*ends, script(TOOLS + "return run(session)")] == ["right"] * 3
    assert replayed(script) == before + 1


def test_loss__of_a_replayed_session_fifty_times__every_run_answers_right(script: Script) -> None:
    session_that_replays(script)
    devices = script.worker.evaluate("() => gpuDevices.length")
    for _ in range(50 * SOAK):
        script.lose_device()
        assert script(TOOLS + "return [await run(session, 1), await run(session, 2)]") == ["right", "right"]
    assert script.worker.evaluate("() => gpuDevices.length") == devices + 50 * SOAK
    warnings = script("return (await session.summary()).warnings")
    assert len(warnings) == 50 * SOAK
    assert "prepared again" in warnings[-1]
    script("await session.release()")


def test_loss__while_replays_are_in_progress__every_run_answers_right(script: Script) -> None:
    session_that_replays(script)
    before = replayed(script)
    for _ in range(4 * SOAK):
        script(TOOLS + "globalThis.runs = Promise.all([...Array(16).keys()].map((i) => run(session, i).catch(end)))")
        script.lose_device()
        ends = script(
            TOOLS + "const ends = await runs; return count([...ends, await run(session), await run(session)])"
        )
        assert ends == {"right": 18}
    assert replayed(script) > before
    script("await session.release()")


def test_fault__of_every_call_during_a_replay__is_an_exception_or_the_right_answer(script: Script) -> None:
    session_that_replays(script)
    names = script.worker.evaluate("() => faultNames")
    ends, once = {}, {}
    for name in names:
        script.worker.evaluate("name => injectFault(name)", name)
        ends[name] = script(TOOLS + "return [await run(session, 5).catch(end), await run(session, 5).catch(end)]")
        script.worker.evaluate("() => restoreFaults()")
        assert script(TOOLS + "return [await run(session, 6), await run(session, 7)]") == ["right", "right"], name
        script.worker.evaluate("name => injectFault(name, 1)", name)  # the replay fails, Python's attempt succeeds
        once[name] = script(TOOLS + "return run(session, 8).catch(end)")
        script.worker.evaluate("() => restoreFaults()")
        assert script(TOOLS + "return [await run(session, 6), await run(session, 7)]") == ["right", "right"], name
    assert ends["no pass"][0] == "right", "its passes were encoded during the run before"
    failed = {name for name, (_, found) in ends.items() if found != "right"}
    assert {"map rejects", "mapped range throws", "no encoder", "no pass", "no copy", "not valid", "out of memory",
            "queue takes no bytes", "queue takes no commands", "scope rejects"} <= failed  # fmt: skip
    wrong = [found for both in ends.values() for found in both if found != "right"]
    assert all("EngineError" in found and "injected" in found for found in wrong), ends
    assert set(once.values()) == {"right"}, once
    script("await session.release()")
    staging = script.worker.evaluate("() => gpuBytes().staging ?? 0")
    assert staging <= 1 << 10, "staging buffers of runs that failed are destroyed"


def test_overlapping_runs__of_a_session__equal_the_serial_ones(script: Script) -> None:
    session_that_replays(script)
    before = replayed(script)
    ends = script(
        TOOLS
        + """
        const runs = (number) => [...Array(number).keys()].map((i) => run(session, i, 1 + i % 3).catch(end));
        const first = await Promise.all(runs(32));
        return count([...first, ...await Promise.all(runs(32))]);
        """
    )
    assert ends == {"right": 64}
    assert replayed(script) >= before + 32
    script("await session.release()")


def test_overlapping_runs__of_eight_sessions_while_others_load_and_go__answer_or_say_released(script: Script) -> None:
    ends = script(
        TOOLS
        + """
        const sessions = await Promise.all([...Array(8)].map(() => load()));
        const serial = [];
        for (const session of sessions) serial.push(await run(session));
        const work = sessions.flatMap((session) => [...Array(8).keys()].map((i) => run(session, i)));
        const loads = [...Array(4)].map(async () => {
          const late = await load();
          const answer = await run(late, 3);
          await late.release();
          return answer;
        });
        const done = await Promise.all([...work, ...loads].map((one) => one.catch(end)));
        const late = sessions.flatMap((session) => [...Array(4).keys()].map((i) => run(session, i).catch(end)));
        const gone = sessions.map((session) => session.release());
        const after = sessions.map((session) => run(session).catch(end));
        await Promise.all(gone);
        return { done: count([...serial, ...done]), late: count(await Promise.all(late)),
                 after: count(await Promise.all(after)) };
        """,
        model=models.double(),
    )
    assert ends["done"] == {"right": 8 + 64 + 4}
    assert all(name == "right" or "released" in name for name in ends["late"]), ends["late"]
    assert ends["after"] == {"Error: the session is released": 8}


def test_many_runs__heaps_of_page_and_worker_and_the_gpu__stay_flat(script: Script, browser: Browser) -> None:
    """1,050 replays and 210 runs through Python: within 2 % of what was held after as many runs before them.

    The least of three measurements, 350 replays apart, against the least of the next three: what the engine keeps of
    code comes and goes.
    """
    session_that_replays(script)
    source = (
        TOOLS
        + """
        const ends = [];
        const runOnce = async (i, options) => {
          const { y } = await session.run(feeds(i), options);
          ends.push(String([...y.data]) === String(expected(i)) ? 'right' : 'wrong');
        };
        // Not a signal with a timer, as `run` has: the browser would keep each until its time is over.
        for (let i = 0; i < runs; i += 1) await runOnce(i % 7, { signal: new AbortController().signal });
        for (let i = 0; i < runs / 5; i += 1) await runOnce(i, { tag: 'Python takes part' });
        return count(ends);
    """
    )
    heaps = Heaps(script.page)
    runs = 350 * SOAK
    script(source, runs=300)
    script(source, runs=3 * runs)
    on_gpu = script.gpu_bytes()
    measured = []
    for _ in range(6):
        assert script(source, runs=runs) == {"right": runs + runs // 5}
        assert script.gpu_bytes() == on_gpu
        measured.append(heaps.measure())
    heaps.detach()
    script("await session.release()")
    before, after = ({name: min(m[name] for m in part) for name in part[0]} for part in (measured[:3], measured[3:]))
    larger = {name: [m[name] for m in measured] for name in after if after[name] > 1.02 * before[name] + 4096}
    assert not larger, larger
