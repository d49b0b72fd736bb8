"""Steps that are fed the caches of the step before them: random walks against onnxruntime's CPU, and what is done."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import onnxruntime
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.ir import Array, DType, HostTensor
from pyruntime.session import InferenceSession, OrtValue
from pyruntime.session.base import Internals
from pyruntime.session.run.following import Following
from pyruntime.session.run.planning import Planner
from tests.cache_models import CACHED, Cached
from tests.desktop import desktop_device, on_desktop
from tests.oracle import OPTIONS
from tests.session.doubles import on_device

WALKED = ["concat", "group_query_8", "group_query_scalar", "group_query_product", "attention", "merged"]


class Walk:
    """A session on the software adapter, and onnxruntime; a state is the caches of both after some rows."""

    def __init__(self, cached: Cached) -> None:
        self.cached = cached
        self.session = InferenceSession(cached.model)
        self.reference = onnxruntime.InferenceSession(cached.model, OPTIONS, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]
        self.random = np.random.default_rng(0)

    def begin(self) -> tuple[dict[str, Any], dict[str, Array], int]:
        empty = dict(self.cached.empty(1))
        return {name: OrtValue.ortvalue_from_numpy(a) for name, a in empty.items()}, empty, 0

    def _varied(self, array: Array) -> Array:
        """Other numbers each time: a row that is written where another one belongs has to be seen."""
        if array.dtype.kind != "f":
            return array
        return np.asarray(array + self.random.normal(size=array.shape), array.dtype)

    def step(self, state: tuple[dict[str, Any], dict[str, Array], int], new: int) -> Any:
        """Append `new` rows, compare the outputs that are no caches, and return the state after them."""
        mine, theirs, past = state
        feeds = {n: self._varied(a) for n, a in self.cached.feeds(1, new, past).items()}
        binding = self.session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name, value in mine.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.names:
            binding.bind_output(name, "webgpu" if name in self.cached.caches else "cpu")
        self.session.run_with_iobinding(binding)
        made = dict(zip(self.names, binding.get_outputs(), strict=True))
        wanted = dict(zip(self.names, self.reference.run(self.names, {**feeds, **theirs}), strict=True))
        for name in self.names:
            if name not in self.cached.caches:
                np.testing.assert_allclose(made[name].numpy(), wanted[name], atol=self.cached.atol, rtol=1e-3)
        caches = self.cached.caches
        return {caches[n]: made[n] for n in caches}, {caches[n]: wanted[n] for n in caches}, past + new


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", WALKED)
def test_walk__continued_branched_fed_from_the_host_and_shared__as_onnxruntime(name: str, seed: int) -> None:
    with on_desktop():
        walk, other = Walk(CACHED[name]), Walk(CACHED[name])
        random = np.random.default_rng(seed)
        states = [walk.step(walk.begin(), 7)]
        for _ in range(40):
            state = states[-1]
            choice = random.integers(10)
            if choice == 0:  # an older state, which may share its memory with the newest
                state = states[int(random.integers(len(states)))]
            elif choice == 1:  # caches that go through the host
                state = {n: OrtValue.ortvalue_from_numpy(v.numpy()) for n, v in state[0].items()}, *state[1:]
            elif choice == 2:  # another session appends to the same caches
                other.step(state, 1)
            elif choice == 3:  # contents change in place
                for value in state[0].values():
                    value.update_inplace(value.numpy())
            states = [*states[-3:], walk.step(state, 1)]
        for n, value in states[-1][0].items():
            np.testing.assert_allclose(value.numpy(), states[-1][1][n], atol=CACHED[name].atol, rtol=1e-3)


def test_steps__that_follow__look_for_no_plan_and_release_their_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    found, followed = [], []
    stage_for, run = Planner.stage_for, Following.run

    async def counted(self: Planner, *given: Any) -> Any:
        found.append(1)
        return await stage_for(self, *given)

    async def counted_run(self: Following, *given: Any) -> Any:
        followed.append(1)
        return await run(self, *given)

    monkeypatch.setattr(Planner, "stage_for", counted)
    monkeypatch.setattr(Following, "run", counted_run)
    with on_desktop():
        walk = Walk(CACHED["group_query"])
        state = walk.begin()
        for new in (7, 1, 1):
            state = walk.step(state, new)
        found.clear()
        for _ in range(20):
            state = walk.step(state, 1)
        assert not found and len(followed) >= 20
        del state
        gc.collect()
        live = desktop_device().ledger.by_label.get("tensors", 0)
        again = walk.begin()
        for new in (7, 1, 1, 1):
            again = walk.step(again, new)
        assert desktop_device().ledger.by_label.get("tensors", 0) == live, "the memory of the first text is used again"


def test_step__whose_ids_come_from_the_other_side__is_planned_for_it() -> None:
    """A stage is for inputs on the device or on the host: the caches alone do not say which."""
    cached, device = CACHED["concat"], NullDevice()

    async def main() -> None:
        session = await InferenceSession.create(cached.model)
        names = [o.name for o in session.get_outputs()]
        keep: dict[str, Any] = dict.fromkeys(cached.caches)
        caches: dict[str, Any] = dict(cached.empty(1))
        for past, new, on_gpu in ((0, 7, False), (7, 1, False), (8, 1, False), (9, 1, True), (10, 1, False)):
            feeds: dict[str, Any] = dict(cached.feeds(1, new, past))
            if on_gpu:
                host = {n: HostTensor.of(a, DType.from_numpy(a.dtype)) for n, a in feeds.items()}
                feeds = {n: await DeviceTensor.upload(tensor, device) for n, tensor in host.items()}
            made = await Internals(session).run_values({**feeds, **caches}, names, None, keep)
            caches = {cached.caches[n]: made[n] for n in cached.caches}

    with on_device(device):
        asyncio.run(main())
