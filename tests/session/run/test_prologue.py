"""Constants that the GPU computes: all that fit are made in one go."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime.device.null import NullDevice
from pyruntime.session.run import prologue
from tests.open_models import Writer
from tests.session.doubles import on_device

BLOCKS = 3


def model(blocks: int = BLOCKS) -> bytes:
    """Products with functions of weights: a computed constant each."""
    g, x = Writer(0), "x"
    for _ in range(blocks):
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
    monkeypatch.setattr(prologue, "MOST_TOGETHER", 1)
    assert created(NullDevice())[0] == BLOCKS


def test_prologue__many_constants__peak_is_at_most_a_tenth_above_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prologue, "LEAST_TOGETHER", 1)
    device = NullDevice()

    async def use() -> None:
        session = await pyruntime.InferenceSession.create(model(24))
        await session.run_async(None, {"x": np.zeros((4, 160), np.float32)})
        assert device.ledger.peak <= 1.10 * device.ledger.total
        memory = session.memory_plan
        assert sum(memory.allocated.values()) == device.ledger.total
        assert memory.allocated["weights"] + memory.allocated["computed"] == memory.weights
        assert memory.allocated["activations"] == memory.peak
        session.release()

    with on_device(device):
        asyncio.run(use())


def test_prologue__computed_from_a_weight_that_stays__it_is_uploaded_once() -> None:
    g = Writer(0)
    w = g.weight(160, 160)
    x = g.add("MatMul", g.add("MatMul", "x", w), g.add("Sigmoid", w))
    data = g.model({"x": (1, (4, 160))}, [g.add("Relu", x, out="y")])
    device = NullDevice()

    async def use() -> None:
        session = await pyruntime.InferenceSession.create(data)
        made: list[Any] = [of for name, of in device.calls if name == "allocate"]
        assert [size for label, size in made if label == "weights"] == [160 * 160 * 4]
        await session.run_async(None, {"x": np.zeros((4, 160), np.float32)})
        memory = session.memory_plan
        assert memory.allocated["weights"] == memory.allocated["computed"] == 160 * 160 * 4
        session.release()
        assert not device.ledger.live

    with on_device(device):
        asyncio.run(use())
