"""Scratch tensors and constants of lowerings: each call of `scratch` and `constant` gives another one."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pyruntime
from pyruntime.compiler.verify import PlanError
from pyruntime.device.null import NullDevice
from pyruntime.ir import Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Role, Target, constant, inp, scratch
from pyruntime.kernels.ir import dispatch
from pyruntime.kernels.ir.dispatch import numbered
from pyruntime.kernels.legalize import legalize
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.base import Op
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.registry import newest
from pyruntime.session.run.program import Program
from tests.compiler.test_two_passes import model
from tests.harness import typed
from tests.kernels.variant_cases import CASES, lowered, target_of

OWN = {Role.SCRATCH, Role.CONSTANT}
PACKAGE = Path(pyruntime.__file__).parent


def own(dispatches: Iterable[Dispatch]) -> set[tuple[Role, int]]:
    """What a lowering made for itself."""
    return {(o.role, o.index) for d in dispatches for o in d.operands if o.role in OWN}


def test_scratch__every_call__is_another_tensor() -> None:
    tensors = {scratch(DType.FLOAT, 4) for _ in range(100)}
    assert len(tensors) == 100
    data = Constant.from_array(np.zeros(3, np.float32))
    assert constant(data) != constant(data)


def test_scratch__in_the_package__is_made_by_one_function_alone() -> None:
    """A number given by hand is one that another lowering may give, too."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Attribute)):
                continue
            role = call.args[0]
            is_role = isinstance(role.value, ast.Name) and role.value.id == "Role"
            if is_role and role.attr in ("SCRATCH", "CONSTANT") and ast.unparse(call.func).endswith("Operand"):
                found.append(path.relative_to(PACKAGE).as_posix())
    assert found == ["kernels/ir/dispatch.py"] * 2


@pytest.mark.parametrize("name", CASES)
def test_lowering__twice__shares_nothing_and_is_numbered_alike(name: str) -> None:
    """What an operator makes inside another one is never what that one made."""
    case = CASES[name]
    target, types = target_of(Target(), case), [typed(x) for x in case.inputs()]
    first, second = (lowered(target, case, types) for _ in range(2))
    assert not own(first) & own(second)
    assert legalize(target, first) == legalize(target, second)
    indices = [o.index for d in legalize(target, first) for o in d.operands if o.role is Role.SCRATCH]
    assert list(dict.fromkeys(indices)) == list(range(len(set(indices))))


def test_numbered__shared_tensors__stay_shared_and_inputs_stay() -> None:
    a, b = scratch(DType.FLOAT, 4), scratch(DType.INT32, 4)
    view = Operand(a.role, a.index, a.type.with_shape(2, 2))
    kernel = newest("Relu").lower(Target(), TensorType(DType.FLOAT, (4,)))[0]
    steps = [replace(kernel, operands=o) for o in ((inp(3, b.type), b), (b, a), (view, inp(0, a.type)))]
    made = numbered(steps)
    assert [[(o.role, o.index) for o in d.operands] for d in made] == [
        [(Role.INPUT, 3), (Role.SCRATCH, 0)],
        [(Role.SCRATCH, 0), (Role.SCRATCH, 1)],
        [(Role.SCRATCH, 1), (Role.INPUT, 0)],
    ]
    assert made[2].operands[0].type.shape == (2, 2)


def nested() -> tuple[Op, list[TensorType]]:
    """A product split over workgroups, its sums in scratch memory, and then a chain that no kernel takes."""
    neg: Any = newest("Neg")
    chain = FusedElementwise(steps=(Step(neg, (0,)),))
    types = [TensorType(DType.INT64, s) for s in ((64, 2048), (2048, 256), (256,))]
    return WithEpilogue(base=newest("Gemm"), count=3, chain=chain), types


def test_lowering__inside_another__has_scratch_of_its_own() -> None:
    op, types = nested()
    dispatches = legalize(Target(), op.lower(Target(), *types))
    written = [o.index for d in dispatches for o in d.writes if o.role is Role.SCRATCH]
    assert len(written) == len(set(written)) == 2
    for d in dispatches:
        read = {o.index for o in d.reads if o.role is Role.SCRATCH}
        assert not read & {o.index for o in d.writes if o.role is Role.SCRATCH}


@pytest.mark.parametrize("size", [50000, 262147])
def test_verify__scratch_numbered_by_hand__is_noticed(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two dispatches of TopK that take the same number: what one keeps, the other overwrites."""
    monkeypatch.setattr(dispatch, "_fresh", iter(lambda: 0, None))
    data, outputs = model("TopK", (1, size))
    program = Program(import_model(read_model(data)).graph, NullDevice(Target()))
    with pytest.raises(PlanError, match="while other invocations read it"):
        asyncio.run(program.prepare({"x": TensorType(DType.FLOAT, (1, size))}, outputs))


def test_plan__of_an_input_named_like_scratch__keeps_them_apart() -> None:
    """Names of a model are any strings: y = normalized(x) + x, x with the name of the first scratch tensor."""
    x = "0:scratch0"
    nodes = [
        helper.make_node("MeanVarianceNormalization", [x], ["h"], axes=[0, 1]),
        helper.make_node("Add", ["h", x], ["y"]),
    ]
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 50000]) for n in (x, "y")]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:])
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = Program(import_model(read_model(whole.SerializeToString())).graph, NullDevice(Target()))
    stage = asyncio.run(program.prepare({x: TensorType(DType.FLOAT, (1, 50000))}, ["y"]))
    assert stage is not None
    accesses = [a for c in stage.executable.plan.commands for a in c.accesses]
    assert any(a.write and a.value.endswith(x) for a in accesses), "scratch has another name"
    assert not any(a.write and a.value == x for a in accesses)
