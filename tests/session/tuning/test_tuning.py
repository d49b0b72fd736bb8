"""tune(): which problems are measured, which kernels win, and that later sessions run those."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime.device.base import Raw, Read, Write
from pyruntime.device.null import NullDevice
from pyruntime.kernels import Limits, Target
from pyruntime.kernels.selection.measurements import Knowledge
from pyruntime.session.tuning import calibration, measuring
from pyruntime.session.tuning.calibration import is_like
from pyruntime.target import H200, Winners
from tests.open_models import Writer
from tests.session.doubles import on_device

GPU = Target(Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")


class Clock:
    """Seconds that go on only where a device says so, told in whole `grains`, as browsers do."""

    def __init__(self) -> None:
        self.now = 0.0
        self.grain = 0.0

    def perf_counter(self) -> float:
        return self.now // self.grain * self.grain if self.grain else self.now


class TimedDevice(NullDevice):
    """A submit takes 100 microseconds, and one for each workgroup."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(GPU)
        self.clock = clock

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        took = 1e-4 + sum(1e-6 * np.prod(c.grid) for c in self.recordings[recording])
        self.clock.now += self.times_slower(recording) * took
        return await super().submit(recording, writes, reads, numbers)

    def times_slower(self, recording: int) -> float:
        """How many times as long a submit takes."""
        return 1


class NoisyDevice(TimedDevice):
    """Half of the submits take a millisecond longer, some 6 or 20, the first ones twice as long; a coarse clock."""

    def __init__(self, clock: Clock, seed: int) -> None:
        super().__init__(clock)
        clock.grain = 1e-4
        self._noise = np.random.default_rng(seed)
        self._submits = 0

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        began = self.clock.now
        made = await super().submit(recording, writes, reads, numbers)
        self._submits += 1
        if self._submits < 20:
            self.clock.now += self.clock.now - began
        self.clock.now += float(self._noise.choice([0.0, 1e-3, 6e-3, 2e-2], p=[0.5, 0.35, 0.1, 0.05]))
        return made


class IdleDevice(TimedDevice):
    """Takes three times as long for its first 300 milliseconds of work, twice for the next 100: its clock is low."""

    def times_slower(self, recording: int) -> float:
        return 3 if self.clock.now < 0.3 else 2 if self.clock.now < 0.4 else 1


class NewDevice(TimedDevice):
    """Runs fallback kernels, which take three times as long, wherever a source has one."""

    def times_slower(self, recording: int) -> float:
        return 3 if any("// <fallback>" in c.source for c in self.recordings[recording]) else 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(measuring, "time", made)
    monkeypatch.setattr(calibration, "time", made)
    yield made


def products() -> bytes:
    """y = (x @ w) @ v, x: float32 [512, 256]."""
    g = Writer(0)
    g.add("MatMul", g.add("MatMul", "x", g.weight(256, 640)), g.weight(640, 512), out="y")
    return g.model({"x": (1, (512, 256))}, ["y"])


def tuned(device: NullDevice) -> tuple[pyruntime.InferenceSession, Any]:
    with on_device(device):
        session = asyncio.run(pyruntime.InferenceSession.create(products()))
    return session, asyncio.run(session.tune_async())


def test_tune__every_problem__the_fastest_wins_and_runs_from_then_on(clock: Clock) -> None:
    device = TimedDevice(clock)
    session, tuning = tuned(device)
    told = {t.problem: t for t in tuning.measured}
    assert set(told) == {"512x640x256", "512x512x640"}
    for t in told.values():
        assert len(t.candidates) > 5
        took = [c.took for c in t.candidates]
        assert took == sorted(took)
        # A workgroup takes the same time whatever it does, so that the fewest are best.
        assert t.winner == t.candidates[0].name
        assert t.winner in ("m1", "l1")
    assert device.target.winners == {("product", problem): t.winner for problem, t in told.items()}
    with on_device(device):
        later = asyncio.run(pyruntime.InferenceSession.create(products()))
    choices = later.explain().to_dict()["choices"]
    assert {(c["chosen"], c["reason"]) for c in choices} == {(t.winner, "measured") for t in told.values()}
    assert json.loads(json.dumps(tuning.to_dict()))["measured"][0]["winner"] in ("m1", "l1")
    assert "512x640x256" in str(tuning)
    session.release()
    later.release()


