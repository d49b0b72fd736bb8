"""If while planning: the branch taken joins the graph, with its constants and what branches inside it capture."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from onnx import parser

from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, HostTensor, TensorType
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program, Stage

NESTED = """
<ir_version: 9, opset_import: ["" : 21]>
main (float[8] x) => (float[8] y)
<bool outer = {OUTER}, bool inner = {INNER}>
{
    y = If (outer) <
        then_branch = g1 () => (float[8] a)
        <float[8] table = {1, 2, 3, 4, 5, 6, 7, 8}>
        {
            mine = Mul (x, table)
            a = If (inner) <
                then_branch = g2 () => (float[8] b) { b = Exp (mine) },
                else_branch = g3 () => (float[8] c) { c = Softmax (mine) }
            >
        },
        else_branch = g4 () => (float[8] d) { d = Abs (x) }
    >
}
"""


def _host(array: np.ndarray[Any, Any]) -> HostTensor:
    return HostTensor(TensorType(DType.from_numpy(array.dtype), array.shape), None, array)


def planned(outer: int, inner: int) -> Stage:
    text = NESTED.replace("OUTER", str(outer)).replace("INNER", str(inner))
    graph = import_model(read_model(parser.parse_model(text).SerializeToString())).graph
    stage = asyncio.run(Program(graph, NullDevice()).prepare({"x": TensorType(DType.FLOAT, (8,))}, ["y"]))
    assert stage is not None
    return stage


@pytest.mark.parametrize(
    ("outer", "inner", "kernels"), [(1, 1, ["Mul", "Exp"]), (1, 0, ["Mul", "Softmax"]), (0, 0, ["Abs"])]
)
def test_if__known_conditions__plans_the_branches_taken(outer: int, inner: int, kernels: list[str]) -> None:
    stage = planned(outer, inner)
    plan = stage.executable.plan
    types = [t for a in plan.assignments if a.placement == "gpu" for t in a.op_type.split(" + ")]
    assert stage.boundary is None and len(plan.steps) == 1
    assert [t for t in types if t != "Identity"] == kernels
    assert bool(plan.constants) == bool(outer), "the table of the branch taken is a constant of the plan"


CHOSEN = """
<ir_version: 9, opset_import: ["" : 21]>
main (float[8] x, bool positive) => (float[8] y)
{
    y = If (positive) <
        then_branch = g1 () => (float[8] a) { a = Exp (x) },
        else_branch = g2 () => (float[8] b) { b = Abs (x) }
    >
}
"""


def test_if__condition_fed__is_a_plan_for_each_value_and_none_that_runs_whatever_comes() -> None:
    graph = import_model(read_model(parser.parse_model(CHOSEN).SerializeToString())).graph
    program = Program(graph, NullDevice())
    x = _host(np.ones(8, np.float32))
    for positive in (True, False, True):
        feeds = {"x": x, "positive": _host(np.array(positive))}
        asyncio.run(program.run(feeds, ["y"]))
        assert program.replayable(feeds, ["y"], ()) is None
    assert [sorted(stage.compiled.guards.read) for stage in program.roots] == [["positive"]] * 2
    assert program.replayable({"x": x}, ["y"], ()) is None, "nothing like this has run"
