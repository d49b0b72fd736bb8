"""What costs choose for convolutions, against what was measured on GPUs (bench/results/tuning)."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import pytest

from bench import shapes
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS, ConvProblem
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.inspect.report import stages_of
from pyruntime.session.run.program import Program

TUNING = Path(__file__).parents[2] / "bench/results/tuning"


def problems(keys: list[str]) -> dict[str, ConvProblem]:
    """By their keys, as plans have them."""
    parts = [part for part in map(shapes.convolution, keys) if part is not None]
    program = Program(import_model(read_model(memoryview(shapes.model(parts)))).graph, NullDevice(shapes.GPU))
    asyncio.run(program.prepare({"x": TensorType(DType.FLOAT, (1,))}, ["y"], strict=True))
    plans = [stage.executable.plan for stage in stages_of(program)]
    noted = [n for plan in plans for a in plan.assignments for n in a.choices]
    return {n.problem.key: n.problem for n in noted if isinstance(n.problem, ConvProblem)}


@pytest.mark.parametrize(("device", "most"), [("h200", 1.06), ("h100", 1.09)])
def test_choose__convolutions_measured_on_gpus__near_the_best(device: str, most: float) -> None:
    """Geometric mean of 80. Single measurements are off by up to a half: times below 0.7 of the cost count as that.

    What was measured are candidates that looked good by the costs of then: some of what is chosen now is not among
    them, and counts as the cheapest of those that are.
    """
    measured = json.loads((TUNING / f"2026-11-23-nvidia-{device}-convolutions.json").read_text())["problems"]
    losses, unknown = [], 0
    for key, problem in problems(list(measured)).items():
        choice = CONVOLUTIONS.rank(problem, shapes.GPU)
        costs = {c.name: c.cost for c in choice.others if c.cost is not None}
        us = {name: max(us, 0.7 * costs[name]) for name, us in measured[key]["us"].items() if name in costs}
        unknown += choice.chosen not in us
        name = choice.chosen if choice.chosen in us else next(c.name for c in choice.others if c.name in us)
        losses.append(us[name] / min(us.values()))
    assert len(losses) == len(measured) == 80
    assert unknown <= 12
    assert math.exp(sum(map(math.log, losses)) / len(losses)) < most
