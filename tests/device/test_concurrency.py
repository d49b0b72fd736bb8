"""Work that is awaited together."""

from __future__ import annotations

import asyncio

import pytest

from pyruntime.device.execution.concurrency import all_of


async def _fails(turns: int, error: Exception, done: list[str]) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    done.append(str(error))
    raise error


def test_all_of__several_fail__raises_the_first_argument_s_when_all_have_ended() -> None:
    done: list[str] = []
    with pytest.raises(ValueError, match="slow"):
        asyncio.run(all_of(_fails(5, ValueError("slow"), done), _fails(1, KeyError("fast"), done)))
    assert done == ["'fast'", "slow"]
