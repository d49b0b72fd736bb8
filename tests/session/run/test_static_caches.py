"""Caches that do not grow, written over where they are: what is copied, what is shared (null device)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest
from onnx import TensorProto, helper

from pyruntime.device.null import NullDevice
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.run.program import Program
from tests.cache_models import STATIC, Cached
from tests.session.doubles import on_device, run_on
from tests.session.run.test_growing_caches import buffers, copies

State: TypeAlias = Mapping[str, Any]
Step: TypeAlias = Callable[[State, int, int], Coroutine[Any, Any, State]]
Use: TypeAlias = Callable[[Step, Program, NullDevice], Coroutine[Any, Any, None]]


def decoding(cached: Cached, use: Use, disable: str = "") -> None:
    """`use` gets a function that runs one step: from a state and its rows that count, new rows; it gives the next."""
    device = NullDevice()

    async def main() -> None:
        options = SessionOptions()
        options.add_session_config_entry("pyruntime.disable", disable)
        session = await InferenceSession.create(cached.model, options)
        program = session._program
        assert program is not None
        names = [o.name for o in session.get_outputs()]

        async def step(state: State, past: int, new: int) -> State:
            caches = dict(state) or dict(cached.empty(1))
            keep: dict[str, Any] = dict.fromkeys(cached.caches)
            made = await session._run_values({**cached.feeds(1, new, past), **caches}, names, None, keep)
            return {cached.caches[n]: v for n, v in made.items() if n in cached.caches}

        try:
            await use(step, program, device)
        finally:
            session.release()

    run_on(device, main)


def allocations(device: NullDevice) -> int:
    return sum(name == "allocate" for name, _ in device.calls)


@pytest.mark.parametrize("name", STATIC)
def test_cache__fed_back__stays_where_it_is_and_nothing_is_copied(name: str) -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state = await step(await step({}, 0, 7), 7, 1)
        state = await step(state, 8, 1)
        places, copied = buffers(state), copies(device)
        for past in range(9, 62):
            state = await step(state, past, 1)
            assert buffers(state) == places and all(t.counted == past + 1 for t in state.values())
            if past == 36:
                plans, made, pipelines = len(program.roots), allocations(device), device.ledger.pipelines
        assert copies(device) == copied and len(program.roots) <= 5
        assert (len(program.roots), allocations(device), device.ledger.pipelines) == (plans, made, pipelines)

    decoding(STATIC[name], use)


@pytest.mark.parametrize("name", ["scatter", "group_query"])
def test_cache__older_one_fed_again__is_copied_while_a_newer_one_lives(name: str) -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        first = await step(await step({}, 0, 7), 7, 1)
        second = await step(first, 8, 1)
        assert buffers(second) == buffers(first), "row 8 counts for no tensor"
        branch = await step(first, 8, 1)
        assert not {*buffers(branch).values()} & {*buffers(first).values()}
        assert buffers(await step(second, 9, 1)) == buffers(second), "the branch took nothing from it"
        del second
        gc.collect()
        gone = buffers(first)
        assert buffers(await step(first, 8, 1)) == gone, "no tensor has the rows after it any more"

    decoding(STATIC[name], use)


@pytest.mark.parametrize("name", ["scatter", "group_query"])
def test_cache__written_over_where_rows_count__is_copied(name: str) -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state = await step(await step({}, 0, 7), 7, 1)
        again = await step(state, 5, 1)
        assert not {*buffers(again).values()} & {*buffers(state).values()}
        assert all(t.counted == 6 for t in again.values())

    decoding(STATIC[name], use)


def test_switch__off__copies_caches_as_ever() -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state = await step(await step({}, 0, 7), 7, 1)
        after = await step(state, 8, 1)
        assert not {*buffers(after).values()} & {*buffers(state).values()}

    decoding(STATIC["scatter"], use, "grow_in_place")


def _kept(nodes: list[Any], outputs: list[str]) -> int:
    """States that are left where they are, of a model of TensorScatter and what else reads its tensors."""
    shape = [2, 4, 16, 8]
    inputs = {"past": (TensorProto.FLOAT, shape), "x": (TensorProto.FLOAT, [2, 4, 1, 8])}
    inputs |= {"write": (TensorProto.INT64, [2]), "counted": (TensorProto.INT64, [2])}
    graph = helper.make_graph(
        nodes,
        "kept",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10).SerializeToString()
    device, found = NullDevice(), []

    async def main() -> None:
        session = await InferenceSession.create(bytes(model))
        assert session._program is not None
        state: Any = np.zeros(shape, np.float32)
        for at in range(3):
            feeds = {"x": np.ones((2, 4, 1, 8), np.float32), "write": np.full(2, at), "counted": np.full(2, at + 1)}
            made = await session._run_values({"past": state, **feeds}, outputs, None, {"present": None})
            state = made["present"]
        found.append(max(len(s.executable.plan.kept) for s in session._program.roots))
        session.release()

    with on_device(device):
        asyncio.run(main())
    return found[0]


SCATTER = helper.make_node("TensorScatter", ["past", "x", "write"], ["present"], axis=2)
READ = helper.make_node("Attention", ["x", "present", "present", "", "", "", "counted"], ["y"])


def test_scatter__read_by_what_says_how_many_rows_count__is_in_place() -> None:
    assert _kept([SCATTER, READ], ["y", "present"]) == 1


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([SCATTER], id="no input says which rows count"),
        pytest.param([SCATTER, READ, helper.make_node("Neg", ["present"], ["z"])], id="another reader sees all rows"),
        pytest.param([SCATTER, READ, helper.make_node("Neg", ["past"], ["z"])], id="what was there is read, too"),
        pytest.param(
            [helper.make_node("TensorScatter", ["past", "x", "write"], ["present"], axis=2, mode="circular"), READ],
            id="it writes over rows that count",
        ),
    ],
)
def test_scatter__of_other_use__is_copied(nodes: list[Any]) -> None:
    outputs = ["present", *(["z"] if any("z" in n.output for n in nodes) else [])]
    assert _kept(nodes, [*outputs, *(["y"] if any("y" in n.output for n in nodes) else [])]) == 0