@pytest.mark.parametrize("seed", range(4))
def test_tune__noise_longer_than_what_is_measured__the_fastest_wins(clock: Clock, seed: int) -> None:
    session, quiet = tuned(TimedDevice(clock))
    session.release()
    session, noisy = tuned(NoisyDevice(clock, seed))
    session.release()
    right = {(t.problem, c.name): c.took for t in quiet.measured for c in t.candidates}
    for t in noisy.measured:
        best = min(took for (problem, _), took in right.items() if problem == t.problem)
        assert right[t.problem, t.winner] <= 1.02 * best
        for c in t.candidates:
            known = right.get((t.problem, c.name))  # costs by other rates leave other candidates out
            assert known is None or 0.4 <= c.took / known <= 2.5


def test_tune__what_it_took__is_given_back(clock: Clock) -> None:
    device = TimedDevice(clock)
    session, _ = tuned(device)
    held, recordings = device.ledger.total, len(device.recordings)
    asyncio.run(session.tune_async())
    assert (device.ledger.total, len(device.recordings)) == (held, recordings)
    session.release()


def test_tune__on_the_host_or_before_a_run__says_what_to_do() -> None:
    session = pyruntime.InferenceSession(products())
    with pytest.raises(pyruntime.InvalidArgument, match="tune measures kernels on a GPU"):
        session.tune()
    g = Writer(0)
    g.add("MatMul", "x", g.weight(256, 640), out="y")
    with on_device(NullDevice(GPU)):
        session = pyruntime.InferenceSession(g.model({"x": (1, ("rows", 256))}, ["y"]))
    with pytest.raises(pyruntime.InvalidArgument, match="run the model once"):
        session.tune()


def test_calibrate__workgroups_of_equal_price__rates_of_one_unit(clock: Clock) -> None:
    session, tuning = tuned(TimedDevice(clock))
    assert tuning.rates.units == 1
    assert tuning.rates.flops < H200.flops
    assert tuning.rates.resident == H200.resident
    session.release()


def test_calibrate__clock_that_rises__rates_of_a_device_at_work(clock: Clock) -> None:
    session, tuning = tuned(TimedDevice(clock))
    session.release()
    clock.now = 0.0
    session, idle = tuned(IdleDevice(clock))
    session.release()
    for name in ("units", "flops", "bandwidth", "dispatch"):
        assert getattr(idle.rates, name) == pytest.approx(getattr(tuning.rates, name), rel=0.02)


def test_calibrate__kernels_with_fallbacks__optimized_ones_are_measured(clock: Clock) -> None:
    session, tuning = tuned(TimedDevice(clock))
    program = session._program
    assert program and any("// <fallback>" in s for stage in program.roots for s in stage.executable.plan.shaders)
    session.release()
    session, new = tuned(NewDevice(clock))
    session.release()
    for name in ("units", "flops", "bandwidth", "dispatch"):
        assert getattr(new.rates, name) == pytest.approx(getattr(tuning.rates, name), rel=0.02)
    took = [{c.name: c.took for c in t.candidates} for t in tuning.measured]
    assert [{c.name: c.took for c in t.candidates} for t in new.measured] == [pytest.approx(t, rel=0.02) for t in took]


@pytest.mark.parametrize(
    ("flops", "bandwidth", "like"), [(1, 1, True), (1.08, 0.8, True), (0.8, 1.3, False), (0.5, 1, False), (3, 1, False)]
)
def test_is_like__arithmetic_and_bandwidth__decide(flops: float, bandwidth: float, like: bool) -> None:
    rates = replace(H200, units=218, dispatch=9.0, flops=flops * H200.flops, bandwidth=bandwidth * H200.bandwidth)
    assert is_like(rates, H200) == like


def test_knowledge__there_and_back__same() -> None:
    known = Knowledge(replace(H200, units=8), Winners({("product", "1x2x3"): "s1", ("tiles", "1x2x3"): "m1"}))
    again = Knowledge.from_dict(json.loads(json.dumps(known.to_dict())))
    assert again == known
    assert Knowledge.from_dict(Knowledge().to_dict()) == Knowledge()


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"version": 1},
        {"version": 3},
        {"version": 2, "rates": {"units": 3}},
        {"version": 2, "rates": {**Knowledge(H200).to_dict()["rates"], "units": 0}},
        {"version": 2, "rates": {**Knowledge(H200).to_dict()["rates"], "flops": "much"}},
        {"version": 2, "winners": {"product": {"1x2x3": 7}}},
        {"version": 2, "winners": ["product"]},
    ],
)
def test_knowledge__something_else__refused(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|must"):
        Knowledge.from_dict(broken)
