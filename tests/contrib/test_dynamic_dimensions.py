"""Random com.microsoft nodes are planned with every dimension open: a Defect, or another error, is a fault."""

from __future__ import annotations

from contextlib import suppress

import onnx
import pytest
from onnx import helper

from pyruntime.compiler.compile import Compiler, Request
from pyruntime.ir import HostTensor, Sizes, TensorType
from pyruntime.kernels import Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.planning import NOT_PLANNABLE
from tests.contrib.case import Case, draws
from tests.contrib.samples import each
from tests.contrib.test_cases import SEED
from tests.fuzz.plans import targets
from tests.harness import carrier
from tests.oracle import node_of

NUMBERS = range(5)
"""Samples of an operator."""


def plan(case: Case, target: Target) -> None:
    """Plan a node without text for inputs whose dimensions of 2 and more may be up to four times as long."""
    if any(x is not None and x.dtype == object for x in case.inputs):
        return
    sizes = Sizes()
    arrived: dict[str, TensorType] = {}
    values: dict[str, HostTensor] = {}
    for i, x in enumerate(case.inputs):
        if x is not None:
            dtype, value = carrier(x)
            name = f"x{i}"
            shape = [sizes.add(f"{name}[{d}]", n, 2, 4 * n) if n > 1 else n for d, n in enumerate(value.shape)]
            arrived[name], values[name] = TensorType(dtype, tuple(shape)), HostTensor.of(value, dtype)
    node = node_of(case.op_type, case.inputs, case.outputs, case.domain, **case.attributes)
    declared = [helper.make_tensor_value_info(n, t.dtype.value[0], None) for n, t in arrived.items()]
    graph = helper.make_graph([node], "g", declared, [onnx.ValueInfoProto(name=name) for name in node.output])
    imports = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    imported = import_model(read_model(model.SerializeToString())).graph
    request = Request(arrived, [v.name for v in imported.outputs], values=values, sizes=sizes)
    with suppress(*NOT_PLANNABLE):
        Compiler(imported, target).compile(request)


@pytest.mark.parametrize("op_type", draws())
def test_samples__with_open_dimensions__can_be_planned(op_type: str) -> None:
    for target in targets(0)[:2]:
        each(op_type, SEED, NUMBERS, lambda case, _: plan(case, target))  # noqa: B023
