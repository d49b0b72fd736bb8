"""A model that is damaged anywhere is an exception of this package or a model: soon, in little memory, freed again.

A sample in every run; all of it, some thousand models, with PYRUNTIME_SOAK (`python3 dev.py soak`).
"""

from __future__ import annotations

import asyncio
import os
import time
import tracemalloc
import warnings

import numpy as np
import pytest

from pyruntime.errors import OrtError
from pyruntime.session import InferenceSession, SessionOptions
from tests.bad_models.damage import Damaged, boundaries, damaged
from tests.bad_models.test_corpus import BYTES, SECONDS
from tests.session import models
from tests.session.doubles import FaultyDevice, on_device

SOAK = int(os.environ.get("PYRUNTIME_SOAK", "1"))
EVERY = 1 if SOAK > 1 else 11


def bounded() -> SessionOptions:
    """What keeps a damaged shape from being a large one: these are limits that must hold."""
    options = SessionOptions()
    options.limits.node_bytes = options.limits.gpu_bytes = 1 << 22
    options.limits.loop_trips = 1000
    options.limits.run_seconds = 1.0
    return options


async def outcome(case: Damaged) -> str:
    """The exception's name, or 'an answer'."""
    try:
        session = await InferenceSession.create(case.data, bounded())
        try:
            await session.run_async(None, {"x": np.ones(case.shape, np.float32)})
        finally:
            session.release()
    except OrtError as error:
        assert "bug of pyruntime" not in str(error), f"{case.name}: {error}"
        return type(error).__name__
    return "an answer"


def test_boundaries__of_a_model__are_where_fields_begin() -> None:
    data = models.double()
    found = boundaries(data)
    assert found[0] == 0 and found[-1] == len(data)
    assert data.index(b"Relu") in found and data.index(b"Relu") + 4 in found


def test_damage__at_every_boundary__is_an_exception_or_an_answer_within_bounds() -> None:
    outcomes: dict[str, int] = {}
    tracemalloc.start()
    try:
        for case in list(damaged())[::EVERY]:
            device = FaultyDevice()
            tracemalloc.reset_peak()
            held = tracemalloc.get_traced_memory()[0]
            began = time.perf_counter()
            with on_device(device), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = asyncio.run(outcome(case))
            seconds = time.perf_counter() - began
            peak = tracemalloc.get_traced_memory()[1] - held
            assert seconds < SECONDS, case.name
            assert peak < BYTES + len(case.data), f"{case.name}: {peak:,} bytes"
            assert device.ledger.live == {} and not device.recordings, case.name
            outcomes[found] = outcomes.get(found, 0) + 1
    finally:
        tracemalloc.stop()
    assert {"InvalidProtobuf", "InvalidGraph", "Fail", "an answer"} <= outcomes.keys(), outcomes
    assert outcomes["InvalidProtobuf"] > outcomes["an answer"]


def test_damage__with_a_reader_that_does_not_check_lengths__is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No length is compared with what is left any more: something else than an exception of ours comes out."""

    def unchecked(buffer: object, pos: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while (byte := buffer[pos]) >= 0x80:  # type: ignore[index]
            value |= (byte & 0x7F) << shift
            shift, pos = shift + 7, pos + 1
        return value | byte << shift, pos + 1

    monkeypatch.setattr("pyruntime.onnx.formats.protobuf.varint", unchecked)
    with pytest.raises((AssertionError, IndexError)):
        test_damage__at_every_boundary__is_an_exception_or_an_answer_within_bounds()
