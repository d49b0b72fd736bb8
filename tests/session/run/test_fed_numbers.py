"""Numbers that are fed and that shapes follow from: sizes of a plan that serves them all (null device, and NumPy)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pyruntime.device.null import NullDevice
from pyruntime.session.run.program import Program
from tests.cache_models import CACHED
from tests.session.run.test_dynamic_sizes import Counting, on
from tests.session.run.test_growing_caches import State, Step, decoding


def model(nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, int]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "numbers",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def counting_up() -> bytes:
    """limit: int64 -> y = 2 * [0, limit)."""
    nodes = [
        helper.make_node("Constant", [], ["zero"], value_int=0),
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("Range", ["zero", "limit", "one"], ["r"]),
        helper.make_node("Add", ["r", "r"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    return model(nodes, {"limit": (TensorProto.INT64, [])}, {"y": TensorProto.FLOAT})


def test_decoding__with_the_length_as_a_number__has_few_plans_and_makes_nothing() -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state: State = await step({}, 7)
        plans: dict[int, Any] = {}
        pipelines, allocated = [], []
        for _ in range(300):
            state = await step(state, 1)
            plans |= {id(stage): stage for stage in program.roots}
            pipelines.append(device.ledger.pipelines)
            allocated.append(sum(name == "allocate" for name, _ in device.calls))
        assert len(plans) <= 6
        assert pipelines[3] == pipelines[-1] and allocated[5] == allocated[240] and allocated[260] == allocated[-1]
        assert not program.dynamic_dimensions.fixed

    decoding("group_query_scalar", use)


def test_replay__of_a_plan_with_a_fed_number__is_found_for_other_numbers() -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        state: State = await step({}, 7)
        for _ in range(4):
            state = await step(state, 1)
        cached = CACHED["group_query_scalar"]
        past = next(iter(state.values())).type.shape[2]
        stage = program.roots[-1]
        assert stage.sizes is not None and list(stage.sizes.values) == ["total"] and not stage.compiled.guards.read
        sources = {n: (lambda v=v: v) for n, v in cached.feeds(1, 1, past).items()}
        row_capacities = {n: t.reserved[1] for n, t in state.items() if t.reserved}
        shapes = dict(stage.signature[0])
        types = {n: shapes[n].with_shape(*np.shape(sources[n]())) for n in sources}  # type: ignore[union-attr]
        signature = tuple({**shapes, **types, **{n: t.type for n, t in state.items()}}.items()), *stage.signature[1:]
        assert stage.fits(signature, row_capacities, sources)
        assert stage.fits(signature, row_capacities, {**sources, "total": lambda: np.array(past, np.int32)}) is None
        assert stage.fits(signature, row_capacities, {}) is None

    decoding("group_query_scalar", use)


def test_range__of_many_limits__has_few_plans() -> None:
    device = Counting()

    async def use(session: Any, program: Program) -> None:
        plans: dict[int, Any] = {}
        for limit in (3, 9, 5, *range(2, 120, 3), 0, 1, 40):
            (y,) = await session.run_async(None, {"limit": np.array(limit)})
            assert y.shape == (limit,)
            plans |= {id(stage): stage for stage in program.roots}
        assert len(plans) <= 6

    on(device, counting_up(), use)


@pytest.mark.parametrize("shape", [[], [1]])
def test_value__that_only_counts_as_data__is_no_size(shape: list[int]) -> None:
    """Timesteps and the like differ in every run, and no plan looks at them."""
    node = helper.make_node("Add", ["x", "t"], ["y"])
    made = model([node], {"x": (TensorProto.INT64, ["n"]), "t": (TensorProto.INT64, shape)}, {"y": TensorProto.INT64})

    async def use(session: Any, program: Program) -> None:
        for t in (5, 900, 31, 7):
            await session.run_async(None, {"x": np.arange(4), "t": np.full(shape, t)})
        assert len(program.roots) == 1 and not program.roots[0].sizes

    on(Counting(), made, use)


def test_number__that_a_plan_needs_itself__is_looked_at_as_ever() -> None:
    """Which branch is taken, and which axis, are no sizes."""
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["y"]),
    ]
    made = model(
        nodes,
        {"x": (TensorProto.FLOAT, ["a", "b", "c", "d"]), "axis": (TensorProto.INT32, [])},
        {"y": TensorProto.FLOAT},
    )

    async def use(session: Any, program: Program) -> None:
        for axis in (2, 3, 2, 1, 3, 0):
            (y,) = await session.run_async(
                None, {"x": np.ones((2, 3, 4, 5), np.float32), "axis": np.array(axis, np.int32)}
            )
            assert y.shape == (2, 3, 4, 5)
        assert len(program.roots) <= 5

    on(Counting(), made, use)
