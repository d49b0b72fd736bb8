"""`memory_plan` lists what is on the device, in every state of the sessions on it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.options import GenerationOptions
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.api import ortvalue
from tests.contrib.decoder import decoder
from tests.open_models import encoder, encoder_feeds
from tests.session.doubles import on_device
from tests.session.models import segmented, staged
from tests.window_models import GPU

CACHES = {f"past.{i}.{part}": f"present.{i}.{part}" for i in range(2) for part in ("key", "value")}


class Sessions:
    """Sessions on a device that only records."""

    def __init__(self) -> None:
        self.device = NullDevice(GPU)
        self.all: list[InferenceSession] = []

    async def create(self, model: bytes, **entries: str) -> InferenceSession:
        options = SessionOptions()
        for name, value in entries.items():
            options.add_session_config_entry(f"pyruntime.{name}", value)
        self.all.append(await InferenceSession.create(model, options))
        return self.all[-1]

    async def decoding(self, **entries: str) -> Decoding:
        """A text that begins."""
        model = decoder(size=64, positions=4096).model
        return Decoding(DecoderModel(await self.create(model, **entries), caches=CACHES), GenerationOptions())

    def check(self) -> dict[str, int]:
        """Compare what the sessions say with what the device has, to the byte; return that."""
        plans = [session.memory_plan for session in self.all]
        held = {label: nbytes for label, nbytes in self.device.ledger.by_label.items() if nbytes}
        for plan in plans:
            assert sum(plan.allocated.values()) == self.device.ledger.total
        assert sum(plan.peak for plan in plans) == held.get("arena", 0)
        assert sum(plan.weights for plan in plans) == held.get("weights", 0) + held.get("computed", 0)
        return held

    def release(self, session: InferenceSession) -> None:
        session.release()
        self.all.remove(session)


def on(main: Callable[[Sessions], Awaitable[None]]) -> None:
    """Run `main`; nothing may be left on the device."""
    sessions = Sessions()
    with on_device(sessions.device):
        asyncio.run(main(sessions))  # type: ignore[arg-type]
        sessions.check()
        for session in [*sessions.all]:
            sessions.release(session)
        gc.collect()
        DeviceTensor.trim(sessions.device)
    assert sessions.device.ledger.total == 0


@pytest.mark.parametrize("bits", [0, 4])
def test_memory_plan__decoder__has_the_arena_of_all_plans(bits: int) -> None:
    async def main(sessions: Sessions) -> None:
        text = await sessions.decoding(**({"kv_cache_bits": str(bits)} if bits else {}))
        sessions.check()
        (session,) = sessions.all
        peaks = []
        for tokens in (8, 1, 1, 100, 1, 700, 1, 1):
            await text.append([[1] * tokens])
            sessions.check()
            peaks.append(session.memory_plan.peak)
        assert peaks == sorted(peaks) and peaks[0] < peaks[-1]
        plan = session.memory_plan
        assert plan.peak > sum(stage.peak for stage in plan.stages), "a token needs less than the prompt"
        assert "activations of all plans" in str(plan)

    on(main)


def test_memory_plan__sizes_that_grow__has_what_is_allocated() -> None:
    async def main(sessions: Sessions) -> None:
        session = await sessions.create(encoder())
        assert sessions.check() == {} and session.memory_plan.peak == 0
        for length in (3, 5, 4, 40, 900, 2):
            await session.run_async(None, encoder_feeds(1, length))
            sessions.check()

    on(main)


@pytest.mark.parametrize("model", [staged(), segmented()], ids=["staged", "segmented"])
@pytest.mark.parametrize("entries", [{}, {"sanitize": "1"}], ids=["", "sanitized"])
def test_memory_plan__plans_with_memory_of_their_own__is_their_sum(model: bytes, entries: dict[str, str]) -> None:
    async def main(sessions: Sessions) -> None:
        session = await sessions.create(model, **entries)
        for rows in (2, 3, 2, 7):
            shape = (rows, *(160,)) if model == staged() else (rows, 2, 2)
            await session.run_async(None, {"x": np.ones(shape, np.float32)})
            sessions.check()

    on(main)


def test_memory_plan__two_sessions_with_outputs_on_the_gpu__each_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(sessions: Sessions) -> None:
        monkeypatch.setattr(ortvalue, "opened", lambda: sessions.device)
        first, second = [await sessions.create(encoder()) for _ in range(2)]
        binding = first.io_binding()
        for name, value in encoder_feeds(1, 30).items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("hidden", "webgpu")
        await first.run_with_iobinding_async(binding)
        there = sessions.check()
        assert there["tensors"] > 0 and second.memory_plan.peak == 0 < first.memory_plan.peak
        await second.run_async(None, encoder_feeds(1, 50))
        sessions.check()
        binding.clear_binding_outputs()
        gc.collect()
        assert sessions.check()["tensors"] == there["tensors"], "memory for later outputs"
        sessions.release(first)
        assert "tensors" not in sessions.check()

    on(main)


def test_memory_plan__runs_in_flight_and_evicted_plans__has_what_is_allocated() -> None:
    async def main(sessions: Sessions) -> None:
        session = await sessions.create(encoder(), disable="dynamic_dimensions", **{"limits.cached_plans": "2"})
        runs = [asyncio.ensure_future(session.run_async(None, encoder_feeds(1, length))) for length in (3, 9, 27, 81)]
        while not all(run.done() for run in runs):
            sessions.check()
            await asyncio.sleep(0)
        sessions.check()

    on(main)
