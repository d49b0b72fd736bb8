"""Plans of the nine light models: activations near the lower bound, weights never in Python's memory."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from e2e.conformance.cases import Case, light_cases
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program, Stage

TARGET = Target(Limits(binding_bytes=1 << 30, buffer_bytes=1 << 30))
"""A device that takes the largest weight, 392 MB."""

LIGHT = {case.name: case for case in light_cases()}


def planned(case: Case, device: NullDevice) -> Stage:
    """The one stage of the model."""
    graph = import_model(read_model(case.model)).graph
    (given,) = case.data_sets[0][0].values()
    types = {v.name: TensorType(DType.FLOAT, given["carrier"].shape) for v in graph.inputs}
    stage = asyncio.run(Program(graph, device).prepare(types, [v.name for v in graph.outputs]))
    assert stage is not None
    return stage


@pytest.mark.parametrize("name", LIGHT)
def test_light_model__plan__peak_is_near_the_lower_bound(name: str) -> None:
    stage = planned(LIGHT[name], NullDevice(TARGET))
    memory = stage.executable.plan.memory
    assert stage.boundary is None and len(stage.executable.plan.steps) == 1
    assert {a.placement for a in stage.executable.plan.assignments} <= {"gpu", "none"}
    assert memory.peak <= 1.05 * memory.lower_bound, f"{memory.peak:,} of {memory.lower_bound:,}"


def test_light_model__weights_made_by_operators__stay_out_of_pythons_memory() -> None:
    device = NullDevice(TARGET)
    tracemalloc.start()
    try:
        planned(LIGHT["light_vgg19"], device)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(device.ledger.live.values()) > 500 << 20, "the weights are on the device"
    assert peak < 16 << 20, f"planning took {peak:,} bytes"
