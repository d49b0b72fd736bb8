"""Planning before the first run: kept where it does not hang on values, left to the run where it does."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from onnx import parser

from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.ir import DType, HostTensor, TensorType
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program

TEXT = '<ir_version: 9, opset_import: ["" : 21]> main (float[3, 4] x, {KIND} axis) => (float[3, 4] y) {{ {NODE} }}'
X = TensorType(DType.FLOAT, (3, 4))
ONES = HostTensor.of(np.ones((3, 4), np.float32), DType.FLOAT)


def program(kind: str, node: str, refuse_host: bool = True) -> Program:
    model = parser.parse_model(TEXT.format(KIND=kind, NODE=node))
    return Program(import_model(read_model(model.SerializeToString())).graph, NullDevice(), refuse_host)


def test_prepare__kernel_hangs_on_a_fed_value__is_left_to_the_run() -> None:
    made = program("int64[1]", "y = CumSum (x, axis)")
    types = {"x": X, "axis": TensorType(DType.INT64, (1,))}
    assert asyncio.run(made.prepare(types, ["y"])) is None
    assert made.roots == []
    feeds = {"x": ONES, "axis": HostTensor.of(np.array([1], np.int64), DType.INT64)}
    asyncio.run(made.run(feeds, ["y"]))
    (stage,) = made.roots
    assert [a.placement for a in stage.executable.plan.assignments] == ["gpu"]


def test_prepare__nothing_hangs_on_values__is_what_the_run_uses() -> None:
    made = program("float[4]", "y = Add (x, axis)")
    stage = asyncio.run(made.prepare({"x": X, "axis": TensorType(DType.FLOAT, (4,))}, ["y"]))
    feeds = {"x": ONES, "axis": HostTensor.of(np.ones(4, np.float32), DType.FLOAT)}
    asyncio.run(made.run(feeds, ["y"]))
    assert made.roots == [stage]


def test_prepare__shape_is_fed__is_left_to_the_run_which_needs_one_stage() -> None:
    made = program("int64[2]", "t = Reshape (x, axis) y = Exp (t)")
    assert asyncio.run(made.prepare({"x": X, "axis": TensorType(DType.INT64, (2,))}, ["y"])) is None
    asyncio.run(made.run({"x": ONES, "axis": HostTensor.of(np.array([3, 4], np.int64), DType.INT64)}, ["y"]))
    (stage,) = made.roots
    assert stage.boundary is None


@pytest.mark.parametrize(
    ("count", "node"), [(1, "y = CumSum (x, axis)"), (2, "t = Reshape (x, axis) y = Exp (t)")], ids=["node", "shape"]
)
def test_run__every_input_is_on_the_device__reads_those_that_planning_waits_for(count: int, node: str) -> None:
    made = program(f"int64[{count}]", node, refuse_host=False)

    async def run() -> None:
        axis = HostTensor.of(np.zeros(count, np.int64), DType.INT64)
        feeds = {n: await DeviceTensor.upload(v, made.device) for n, v in {"x": ONES, "axis": axis}.items()}
        await made.run(feeds, ["y"])

    asyncio.run(run())
    assert len(made.roots) == 1
