"""Every call of a device fails once, or loses the device: an exception or the whole answer, and no memory leaks.

tests/mutations takes defences away to see tests here fail. Removed once by hand: the release of an executable that
could not be prepared, that errors of a device that is there are not tried again.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.errors import DeviceLost, EngineError, EPFail, Fail
from pyruntime.session import InferenceSession, RunOptions, SessionOptions
from tests.session import models
from tests.session.doubles import FaultyDevice, on_device

SOAK = int(os.environ.get("PYRUNTIME_SOAK", "1"))

CASES: dict[str, tuple[Callable[[], bytes], tuple[int, ...]]] = {
    "one segment": (models.double, (3, 4)),
    "stages and computed weights": (models.staged, (2, 160)),
    "host step between segments": (models.segmented, (3, 2, 2)),
}


async def _load_run_release(model: bytes, shape: tuple[int, ...], runs: int = 1) -> list[str]:
    """What the session warned of."""
    session = await InferenceSession.create(model)
    try:
        for _ in range(runs):
            await session.run_async(None, {"x": np.ones(shape, np.float32)})
    finally:
        session.release()
    return session._warnings


def _calls(model: bytes, shape: tuple[int, ...]) -> int:
    counting = FaultyDevice()
    with on_device(counting):
        asyncio.run(_load_run_release(model, shape))
    assert counting.ledger.live == {} and not counting.recordings
    return counting.count


@pytest.mark.parametrize("case", CASES)
def test_fault__of_each_device_call__is_an_exception_and_frees_everything(case: str) -> None:
    make, shape = CASES[case]
    model = make()
    total = _calls(model, shape)
    assert total >= 6
    for number in range(total):
        device = FaultyDevice(number)
        with on_device(device), pytest.raises(EngineError, match=f"injected at {'|'.join(_NAMES)}"):
            asyncio.run(_load_run_release(model, shape))
        assert device.ledger.live == {}, f"call {number}, {device.failed}"
        assert not device.recordings, f"call {number}, {device.failed}"


_NAMES = ("allocate", "write", "compile", "record", "submit")


@pytest.mark.parametrize("case", CASES)
def test_loss__at_each_device_call__is_repaired_once_and_frees_everything(case: str) -> None:
    make, shape = CASES[case]
    model = make()
    for number in range(_calls(model, shape)):
        devices = FaultyDevice(number, lose=True), FaultyDevice()
        with on_device(*devices) as opened, pytest.warns(RuntimeWarning, match="device was lost"):
            told = asyncio.run(_load_run_release(model, shape))
        assert len(opened) == 2 and len(told) == 1
        assert "prepared again" in told[0]
        assert all(d.ledger.live == {} and not d.recordings for d in devices)
        assert devices[0].closed and not devices[1].closed


def test_loss__twice_in_one_run__is_an_error_that_says_so() -> None:
    devices = FaultyDevice(), FaultyDevice(2, lose=True), FaultyDevice()

    async def lose_before_run() -> None:
        session = await InferenceSession.create(models.double())
        devices[0].lost = "background tab"
        with pytest.raises(DeviceLost, match="the new one too"):
            await session.run_async(None, {"x": np.ones((3, 4), np.float32)})
        await session.run_async(None, {"x": np.ones((3, 4), np.float32)})  # the next run repairs that as well
        session.release()

    with on_device(*devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(lose_before_run())
    assert all(d.ledger.live == {} for d in devices)


def test_loss__fifty_times_in_a_row__every_run_answers() -> None:
    devices = [FaultyDevice() for _ in range(50 * SOAK + 1)]

    async def main() -> None:
        session = await InferenceSession.create(models.double())
        for device in devices[:-1]:
            device.lost = "destroyed"
            (y,) = await session.run_async(None, {"x": np.ones((3, 4), np.float32)})
            assert y.shape == (3, 4)
        assert len(session._warnings) == 50 * SOAK
        session.release()

    with on_device(*devices) as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(main())
    assert len(opened) == 50 * SOAK + 1
    assert all(d.ledger.live == {} for d in devices)


def test_loss__of_overlapping_runs_and_two_sessions__opens_one_device() -> None:
    devices = FaultyDevice(), FaultyDevice()

    async def main() -> None:
        sessions = [await InferenceSession.create(m()) for m in (models.double, models.double)]
        devices[0].lost = "destroyed"
        x = np.ones((3, 4), np.float32)
        await asyncio.gather(*(s.run_async(None, {"x": x}) for s in sessions for _ in range(4)))
        for session in sessions:
            session.release()

    with on_device(*devices) as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(main())
    assert len(opened) == 2
    assert all(d.ledger.live == {} for d in devices)


def test_loss__adapter_gone__says_so_and_the_cpu_answers_on_request() -> None:
    x = {"x": np.array([[1, -2, 3, 4]], np.float32)}

    async def main() -> None:
        session = await InferenceSession.create(models.double())
        first.lost = "driver reset"
        with pytest.raises(DeviceLost, match=r"driver reset.*no adapter.*set_providers"):
            await session.run_async(None, x)
        session.set_providers(["CPUExecutionProvider"])
        np.testing.assert_array_equal((await session.run_async(None, x))[0], [[2, 0, 6, 8]])
        assert session.get_providers() == ["CPUExecutionProvider"]

    first = FaultyDevice()
    with on_device(first, EPFail("no adapter")):
        asyncio.run(main())
    assert first.ledger.live == {}


def test_loss__adapter_gone_and_the_cpu_allowed__answers() -> None:
    async def main() -> None:
        options = SessionOptions()
        options.add_session_config_entry("pyruntime.cpu_after_device_loss", "1")
        session = await InferenceSession.create(models.double(), options)
        first.lost = "driver reset"
        (y,) = await session.run_async(None, {"x": np.array([[1, -2, 3, 4]], np.float32)})
        np.testing.assert_array_equal(y, [[2, 0, 6, 8]])
        assert "CPUExecutionProvider from now on" in session._warnings[-1]

    first = FaultyDevice()
    with on_device(first, EPFail("no adapter")):
        asyncio.run(main())


def test_error_of_the_model__on_a_device_that_is_there__is_not_tried_again() -> None:
    async def main() -> None:
        session = await InferenceSession.create(models.double())
        with pytest.raises(EngineError, match="injected"):
            await session.run_async(None, {"x": np.ones((3, 4), np.float32)})
        assert device.count == device.fail_at + 1  # type: ignore[operator]
        session.release()

    device = FaultyDevice(5)
    with on_device(device):
        asyncio.run(main())


class LateDevice(NullDevice):
    """Shaders fail at once, memory comes a few turns later."""

    async def compile(self, sources: Sequence[str]) -> None:
        raise EngineError("no shader")

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().allocate(sizes, label)


def test_fault__while_another_call_is_under_way__what_that_allocates_is_freed_too() -> None:
    async def main() -> None:
        with pytest.raises(EngineError, match="no shader"):
            await _load_run_release(models.staged(), (2, 160))
        for _ in range(20):
            await asyncio.sleep(0)

    device = LateDevice()
    with on_device(device):
        asyncio.run(main())
    assert device.ledger.peak > 0
    assert device.ledger.live == {}


class SlowDevice(NullDevice):
    """A device whose answers take a while; `begun` is set with the first submit."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def submit(self, *args: object) -> list[object]:  # type: ignore[override]
        self.begun.set()
        await asyncio.sleep(0.01)  # a slow device, on purpose
        return await super().submit(*args)  # type: ignore[arg-type, return-value]


