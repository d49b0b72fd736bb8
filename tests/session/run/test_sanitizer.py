"""`pyruntime.sanitize` on a device that records: every dispatch twice, compared, and no memory left allocated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from pyruntime.device.base import Raw, Read, Write
from pyruntime.device.null import NullDevice
from pyruntime.errors import Fail
from pyruntime.session import InferenceSession, SessionOptions
from tests.session import models
from tests.session.doubles import on_device


class Recorder(NullDevice):
    """Notes what each submit does; `differ` makes the first of each pair of readbacks another one."""

    def __init__(self, differ: bool = False) -> None:
        super().__init__()
        self.submits: list[tuple[int, int, int]] = []
        self.differ = differ

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        self.submits.append((len(self.recordings[recording]), len(writes), len(reads)))
        answers = await super().submit(recording, writes, reads, numbers)
        if self.differ and self.recordings[recording]:
            return [bytes([i % 2]) * len(bytes(a)) for i, a in enumerate(answers)]  # type: ignore[arg-type]
        return answers


async def run(device: NullDevice) -> InferenceSession:
    options = SessionOptions()
    options.add_session_config_entry("pyruntime.sanitize", "1")
    session = await InferenceSession.create(models.double(), options)
    await session.run_async(None, {"x": np.ones((3, 4), np.float32)})
    return session


def test_sanitize__one_dispatch__runs_in_both_memories_and_reads_both() -> None:
    device = Recorder()
    with on_device(device):
        session = asyncio.run(run(device))
        assert session.summary()["dispatches"] == 1
        assert device.submits == [(0, 2, 0), (2, 1, 2), (0, 0, 1)], "in place here, poisoned there"
        session.release()
    assert device.ledger.total == 0


def test_sanitize__other_bits__names_dispatch_node_value_and_byte() -> None:
    device = Recorder(differ=True)
    with (
        on_device(device),
        pytest.raises(Fail, match=r"dispatch 0, kernel \w+ of node .* 'y' has 0x0+ .* at byte 0, and"),
    ):
        asyncio.run(run(device))
