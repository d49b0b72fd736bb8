"""web/waiting.js: what waiting costs, with a GPU whose answers the test decides."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness.python import BrowserPython
from e2e.harness.script import Script

# A device that says it is done `ms` after the submit, but only when it is asked; an answer takes `cost` milliseconds.
DEVICE = """
const { attend } = await import('/web/waiting.js');
const busy = (ms) => { const until = performance.now() + ms; while (performance.now() < until); };
const fakeDevice = (cost) => {
  const device = { questions: 0, spent: 0, finished: () => {}, at: 0, queue: {} };
  device.queue.submit = () => { if (performance.now() >= device.at) device.finished(); };
  device.pushErrorScope = () => {};
  device.popErrorScope = async () => {
    const began = performance.now();
    device.first ??= began - device.began;
    busy(cost);
    await new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => { port1.close(); resolve(); };
      port2.postMessage(0);
    });
    device.questions += 1;
    device.spent += performance.now() - began;
    return null;
  };
  device.run = async (ms, waiting) => {
    const began = performance.now();
    Object.assign(device, { questions: 0, spent: 0, began, at: began + ms, first: undefined });
    const finished = new Promise((resolve) => { device.finished = () => resolve('there'); });
    const value = await attend(device, finished, waiting);
    const { questions, spent, first } = device;
    return { value, questions, spent, first, late: performance.now() - began - ms, ms: performance.now() - began };
  };
  return device;
};
"""


@pytest.mark.parametrize("cost", [0.05, 0.3])
def test_attend__run_of_a_second__asks_for_a_twentieth_of_it(script: Script, cost: float) -> None:
    found = script(
        DEVICE
        + """
        const device = fakeDevice(cost);
        await device.run(1);
        return device.run(1000);
        """,
        cost=cost,
    )
    assert found["value"] == "there"
    # The first 25 milliseconds are asked through. A question's own time counts: a busy machine adds others' to it.
    assert found["questions"] * cost <= 0.05 * found["ms"] + 27, found
    assert found["questions"] >= 40, "nobody waits long for an answer"


def told(script: Script, lengths: list[int], before: str, waiting: str) -> list[dict[str, Any]]:
    """What runs of `lengths` milliseconds tell, one behind another; `waiting`: what `attend` is told of `run`."""
    found: list[dict[str, Any]] = script(
        DEVICE
        + f"""
        const device = fakeDevice(0.1);
        {before}
        const runs = [];
        for (const [run, ms] of lengths.entries()) runs.push(await device.run(ms, {waiting}));
        return runs;
        """,
        lengths=lengths,
    )
    return found


def six_runs(script: Script, before: str, waiting: str) -> list[dict[str, Any]]:
    """What six runs of no time tell."""
    return told(script, [0] * 6, before, waiting)


def test_attend__runs_that_end_with_the_first_submit__begin_with_one_from_then_on(script: Script) -> None:
    for _ in range(20):
        found = six_runs(script, "const recording = {};", "{ recording }")
        first = all(run["questions"] > 2 and run["ms"] >= 8 for run in found[:3])
        if first and all(run["questions"] <= 2 for run in found[3:]):
            return
    pytest.fail(f"twenty times, of which a busy machine may have disturbed some: {found}")


def test_attend__runs_that_take_as_long_as_the_first_submit__decide_nothing_for_shorter_ones(script: Script) -> None:
    for _ in range(20):
        longer = "const longer = {}; for (let run = 0; run < 6; run += 1) await device.run(9, { recording: longer });"
        found = six_runs(script, longer + " const recording = {};", "{ recording }")
        first = all(run["questions"] > 2 and run["ms"] >= 8 for run in found[:3])
        if first and all(run["questions"] <= 2 for run in found[3:]):
            return
    pytest.fail(f"twenty times, of which a busy machine may have disturbed some: {found}")


@pytest.mark.parametrize(
    ("begun", "asked"),
    [([5, 5], True), ([5, 8, 5, 5], True), ([8, 8], False), ([8, 5, 8, 8], False)],
)
def test_attend__runs_that_end_a_little_sooner_for_a_submit__tell_when_two_more_do_so_than_not(
    script: Script, begun: list[int], asked: bool
) -> None:
    """`begun`: milliseconds of each fourth run, which begins with a submit; the others end with theirs, after 8."""
    lengths = [length for ms in begun for length in (0, 0, 0, ms)] + [0, 0]
    for _ in range(20):
        found = told(script, lengths, "const recording = {};", "{ recording }")
        late = [run["late"] > 1 for run in found]
        if late == [True, True, True, False] * len(begun) + [not asked] * 2:
            return
    pytest.fail(f"twenty times, of which a busy machine may have disturbed some: {found}")


def test_attend__runs_of_other_recordings__tell_nothing_of_submits(script: Script) -> None:
    for _ in range(20):
        found = six_runs(script, "", "run % 2 ? { recording: {} } : undefined")
        if all(run["questions"] > 2 and run["ms"] >= 8 for run in found):
            return
    pytest.fail(f"twenty times, of which a busy machine may have disturbed some: {found}")


def test_attend__device_that_looks_at_any_question__gets_no_submit_in_a_short_run(script: Script) -> None:
    found = script(
        DEVICE
        + """
        const device = fakeDevice(0.1);
        let submits = 0;
        const ask = device.popErrorScope;
        const look = device.queue.submit;
        device.queue.submit = () => { submits += 1; };
        device.popErrorScope = () => { look(); return ask(); };
        const runs = [];
        for (let run = 0; run < 5; run += 1) runs.push(await device.run(2));
        return { runs, submits };
        """
    )
    assert found["submits"] <= 2, found  # a busy machine may stretch a run beyond the plain questions


def test_attend__recording_known_from_before__is_asked_about_near_its_end(script: Script) -> None:
    found = script(
        DEVICE
        + """
        const device = fakeDevice(0.1);
        const recording = {};
        const first = [];
        for (let run = 0; run < 5; run += 1) first.push((await device.run(200, { recording })).first);
        const shorter = await device.run(20, { recording });
        const after = await device.run(20, { recording });
        return { first, shorter, after };
        """
    )
    assert max(found["first"][:3]) < 100, found
    # A timer may be late: then nobody asked before the end, and the next run is asked about from its beginning.
    assert max(found["first"][3:]) > 150, found
    assert found["after"]["first"] < 100, "a run that took less is not expected to take long again"


def test_attend__what_is_awaited_fails__is_what_it_throws(script: Script) -> None:
    found = script(
        DEVICE
        + """
        const gone = new Promise((_, reject) => setTimeout(() => reject(new TypeError('gone')), 5));
        return failure(() => attend(fakeDevice(0.1), gone));
        """
    )
    assert (found["name"], found["message"]) == ("TypeError", "gone")


def test_attend__exact__asks_all_the_time_and_by_submits(script: Script) -> None:
    for _ in range(20):
        found = script(
            DEVICE
            + """
            const device = fakeDevice(1);
            let submits = 0;
            const look = device.queue.submit;
            device.queue.submit = () => { submits += 1; look(); };
            return { ...await device.run(200, { exact: true }), submits };
            """
        )
        assert found["value"] == "there"
        assert found["submits"] in (found["questions"], found["questions"] + 1), found
        if found["questions"] >= 40:  # at a measured pace they would be 33
            return
    pytest.fail(f"twenty times, of which a busy machine may have disturbed some: {found}")


@pytest.mark.parametrize(
    ("asked_before_ms", "had_one", "questions"), [(5000, False, 1), (0, False, 6), (5000, True, 6)]
)
def test_adapter__there_is_none__is_told_when_no_gpu_process_can_be_starting(
    python_in_browser: BrowserPython, asked_before_ms: int, had_one: bool, questions: int
) -> None:
    found = python_in_browser(
        """
        import time
        from pyodide.ffi import jsnull
        from types import SimpleNamespace
        from pyruntime import errors
        from pyruntime.device import adapter as backend

        asked = []
        class Gpu:
            async def requestAdapter(self, options):
                asked.append(options)
                return jsnull

        now = lambda: time.perf_counter() * 1000
        marks = [SimpleNamespace(startTime=now() - before)]
        window = SimpleNamespace(
            navigator=SimpleNamespace(userAgent="Firefox/150.0", gpu=Gpu()),
            performance=SimpleNamespace(now=now, getEntriesByName=lambda name: marks),
        )
        kept = backend.js, backend._had_adapter, backend._START_MS, backend._RESTART_MS
        try:
            backend.js, backend._had_adapter, backend._START_MS, backend._RESTART_MS = window, had_one, 600, 600
            await backend.find_adapter()
        except errors.EPFail as error:
            said = str(error)
        finally:
            backend.js, backend._had_adapter, backend._START_MS, backend._RESTART_MS = kept
        {"asked": len(asked), "said": said}
        """,
        before=asked_before_ms,
        had_one=had_one,
    )
    assert "about:support" in found["said"]
    # Pauses of 50, 100 and then 200 ms; a busy machine takes longer.
    assert min(questions, 2) <= found["asked"] <= questions


def test_adapter__there_for_the_second_question__is_given(python_in_browser: BrowserPython) -> None:
    found = python_in_browser(
        """
        from pyodide.ffi import jsnull
        from types import SimpleNamespace
        from pyruntime.device import adapter as backend

        answers = [jsnull, "an adapter"]
        class Gpu:
            async def requestAdapter(self, options):
                return answers.pop(0)

        performance = SimpleNamespace(now=lambda: 10.0, getEntriesByName=lambda name: [], mark=lambda name: None)
        kept = backend.js, backend._had_adapter
        try:
            backend.js = SimpleNamespace(navigator=SimpleNamespace(userAgent="", gpu=Gpu()), performance=performance)
            backend._had_adapter = False
            adapter = await backend.find_adapter()
            noted = backend._had_adapter
        finally:
            backend.js, backend._had_adapter = kept
        [adapter, noted]
        """
    )
    assert found == ["an adapter", True]
