"""Rates of a device are measured once, after its first run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
import pytest

import pyruntime
from pyruntime.device.base import AdapterInfo
from pyruntime.device.null import NullDevice
from pyruntime.kernels import Target
from pyruntime.kernels.selection.measurements import Knowledge
from pyruntime.session import environment
from pyruntime.session.tuning import first_use
from pyruntime.target import H200, SOFTWARE_ADAPTER, Rates
from tests.open_models import Writer
from tests.session.doubles import on_device

GPU = Target(vendor="nvidia")
SMALL = replace(H200, units=8, flops=1e6)


class Calibrations:
    """Stands for `calibrate`: counts, takes a moment, and asks whether it is in the way."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def __call__(self, device: object, rounds: int, check: object) -> Rates:
        self.begun += 1
        await asyncio.sleep(0.02)  # a measurement takes time
        check()  # type: ignore[operator]
        self.ended += 1
        return SMALL


@pytest.fixture
def calibrations(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calibrations]:
    made = Calibrations()

    async def learn(device: NullDevice, known: Knowledge) -> None:
        device.target = known.of(device.target)

    monkeypatch.setattr(first_use, "calibrate", made)
    monkeypatch.setattr(first_use, "QUIET", 0.01)
    monkeypatch.setattr(environment, "in_browser", True)
    monkeypatch.setattr(environment, "learn", learn)
    yield made


def model() -> bytes:
    g = Writer(0)
    g.add("MatMul", "x", g.weight(64, 64), out="y")
    return g.model({"x": (1, (64, 64))}, ["y"])


async def all_is_done() -> None:
    """Wait until no other task is left: what is to be measured is measured."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


async def runs(
    device: NullDevice, entry: str = "auto", times: int = 1, apart: float = 0.0, to_the_end: bool = True
) -> None:
    options = pyruntime.SessionOptions()
    options.add_session_config_entry(first_use.ENTRY, entry)
    with on_device(device):
        session = await pyruntime.InferenceSession.create(model(), options)
    for _ in range(times):
        await session.run_async(None, {"x": np.ones((64, 64), np.float32)})
        await asyncio.sleep(apart)  # shorter than a measurement, which is to be in the way
    if to_the_end:
        await all_is_done()
    session.release()


def test_first_run__unknown_device__measured_once_and_for_later_sessions(calibrations: Calibrations) -> None:
    device = NullDevice(GPU)
    asyncio.run(runs(device, times=3))
    asyncio.run(runs(device))
    assert (calibrations.begun, calibrations.ended) == (1, 1)
    assert device.target.rates == SMALL


def test_first_run__others_follow__measured_when_they_are_over(calibrations: Calibrations) -> None:
    device = NullDevice(GPU)
    asyncio.run(runs(device, times=4, apart=0.018))
    assert calibrations.ended == 1
    assert 1 <= calibrations.begun <= first_use.ATTEMPTS
    assert device.target.rates == SMALL


def test_first_run__others_than_python_run_models__measured_when_they_are_over(calibrations: Calibrations) -> None:
    device = NullDevice(GPU)

    async def others() -> None:
        for _ in range(12):
            device.replays += 1
            await asyncio.sleep(0.005)
        assert calibrations.ended == 0
        await all_is_done()

    async def both() -> None:
        await runs(device, to_the_end=False)
        await others()

    asyncio.run(both())
    assert calibrations.ended == 1


def test_first_run__a_model_loads__measured_when_it_is_there(calibrations: Calibrations) -> None:
    device = NullDevice(GPU)

    async def loading() -> None:
        await runs(device, to_the_end=False)
        with first_use.at_work():
            await asyncio.sleep(0.1)  # ten times as long as a device has to rest
            assert calibrations.begun == 0
        await all_is_done()

    asyncio.run(loading())
    assert calibrations.ended == 1


@pytest.mark.parametrize("entry", ["assumed", json.dumps(asdict(SMALL))])
def test_entry__rates_or_assumed__nothing_is_measured(calibrations: Calibrations, entry: str) -> None:
    device = NullDevice(GPU)
    asyncio.run(runs(device, entry))
    assert (calibrations.begun, device.target.rates) == (0, None)


def test_entry__rates__kernels_are_chosen_by_them(calibrations: Calibrations) -> None:
    options = pyruntime.SessionOptions()
    options.add_session_config_entry(first_use.ENTRY, json.dumps(asdict(SMALL)))
    with on_device(NullDevice(GPU)):
        session = asyncio.run(pyruntime.InferenceSession.create(model(), options))
    assert session._program is not None and session._program.target.speed == SMALL
    session.release()


def test_entry__something_else__says_what_it_may_be() -> None:
    with pytest.raises(pyruntime.InvalidArgument, match="'auto', 'assumed' or rates as JSON"):
        first_use.given_rates("fast")


@pytest.mark.parametrize(
    ("target", "description"),
    [
        (Target(vendor="google"), "SwiftShader"),
        (Target(vendor="google", disabled=frozenset({"software"})), "SwiftShader"),
        (Target(vendor="mesa"), "llvmpipe (LLVM 19)"),
        (Target(features=frozenset({SOFTWARE_ADAPTER})), ""),
        (replace(GPU, rates=H200), "known from an earlier visit"),
    ],
)
def test_first_run__processor_or_known__not_measured(
    calibrations: Calibrations, target: Target, description: str
) -> None:
    device = NullDevice(target)
    device.info = AdapterInfo(target.vendor, "", "", description)
    asyncio.run(runs(device))
    assert calibrations.begun == 0
