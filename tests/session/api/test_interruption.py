"""Loads that are cancelled and runs that are terminated: they end at the await they are in, and leave nothing.

`test_switch__without_the_interrupt__...` takes the defence away: then a load and a run wait for ever.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from pyruntime.errors import Fail, ModelLoadCanceled
from pyruntime.session import InferenceSession, RunOptions, SessionOptions
from pyruntime.session.interruption import Switch
from tests.session import models
from tests.session.doubles import FaultyDevice, on_device

FEEDS: dict[str, tuple[Callable[[], bytes], dict[str, Any]]] = {
    "one segment": (models.double, {"x": np.ones((3, 4), np.float32)}),
    "stages and computed weights": (models.staged, {"x": np.ones((2, 160), np.float32)}),
    "host step between segments": (models.segmented, {"x": np.ones((3, 2, 2), np.float32)}),
}
SECONDS = 0.2


class Waiting(FaultyDevice):
    """A device whose every answer takes a turn of the event loop."""

    async def allocate(self, *args: Any) -> list[int]:
        await asyncio.sleep(0)
        return await super().allocate(*args)

    async def compile(self, *args: Any) -> None:
        await asyncio.sleep(0)
        await super().compile(*args)

    async def submit(self, *args: Any) -> Any:
        await asyncio.sleep(0)
        return await super().submit(*args)


class Silent(FaultyDevice):
    """A device that never answers one kind of call."""

    def __init__(self, call: str) -> None:
        super().__init__()
        setattr(self, call, self._never)

    async def _never(self, *args: Any) -> Any:
        await asyncio.get_running_loop().create_future()


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def left(device: FaultyDevice) -> object:
    return device.ledger.live or device.recordings or None


def at_each_await(main: Callable[[int], Coroutine[Any, Any, bool]], most: int) -> None:
    """Interrupt `main` after 0, 1, 2 ... turns until it says that it was done before, which takes more than `most`."""
    number, done = 0, False
    while not done:
        device = Waiting()
        with on_device(device):
            done = asyncio.run(main(number))
        assert left(device) is None, number
        number += 1
    assert number > most


@pytest.mark.parametrize("case", FEEDS)
def test_cancellation__at_each_await_of_a_load__frees_everything(case: str) -> None:
    async def main(number: int) -> bool:
        chosen = SessionOptions()
        chosen.add_free_dimension_override_by_name("rows", 3)
        load = asyncio.ensure_future(InferenceSession.create(FEEDS[case][0](), chosen))
        await turns(number)
        chosen.set_load_cancellation_flag(True)
        try:
            (await load).release()
        except ModelLoadCanceled:
            return False
        return True

    at_each_await(main, 4)


@pytest.mark.parametrize("case", FEEDS)
def test_cancelled_task__at_each_await_of_load_and_run__frees_everything(case: str) -> None:
    make, feeds = FEEDS[case]

    async def use() -> None:
        session = await InferenceSession.create(make())
        try:
            await session.run_async(None, feeds)
        finally:
            session.release()

    async def main(number: int) -> bool:
        work = asyncio.ensure_future(use())
        await turns(number)
        if work.done():
            return True
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return False

    at_each_await(main, 5)


@pytest.mark.parametrize("case", FEEDS)
def test_terminate__at_each_await_of_a_run__ends_it_and_the_next_one_runs(case: str) -> None:
    make, feeds = FEEDS[case]

    async def main(number: int) -> bool:
        session = await InferenceSession.create(make())
        chosen = RunOptions()
        run = asyncio.ensure_future(session.run_async(None, feeds, chosen))
        await turns(number)
        done: bool = run.done()
        chosen.terminate = True
        if not done:
            with pytest.raises(Fail, match="terminate"):
                await run
        with pytest.raises(Fail, match="terminate"):
            await session.run_async(None, feeds, chosen)
        chosen.terminate = False
        assert await session.run_async(None, feeds, chosen)
        session.release()
        return done

    at_each_await(main, 5)


async def _end_what_waits(call: str) -> None:
    """Cancel a load, or terminate a run, that waits for a device that never answers."""
    chosen, options = RunOptions(), SessionOptions()
    options.add_free_dimension_override_by_name("rows", 3)
    if call == "submit":
        session = await InferenceSession.create(models.double(), options)
        work = session.run_async(None, FEEDS["one segment"][1], chosen)
    else:
        work = InferenceSession.create(models.double(), options)
    task = asyncio.ensure_future(work)
    await turns(20)
    assert not task.done()
    chosen.terminate = True
    options.set_load_cancellation_flag(True)
    try:
        await asyncio.wait_for(task, SECONDS)
    finally:
        if call == "submit":
            session.release()


@pytest.mark.parametrize("call", ["allocate", "compile", "submit"])
def test_device__that_never_answers__is_not_waited_for(call: str) -> None:
    device = Silent(call)
    with on_device(device), pytest.raises((Fail, ModelLoadCanceled)):
        asyncio.run(_end_what_waits(call))
    assert left(device) is None


@pytest.mark.parametrize("call", ["compile", "submit"])
def test_switch__without_the_interrupt__a_load_and_a_run_wait_for_ever(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Switch, "turn", lambda self, on: setattr(self, "_on", on))
    with on_device(Silent(call)), pytest.raises(TimeoutError):
        asyncio.run(_end_what_waits(call))


def test_terminate__of_many_runs_with_the_same_options__ends_all_of_them() -> None:
    async def main() -> None:
        session = await InferenceSession.create(models.double())
        chosen = RunOptions()
        feeds = FEEDS["one segment"][1]
        runs = [asyncio.ensure_future(session.run_async(None, feeds, chosen)) for _ in range(32)]
        other = asyncio.ensure_future(session.run_async(None, feeds))
        await turns(3)
        chosen.terminate = True
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        assert all(isinstance(o, Fail) and "terminate" in str(o) for o in outcomes)
        assert len(await other) == 1
        session.release()

    device = Waiting()
    with on_device(device):
        asyncio.run(main())
    assert left(device) is None


def test_terminate__from_another_thread__ends_the_run() -> None:
    async def main() -> None:
        session = await InferenceSession.create(models.double())
        chosen = RunOptions()
        timer = threading.Timer(0.02, lambda: setattr(chosen, "terminate", True))
        timer.start()
        with pytest.raises(Fail, match="terminate"):
            await asyncio.wait_for(session.run_async(None, FEEDS["one segment"][1], chosen), 5)
        timer.join()
        session.release()

    with on_device(Silent("submit")):
        asyncio.run(main())


def test_terminate__of_a_task_that_is_cancelled_too__stays_a_cancellation() -> None:
    async def main() -> None:
        session = await InferenceSession.create(models.double())
        chosen = RunOptions()
        task = asyncio.ensure_future(session.run_async(None, FEEDS["one segment"][1], chosen))
        await turns(10)
        chosen.terminate = True
        await turns(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        session.release()

    with on_device(Silent("submit")):
        asyncio.run(main())


def test_terminate__when_the_run_is_over__touches_nothing_else_of_its_task() -> None:
    async def main() -> None:
        session = await InferenceSession.create(models.double())
        chosen = RunOptions()
        await session.run_async(None, FEEDS["one segment"][1], chosen)
        chosen.terminate = True
        await turns(3)
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        session.release()

    with on_device(FaultyDevice()):
        asyncio.run(main())


def test_limit__of_run_seconds__ends_a_run_that_the_device_never_answers() -> None:
    device = Silent("submit")

    async def main() -> None:
        options = SessionOptions()
        options.limits.run_seconds = 0.05
        session = await InferenceSession.create(models.double(), options)
        began = time.monotonic()
        try:
            await asyncio.wait_for(session.run_async(None, FEEDS["one segment"][1]), 5)
        finally:
            assert time.monotonic() - began < 2
            session.release()

    with on_device(device), pytest.raises(Fail, match=r"more than 0.05 s, the limit `run_seconds`"):
        asyncio.run(main())
    assert left(device) is None


def test_limit__of_run_seconds__leaves_one_timer_after_many_runs() -> None:
    async def main() -> int:
        session = await InferenceSession.create(models.double())
        loop, timers = asyncio.get_running_loop(), []
        later = loop.call_later

        def counted(*args: Any, **named: Any) -> Any:
            timers.append(args)
            return later(*args, **named)

        loop.call_later = counted  # type: ignore[method-assign,assignment]
        for _ in range(100):
            await session.run_async(None, FEEDS["one segment"][1])
        session.release()
        return len(timers)

    with on_device(Waiting()):
        assert asyncio.run(main()) <= 2
