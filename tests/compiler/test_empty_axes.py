"""Operators on inputs of which an axis has no elements: planned for a GPU, scratch memory without elements too."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.compiler.build import build_plan
from pyruntime.compiler.verify import verify
from pyruntime.ir import Constant, Node, TensorType
from tests.compiler.graphs import typed_graph
from tests.compiler.test_forms import TARGETS
from tests.contrib.case import needed_values
from tests.harness import typed
from tests.ops.empty_axes import Emptied, emptied_cases


def _where(case: Emptied, target: str) -> str:
    """Where the case's node runs in a plan of its own, of which the verifier has nothing to say."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    types = {n: t for n, x in zip(names, case.inputs, strict=True) if n and (t := typed(x))}
    needed = needed_values(case.op, {n: TensorType(t.dtype, t.shape, t.source, n) for n, t in types.items()}, names)
    constants = {n: Constant.from_array(np.asarray(types[n].value()), types[n].dtype) for n in needed}
    outputs = [f"y{i}" if case.op.wants(i) else "" for i in range(len(case.wanted))]
    node = Node(case.op, tuple(names), tuple(outputs), "node")
    fed = {n: TensorType(t.dtype, t.shape) for n, t in types.items() if n not in needed}
    graph = typed_graph([node], fed, [n for n in outputs if n], constants)
    plan = build_plan(graph, TARGETS[target])
    verify(plan)
    return plan.assignments[0].placement


@pytest.mark.parametrize("target", ["gpu", "software"])
def test_plan__of_every_operator_with_an_empty_axis__is_made_and_proved(target: str) -> None:
    seen, scratch = 0, set[str]()
    for case in emptied_cases(TARGETS[target]):
        seen += _where(case, target) == "gpu"
        if case.has_scratch:
            scratch.add(case.op.op_type)
    assert seen >= 678
    assert scratch >= {"Attention", "GRU", "GroupQueryAttention", "LSTM", "QLinearMatMul"}
