"""Plans of a session share the memory of their activations: how much it is, who waits, and what stays recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.errors import OutOfMemory
from pyruntime.session import SessionOptions
from pyruntime.session.run.program import Program
from tests.session.doubles import on_device
from tests.session.models import double, segmented, staged
from tests.session.run.test_overlaps import SlowDevice, measured, opened, played, until


def rows(count: int) -> dict[str, Any]:
    return {"x": np.ones((count, 4), np.float32)}


def live(device: NullDevice) -> int:
    return sum(device.ledger.live.get(b, 0) for b in arenas_of(device))


def arenas_of(device: NullDevice) -> set[int]:
    """Buffers that recordings bind besides weights and parameters."""
    return {part.buffer for commands in device.recordings.values() for c in commands for part in c.storage}


async def closed(device: NullDevice, model: bytes) -> Any:
    """A session that plans every size as it comes."""
    import pyruntime

    options = SessionOptions()
    options.add_session_config_entry("pyruntime.disable", "dynamic_dimensions")
    with on_device(device):
        return await pyruntime.InferenceSession.create(model, options)


def test_plans__of_several_sizes__hold_what_the_largest_takes() -> None:
    async def scene(device: SlowDevice) -> None:
        session = await closed(device, double())
        program: Program = session._program
        for count in (40, 700, 90, 3000, 5, 3000, 700):
            await session.run_async(None, rows(count))
        largest = max(sum(stage.executable.plan.arenas) for stage in program.roots)
        assert len(program.roots) == 5 and program.cache.arenas.nbytes == largest == live(device)
        total = sum(len(stage.executable.plan.params) for stage in program.roots)
        assert device.ledger.total == program.cache.weights.nbytes + largest + total == program.cache.held
        made = len(device.calls)
        await session.run_async(None, rows(3000))
        assert all(name != "allocate" for name, _ in device.calls[made:])
        session.release()
        assert device.ledger.total == 0

    played(scene)


def test_plan__whose_memory_became_another_one__is_recorded_once_more() -> None:
    async def scene(device: SlowDevice) -> None:
        session = await closed(device, double())
        await session.run_async(None, rows(5))
        small = session._program.roots[0].executable
        told: list[int] = []
        small.on_move.append(lambda: told.append(1))
        before = arenas_of(device)
        await session.run_async(None, rows(900))
        assert told == [1] and not before & {*device.ledger.live}
        await session.run_async(None, rows(5))
        assert arenas_of(device) <= {*device.ledger.live}
        recorded = len(device.recordings)
        await session.run_async(None, rows(5))
        assert told == [1] and len(device.recordings) == recorded
        session.release()

    played(scene)


def test_memory__of_runs_under_way__stays_until_they_are_done() -> None:
    async def scene(device: SlowDevice) -> None:
        session = await closed(device, double())
        await session.run_async(None, rows(5))
        used = arenas_of(device)
        device.go.clear()
        small = await until(session.run_async(None, rows(5)))
        large = await until(session.run_async(None, rows(900)))
        assert used <= {*device.ledger.live} and device.log[-1] == "queued" and not large.done()
        device.go.set()
        await asyncio.gather(small, large)
        assert not used & {*device.ledger.live}
        session.release()

    played(scene)


def test_run__cancelled_while_a_larger_plan_waits__lets_it_have_the_memory() -> None:
    async def scene(device: SlowDevice) -> None:
        session = await closed(device, double())
        await session.run_async(None, rows(5))
        device.go.clear()
        small = await until(session.run_async(None, rows(5)))
        large = await until(session.run_async(None, rows(900)))
        small.cancel()
        await asyncio.gather(small, return_exceptions=True)
        device.go.set()
        (y,) = await large
        assert y.shape == (900, 4)
        await session.run_async(None, rows(5))
        session.release()
        assert device.ledger.total == 0

    played(scene)


def test_run__measured__has_the_memory_of_all_plans_to_itself() -> None:
    """It submits dispatch by dispatch: runs of another plan would overwrite its values."""

    async def scene(device: SlowDevice) -> None:
        session = await closed(device, double())
        for count in (900, 5):
            await session.run_async(None, rows(count))
        device.go.clear()
        device.log.clear()
        runs = [await until(measured(session, rows(900))), await until(session.run_async(None, rows(5)))]
        assert device.log == ["measuring"]
        device.go.set()
        await asyncio.gather(*runs)
        assert device.log[:3] == ["measuring", "measured", "queued"]
        session.release()

    played(scene)


@pytest.mark.parametrize("model", ["segmented", "staged"])
def test_plans__that_wait_for_the_host_in_between__have_memory_of_their_own(model: str) -> None:
    made = {"segmented": segmented, "staged": staged}[model]()
    shape = (3, 2, 2) if model == "segmented" else (3, 160)

    async def scene(device: SlowDevice) -> None:
        session = await opened(device, made)
        await session.run_async(None, {"x": np.ones(shape, np.float32)})
        program: Program = session._program
        several = [s for s in program.roots if len(s.executable.plan.steps) > 1]
        shared = {*program.cache.arenas.buffers}
        assert all(not shared & {*s.executable.memory.arenas.buffers} for s in several)
        session.release()
        assert device.ledger.total == 0

    played(scene)


class Scarce(NullDevice):
    """Refuses buffers above a size."""

    most = 1 << 40

    async def allocate(self, sizes: Any, label: str) -> list[int]:
        if any(size > self.most for size in sizes):
            raise OutOfMemory("no memory")
        return await super().allocate(sizes, label)


def test_memory__that_the_device_refuses__leaves_other_plans_as_they_are() -> None:
    device = Scarce()

    async def main() -> None:
        session = await closed(device, double())
        await session.run_async(None, rows(50))
        held, recorded = device.ledger.total, len(device.recordings)
        device.most = 4096
        with pytest.raises(OutOfMemory):
            await session.run_async(None, rows(5000))
        assert (device.ledger.total, len(device.recordings)) == (held, recorded)
        await session.run_async(None, rows(50))
        session.release()
        assert device.ledger.total == 0

    asyncio.run(main())
