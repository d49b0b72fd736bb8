"""The runner's own check: a model whose runs differ by less than any tolerance fails."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from e2e.conformance.cases import Case, wire
from e2e.conformance.suites import install
from e2e.harness.python import BrowserPython

RACE = """
    import conformance_runner
    from pyruntime import InferenceSession
    from pyruntime.ir import HostTensor

    runs = 0
    real = InferenceSession._run_values

    async def racing(self, *args):
        global runs
        values = await real(self, *args)
        runs += 1
        def moved(value):
            return HostTensor.of(value.array() + runs * 1e-6, value.type.dtype) if differ else value
        return {name: moved(value) for name, value in values.items()}

    InferenceSession._run_values = racing
    try:
        outcome = await conformance_runner.check(case)
    finally:
        InferenceSession._run_values = real
    [outcome["wrong"], runs]
"""


def case() -> dict[str, object]:
    """y = x + x."""
    x = np.array([0.25, 0.5], np.float32)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Case("double", model.SerializeToString(), [({"x": wire(x)}, [wire(x + x)])], 1e-3, 1e-5).message()


def test_run__that_equals_the_one_before__passes_and_runs_three_times(python_in_browser: BrowserPython) -> None:
    install(python_in_browser)
    assert python_in_browser(RACE, case=case(), differ=False) == ["", 3]


def test_run__that_differs_from_the_one_before__is_a_failure(python_in_browser: BrowserPython) -> None:
    install(python_in_browser)
    wrong, runs = python_in_browser(RACE, case=case(), differ=True)
    assert wrong == "y: another run on the same input gave other bits" and runs == 3
