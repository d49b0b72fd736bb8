"""Constants that the GPU computes: all that fit are made in one go."""

from __future__ import annotations

import asyncio

import pytest

import pyruntime
from pyruntime.device.null import NullDevice
from pyruntime.session.run import prologue
from tests.open_models import Writer
from tests.session.doubles import on_device

BLOCKS = 3


def model() -> bytes:
    """Products with functions of weights: a computed constant each."""
    g, x = Writer(0), "x"
    for _ in range(BLOCKS):
        x = g.add("MatMul", x, g.add("Sigmoid", g.weight(160, 160)))
    return g.model({"x": (1, (4, 160))}, [g.add("Relu", x, out="y")])


def created(device: NullDevice) -> tuple[int, int]:
    """Submits and allocations that creating the session takes."""

    async def use() -> tuple[int, int]:
        session = await pyruntime.InferenceSession.create(model())
        names = [name for name, _ in device.calls]
        live = dict(device.ledger.live)
        session.release()
        assert live and not device.ledger.live
        return names.count("submit"), names.count("allocate")

    with on_device(device):
        return asyncio.run(use())


def test_prologue__computed_constants__are_made_in_one_submit() -> None:
    assert created(NullDevice())[0] == 1


def test_prologue__more_than_may_be_computed_at_a_time__in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prologue, "TOGETHER", 1)
    assert created(NullDevice())[0] == BLOCKS
