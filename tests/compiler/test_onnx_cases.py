"""Every plan that ONNX's own cases lead to is proved, for a GPU and for SwiftShader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

import pyruntime
from e2e.conformance import runner
from e2e.conformance.cases import MODEL_SETS, Case, light_cases, model_cases, node_cases
from pyruntime.compiler.verify import PlanError
from pyruntime.device.null import NullDevice
from pyruntime.kernels import Target
from tests.compiler.test_forms import TARGETS
from tests.session.doubles import on_device

SETS = {
    "node": (node_cases, 1500),
    "models": (lambda: (case for kind in MODEL_SETS for case in model_cases(kind)), 110),
    "light": (light_cases, 9),
}
"""The cases, and how many of them at least have dispatches."""


async def dispatches(case: Case, target: Target) -> int:
    """Runs the case on a device that answers zeros; how many dispatches were recorded."""
    device = NullDevice(target)
    with on_device(device):
        session = await pyruntime.InferenceSession.create(case.model)
        for inputs, _ in case.data_sets:
            feed = {name: runner._fit(session, name, runner._fed(wire)) for name, wire in inputs.items()}
            await session._run_values(feed, [o.name for o in session.get_outputs()], None)
    return sum(map(len, device.recordings.values()))


def told(cases: Iterator[Case], target: Target) -> tuple[int, list[str]]:
    """How many of the cases have dispatches, and what the verifier says of them."""
    count, wrong = 0, list[str]()
    for case in cases:
        try:
            # Where the host computes with what the GPU did not, zeros may be out of any range.
            with (
                suppress(pyruntime.OrtError, ArithmeticError, LookupError, ValueError, TypeError),
                np.errstate(all="ignore"),
            ):
                count += bool(asyncio.run(dispatches(case, target)))
        except PlanError as error:
            wrong.append(f"{case.name}: {error}")
    return count, wrong


@pytest.mark.parametrize("target", ["gpu", "software"])
@pytest.mark.parametrize("name", SETS)
def test_plans__of_onnx_cases__destroy_nothing_that_is_still_read(name: str, target: str) -> None:
    cases, least = SETS[name]
    count, wrong = told(cases(), TARGETS[target])
    assert not wrong, "\n".join(wrong)
    assert count >= least
