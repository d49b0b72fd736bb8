"""Coroutines without an event loop, and threads that take turns."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pyruntime.device.blocking import Turn, is_blocking, let_others, run_blocking
from pyruntime.device.execution.concurrency import all_of


async def noted(name: str, log: list[str]) -> None:
    log.append(f"{name} begins")
    await let_others()
    log.append(f"{name} ends")


def test_run_blocking__parts_of_all_of__alternate() -> None:
    log: list[str] = []
    run_blocking(all_of(noted("a", log), noted("b", log)))
    assert log == ["a begins", "b begins", "a ends", "b ends"]


def test_run_blocking__within_an_event_loop__needs_it_not() -> None:
    async def outer() -> list[str]:
        log: list[str] = []
        run_blocking(all_of(noted("a", log), noted("b", log)))
        assert not is_blocking()
        return log

    assert len(asyncio.run(outer())) == 4


def test_run_blocking__what_an_event_loop_brings__is_refused() -> None:
    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def outer() -> None:
        run_blocking(waits())

    with pytest.raises(BlockingIOError):
        asyncio.run(outer())


def test_run_blocking__a_part_that_fails__the_others_end() -> None:
    log: list[str] = []

    async def fails() -> None:
        await let_others()
        raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        run_blocking(all_of(fails(), noted("b", log)))
    assert log == ["b begins", "b ends"]


def test_turn__work_of_another_thread__waits_until_it_is_given_up() -> None:
    turn, log = Turn(), list[str]()
    with turn:
        with turn:
            thread = threading.Thread(target=turn.later, args=(lambda: log.append("later"),))
            thread.start()
            thread.join()
        assert log == []
    assert log == ["later"]


def test_turn__unused__later_is_now() -> None:
    log: list[str] = []
    Turn().later(lambda: log.append("now"))
    assert log == ["now"]
