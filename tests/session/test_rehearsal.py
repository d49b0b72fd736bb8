"""Planning before there is a model: it has its time, and ends when anything else begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from pyruntime.session import rehearsal
from pyruntime.session.first_use import at_work
from tools.snapshot import typical


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was planned so far; there are three pieces, and each takes one of four seconds."""
    done: list[str] = []
    monkeypatch.setattr(rehearsal, "_left", 4.0)
    monkeypatch.setattr("time.perf_counter", lambda: float(len(done)))

    def piece(name: str) -> Callable[[], object]:
        return lambda: done.append(name)

    monkeypatch.setattr(rehearsal, "PIECES", [piece(name) for name in "abc"])
    yield done


def test_rehearse__nothing_else_to_do__pieces_in_turn_until_the_time_is_up(planned: list[str]) -> None:
    assert asyncio.run(rehearsal.rehearse()) == 4
    assert planned == ["a", "b", "c", "a"]
    assert asyncio.run(rehearsal.rehearse()) == 0  # once for a Python


def test_rehearse__something_is_wanted__ends_and_goes_on_with_the_time_that_is_left(planned: list[str]) -> None:
    assert asyncio.run(rehearsal.rehearse(lambda: len(planned) < 1)) == 1
    assert asyncio.run(rehearsal.rehearse(lambda: False)) == 0
    assert asyncio.run(rehearsal.rehearse()) == 3


def test_rehearse__a_load_begins__ends_before_the_next_piece(planned: list[str]) -> None:
    async def load() -> int:
        task = asyncio.ensure_future(rehearsal.rehearse())
        while not planned:
            await asyncio.sleep(0)
        with at_work():
            pass
        return await task

    assert asyncio.run(load()) == len(planned) == 1


def test_pieces_of_the_snapshot__are_planned_without_an_error() -> None:
    pieces = list(typical.rehearsals())
    assert len(pieces) == 4
    for piece in pieces:
        piece()


def test_rehearse__python_without_the_snapshot__does_nothing() -> None:
    assert rehearsal.PIECES == []
    assert asyncio.run(rehearsal.rehearse()) == 0
