"""Caches that grow in the memory they are in: what is copied, what is shared, what is kept. Numbers are e2e's part.

Every tensor of these tests is on the null device; PYRUNTIME_VERIFY proves each plan.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pyruntime.device.base import Slice
from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor, Move
from pyruntime.ir import DType, HostTensor, TensorType
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.run.program import Program
from tests.cache_models import CACHED, Cached
from tests.session.doubles import run_on

State = Mapping[str, Any]
Step = Callable[[State, int], Coroutine[Any, Any, State]]
Use = Callable[[Step, Program, NullDevice], Coroutine[Any, Any, None]]


def decoding(
    name: str, use: Callable[[Step, Program, NullDevice], Coroutine[Any, Any, None]], disable: str = ""
) -> None:
    """`use` gets a function that runs one step: from a state, new rows; it gives the state after them."""
    device, cached = NullDevice(), CACHED[name]

    async def main() -> None:
        options = SessionOptions()
        options.add_session_config_entry("pyruntime.disable", disable)
        session = await InferenceSession.create(cached.model, options)
        assert session._program is not None
        try:
            await use(_stepper(session, cached), session._program, device)
        finally:
            session.release()

    run_on(device, main)


def _stepper(session: InferenceSession, cached: Cached) -> Step:
    names = [o.name for o in session.get_outputs()]

    async def step(state: State, new: int) -> State:
        caches: dict[str, Any] = dict(state) or dict(cached.empty(1))
        past = len_of(next(iter(state.values()))) if state else 0
        keep: dict[str, Any] = dict.fromkeys(cached.caches)
        made = await session._run_values({**cached.feeds(1, new, past), **caches}, names, None, keep)
        return {cached.caches[n]: v for n, v in made.items() if n in cached.caches}

    return step


def len_of(cache: DeviceTensor) -> int:
    """Rows that count: [1, heads, rows, size] or [heads, rows, size]."""
    return cache.type.shape[-2]


def copies(device: NullDevice) -> int:
    return sum(name == "copy" for name, _ in device.calls)


def buffers(state: State) -> dict[str, int]:
    return {name: cache.buffer for name, cache in state.items()}


IN_PLACE = [
    "concat",
    "group_query",
    "group_query_8",
    "group_query_4",
    "group_query_scalar",
    "group_query_product",
    "multi_head_product",
    "multi_head",
    "multi_head_causal",
    "attention",
]


@pytest.mark.parametrize("name", IN_PLACE)
def test_cache__fed_back__stays_where_it_is_until_its_capacity_is_used(name: str) -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state = await step({}, 7)
        state = await step(state, 1)
        assert all(t.reserved == (2, 256) and len_of(t) == 8 for t in state.values())
        places, before = buffers(state), copies(device)
        while len_of(next(iter(state.values()))) < 256:
            state = await step(state, 1)
            assert buffers(state) == places
        assert copies(device) == before
        state = await step(state, 1)
        assert all(t.reserved == (2, 512) for t in state.values()) and not {*buffers(state).values()} & {
            *places.values()
        }
        assert copies(device) > before

    decoding(name, use)


@pytest.mark.parametrize(("disable", "merges"), [("", 0), ("merging_skinny", 1)])
@pytest.mark.parametrize("name", ["group_query_product", "multi_head_product"])
def test_product_after_attention__of_a_token__reduces_partial_results(name: str, disable: str, merges: int) -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state = await step(await step({}, 7), 1)
        assert buffers(await step(state, 1)) == buffers(state)
        names = [command.kernel for command in program.roots[-1].executable.plan.commands]
        assert sum("attention_merge" in name for name in names) == merges
        assert sum("skinny_merged" in name for name in names) == 1 - merges

    decoding(name, use, disable)


@pytest.mark.parametrize("name", ["concat", "group_query"])
def test_cache__older_one_fed_again__is_copied_while_a_longer_one_lives(name: str) -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        first = await step(await step({}, 7), 1)
        second = await step(first, 1)
        assert buffers(second) == buffers(first)
        branch = await step(first, 1)
        assert not {*buffers(branch).values()} & {*buffers(first).values()}
        assert buffers(await step(second, 1)) == buffers(second), "the branch took nothing from it"
        gone = buffers(second)
        del second
        gc.collect()
        assert buffers(await step(first, 1)) == gone, "no tensor has the rows after it any more"

    decoding(name, use)


def test_cache__handed_on_as_it_is__shares_its_memory() -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state = await step(await step({}, 7), 1)
        after = await step(state, 1)
        assert after["cross"].buffer == state["cross"].buffer and after["cross"].shared
        assert after["past"].buffer == state["past"].buffer

    decoding("merged", use)


def test_cache__rows_that_share_words__is_copied_as_ever() -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state = await step(await step({}, 7), 1)
        assert (await step(state, 1))["past"].reserved is None
        assert not [k for stage in program.roots for k in stage.executable.plan.kept]

    decoding("float16_odd", use)


def test_switch__off__leaves_caches_without_reserved_rows() -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state = await step(await step({}, 7), 1)
        assert all(t.reserved is None for t in (await step(state, 1)).values())

    decoding("concat", use, "grow_in_place")


KIND = TensorType(DType.FLOAT, (2, 3, 4))


def _grown(device: NullDevice) -> tuple[DeviceTensor, DeviceTensor]:
    """A tensor of three rows and one of four in the same memory, which has eight rows reserved."""

    async def make() -> tuple[DeviceTensor, DeviceTensor]:
        first = await DeviceTensor.upload(HostTensor.of(np.ones(KIND.shape, np.float32), DType.FLOAT), device)
        move = first.grown(KIND, 1, 8)
        assert isinstance(move, Move)
        (three,) = await DeviceTensor.moved([move])
        four = three.grown(TensorType(DType.FLOAT, (2, 4, 4)), 1, 8)
        assert isinstance(four, DeviceTensor)
        return three, four

    return asyncio.run(make())


def test_tensor__grown__copies_rows_once_and_shares_memory_then() -> None:
    device = NullDevice()
    three, four = _grown(device)
    assert copies(device) == 2 and three.buffer == four.buffer and three.shared and four.reserved == (1, 8)


class _Counting(NullDevice):
    """Counts requests for memory and submits of copies."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[int] = []
        self.submits: list[int] = []

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        self.requests.append(len(sizes))
        return await super().allocate(sizes, label)

    def copy(self, pairs: Sequence[tuple[Slice, Slice]]) -> None:
        self.submits.append(len(pairs))
        super().copy(pairs)