def test_release__while_runs_are_in_progress__answers_or_one_error_and_frees_everything() -> None:
    async def main(device: SlowDevice, make: Callable[[], bytes], shape: tuple[int, ...]) -> Sequence[object]:
        session = await InferenceSession.create(make())
        device.begun.clear()
        runs = [asyncio.ensure_future(session.run_async(None, {"x": np.ones(shape, np.float32)})) for _ in range(4)]
        await device.begun.wait()
        session.release()
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        with pytest.raises(Fail, match="released"):
            await session.run_async(None, {"x": np.ones(shape, np.float32)})
        return outcomes

    for make, shape in CASES.values():
        device = SlowDevice()
        with on_device(device):
            outcomes = asyncio.run(main(device, make, shape))
        assert device.ledger.live == {} and not device.recordings
        for outcome in outcomes:
            assert isinstance(outcome, list) or (isinstance(outcome, Fail) and "released" in str(outcome)), outcome


def test_terminate__while_a_run_is_in_progress__ends_it_and_the_next_one_runs() -> None:
    async def main() -> None:
        session = await InferenceSession.create(models.segmented())
        options = RunOptions()
        x = {"x": np.ones((3, 2, 2), np.float32)}
        device.begun.clear()
        run = asyncio.ensure_future(session.run_async(None, x, options))
        await device.begun.wait()
        options.terminate = True
        with pytest.raises(Fail, match="terminate"):
            await run
        assert len(await session.run_async(None, x)) == 1
        session.release()

    device = SlowDevice()
    with on_device(device):
        asyncio.run(main())
    assert device.ledger.live == {}


def test_plans_of_runs_in_progress__are_not_freed_for_other_shapes() -> None:
    async def main() -> None:
        options = SessionOptions()
        options.limits.cached_plans = 1
        session = await InferenceSession.create(models.segmented(), options)
        feeds = [{"x": np.ones((rows, 2, 2), np.float32)} for rows in range(1, 7)]
        for (y,), feed in zip(await asyncio.gather(*(session.run_async(None, f) for f in feeds)), feeds, strict=True):
            assert y.shape == feed["x"].shape
        assert session._program is not None
        assert len(session._program.roots) == 1  # those in use stayed until their runs had left
        session.release()

    device = SlowDevice()
    with on_device(device):
        asyncio.run(main())
    assert device.ledger.live == {} and not device.recordings
