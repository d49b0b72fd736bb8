"""Limits are on by default, refuse with their name, the value and how to raise them, and can be raised.

tests/mutations takes each limit's comparison away to see its test here fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.errors import Fail, InvalidArgument, InvalidProtobuf, OrtError, OutOfMemory
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.limits import ResourceLimits
from tests.bad_models.case import graph_model, node
from tests.session import models
from tests.session.doubles import FaultyDevice, on_device

ROWS = {"x": np.ones((100, 4), np.float32)}
TWO = {"x": np.ones(2, np.float32)}
CHAIN = graph_model([node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Abs", ["b"], ["y"])])


def options(**limits: float) -> SessionOptions:
    made = SessionOptions()
    for name, value in limits.items():
        setattr(made.limits, name, value)
    return made


def one_plan_a_size(chosen: SessionOptions) -> SessionOptions:
    """Each size of an input gets a plan of its own."""
    chosen.add_session_config_entry("pyruntime.disable", "dynamic_dimensions")
    return chosen


async def _use(model: bytes, feeds: dict[str, Any], chosen: SessionOptions) -> None:
    session = await InferenceSession.create(model, chosen)
    try:
        await session.run_async(None, feeds)
    finally:
        session.release()


CASES: dict[str, tuple[bytes, dict[str, Any], float, float, type[OrtError]]] = {
    "model_bytes": (CHAIN, TWO, 50, 5000, Fail),
    "messages": (CHAIN, TWO, 5, 500, InvalidProtobuf),
    "nesting": (CHAIN, TWO, 2, 20, InvalidProtobuf),
    "nodes": (CHAIN, TWO, 2, 20, Fail),
    "node_bytes": (models.double(), ROWS, 100, 10_000, OutOfMemory),
    "loop_trips": (models.branching(30), TWO, 29, 30, OrtError),
}


@pytest.mark.parametrize("name", CASES)
def test_limit__reached__names_itself_and_can_be_raised(name: str) -> None:
    model, feeds, low, high, error = CASES[name]
    with pytest.raises(error, match=f"`{name}`.*SessionOptions.limits|options.limits.{name}"):
        asyncio.run(_use(model, feeds, options(**{name: low})))
    asyncio.run(_use(model, feeds, options(**{name: high})))


def test_limit__of_gpu_bytes__refuses_before_anything_is_allocated() -> None:
    device = FaultyDevice()
    with on_device(device), pytest.raises(OutOfMemory, match=r"need [\d,]+ bytes.*`gpu_bytes` is 1,000"):
        asyncio.run(_use(models.double(), ROWS, options(gpu_bytes=1000)))
    assert device.ledger.peak == 0
    with on_device(FaultyDevice()):
        asyncio.run(_use(models.double(), ROWS, options(gpu_bytes=100_000)))


def test_limit__of_gpu_bytes__prefers_freeing_old_plans() -> None:
    async def main() -> None:
        session = await InferenceSession.create(models.double(), options(gpu_bytes=8000))
        for rows in (100, 120, 140, 160, 100):
            await session.run_async(None, {"x": np.ones((rows, 4), np.float32)})
        session.release()

    device = FaultyDevice()
    with on_device(device):
        asyncio.run(main())
    assert 0 < device.ledger.peak <= 8000
    assert device.ledger.live == {}


def test_limit__of_gpu_bytes__is_at_most_the_memory_of_the_device() -> None:
    async def main() -> None:
        session = await InferenceSession.create(models.double(), options())
        for rows in (100, 120, 140, 160, 100):
            await session.run_async(None, {"x": np.ones((rows, 4), np.float32)})
        session.release()

    device = FaultyDevice()
    device.ledger.memory = 8000
    with on_device(device):
        asyncio.run(main())
        with pytest.raises(OutOfMemory, match=r"`gpu_bytes` is 8,000"):
            asyncio.run(_use(models.double(), {"x": np.ones((2000, 4), np.float32)}, options()))
    assert 0 < device.ledger.peak <= 8000


def test_limit__of_gpu_bytes__that_was_set__is_not_lowered_to_the_memory_of_the_device() -> None:
    device = FaultyDevice()
    device.ledger.memory = 8000
    with on_device(device):
        asyncio.run(_use(models.double(), {"x": np.ones((2000, 4), np.float32)}, options(gpu_bytes=100_000)))
    assert device.ledger.peak > 8000


@pytest.mark.parametrize(
    ("memory", "precision", "fits"), [(60_000, "float32", False), (60_000, "float16", True), (110_000, "float32", True)]
)
def test_create__weights_above_the_memory_of_the_device__refused_before_sizes_are_known(
    memory: int, precision: str, fits: bool
) -> None:
    chosen = options()
    chosen.add_session_config_entry("pyruntime.precision", precision)
    device = FaultyDevice()
    device.ledger.memory = memory

    async def main() -> None:
        (await InferenceSession.create(models.staged(), chosen)).release()

    with on_device(device):
        if fits:
            asyncio.run(main())
        else:
            with pytest.raises(OutOfMemory, match=r"weights take 102,404 bytes on the GPU.*`gpu_bytes` is 60,000"):
                asyncio.run(main())
    assert device.ledger.live == {}


def test_limit__of_node_bytes__holds_for_nodes_that_a_device_leaves_to_the_host() -> None:
    target = NullDevice().target
    small = replace(target, limits=replace(target.limits, buffer_bytes=1024))
    with on_device(FaultyDevice(target=small)), pytest.raises(OutOfMemory, match="`node_bytes` is 1,000"):
        asyncio.run(_use(models.double(), ROWS, options(node_bytes=1000)))
    with on_device(FaultyDevice(target=small)):
        asyncio.run(_use(models.double(), ROWS, options(node_bytes=10_000)))


def test_limit__of_run_seconds__ends_a_run_of_a_loop() -> None:
    with pytest.raises(Fail, match=r"more than 0.05 s, the limit `run_seconds`"):
        asyncio.run(_use(models.branching(2**62), TWO, options(run_seconds=0.05)))


@pytest.mark.parametrize("make", [models.double, models.staged])
def test_limit__of_cached_plans__keeps_that_many(make: Callable[[], bytes]) -> None:
    async def main() -> None:
        session = await InferenceSession.create(make(), one_plan_a_size(options(cached_plans=4)))
        width = 4 if make is models.double else 160
        peaks = []
        for rows in (*range(1, 13), 1):
            await session.run_async(None, {"x": np.ones((rows, width), np.float32)})
            peaks.append(device.ledger.total)
        assert session._program is not None
        assert len(session._program.roots) == 4
        assert [s.signature[0][0][1].shape[0] for s in session._program.roots] == [10, 11, 12, 1]  # type: ignore[union-attr]
        assert max(peaks[6:]) < 2 * peaks[4]
        session.release()

    device = FaultyDevice()
    with on_device(device):
        asyncio.run(main())
    assert device.ledger.live == {} and not device.recordings


def test_plans__used_again__are_kept_longest() -> None:
    async def main() -> list[int]:
        session = await InferenceSession.create(models.double(), one_plan_a_size(options(cached_plans=2)))
        for rows in (1, 2, 1, 3):
            await session.run_async(None, {"x": np.ones((rows, 4), np.float32)})
        assert session._program is not None
        kept = [s.signature[0][0][1].shape[0] for s in session._program.roots]  # type: ignore[union-attr]
        session.release()
        return kept

    with on_device(FaultyDevice()):
        assert asyncio.run(main()) == [1, 3]


def test_options__entries__set_limits_and_refuse_what_is_none() -> None:
    entries = {"pyruntime.limits.gpu_bytes": "5", "pyruntime.limits.run_seconds": "1.5", "session.other": "x"}
    merged = ResourceLimits().merged(entries)
    assert merged.gpu_bytes == 5 and merged.run_seconds == 1.5
    for key, value in {"pyruntime.limits.gpu": "5", "pyruntime.limits.nodes": "many"}.items():
        with pytest.raises(InvalidArgument, match="config entry"):
            ResourceLimits().merged({key: value})
    for low in (0, -1, float("nan")):
        with pytest.raises(InvalidArgument, match="above 0"):
            ResourceLimits(run_seconds=low).merged({})