def test_tensors__moved_together__one_request_for_memory_and_one_submit() -> None:
    device = _Counting()

    async def move() -> list[DeviceTensor]:
        value = HostTensor.of(np.ones(KIND.shape, np.float32), DType.FLOAT)
        tensors = [await DeviceTensor.upload(value, device) for _ in range(5)]
        tensors[0].counted = 2
        device.requests.clear()
        return await DeviceTensor.moved([Move(t, KIND, (1, 8) if n % 2 else None) for n, t in enumerate(tensors)])

    made = asyncio.run(move())
    assert device.requests == [5] and device.submits == [3 + 2 * KIND.shape[0]]
    assert [t.reserved for t in made] == [None, (1, 8), None, (1, 8), None] and len({t.buffer for t in made}) == 5
    assert [t.counted for t in made] == [2, None, None, None, None]


def test_tensor__materialized__has_separate_memory_without_reserved_rows() -> None:
    device = NullDevice()
    three, four = _grown(device)
    asyncio.run(three.materialize())
    assert three.reserved is None and not three.shared and three.buffer != four.buffer
    assert four.reserved == (1, 8) and not four.shared


def test_tensor__written_with_reserved_rows__is_written_block_by_block() -> None:
    device = NullDevice()
    three, four = _grown(device)
    del three
    four.write(bytes(4 * 32))
    (first, second) = [what for name, what in device.calls if name == "write"][-2:]
    assert [(s.offset, s.nbytes) for s in (first, second)] == [(0, 64), (128, 64)]  # type: ignore[attr-defined]


def test_tensor__exchanged__takes_its_reserved_rows_along() -> None:
    device = NullDevice()
    three, four = _grown(device)
    asyncio.run(four.materialize())
    other = asyncio.run(three.clone())
    places = three.buffer, other.buffer
    three.exchange(other)
    assert (other.buffer, three.buffer) == places and three.reserved is None and other.reserved == (1, 8)
