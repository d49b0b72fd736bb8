"""Random single nodes of com.microsoft, compared with onnxruntime's CPU provider or with a reference in NumPy.

`tests/contrib/families/` has a module for each family of operators; its `DRAWS` maps an operator's name to a function
that draws a case from a random generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array, Constant, DType, Node, TensorType, ValueNeeded
from pyruntime.kernels import Target
from pyruntime.ops.base import Op, Unsupported
from pyruntime.passes import optimize
from tests.compiler.graphs import typed_graph
from tests.harness import carrier, make_op, run_op
from tests.oracle import TOLERANCE, node_of, ort_run
from tests.passes.support import evaluate

__all__ = ["Case", "Draw", "check", "check_graph", "compare", "draws", "expected", "needed_values", "op_of"]


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        inputs: arrays of NumPy's or ml_dtypes' types; None for an optional input that is absent.
        outputs: how many of its outputs are named.
        reference: the outputs from the inputs, where onnxruntime's CPU has no kernel for this case.
        defined: what of an output, given its number, has a defined value, as an array; default: all.
        host: it has no GPU kernel, and says so.
        needed: inputs that planning must know the values of.
        tolerance: (rtol, atol) where those of `tests.oracle.TOLERANCE` do not fit; the case's docstring says why.
    """

    op_type: str
    inputs: list[Array | None]
    outputs: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = "com.microsoft"
    opset: int = 21
    reference: Callable[..., tuple[Array, ...]] | None = None
    defined: Callable[[int, Array], Array] | None = None
    host: bool = False
    tolerance: tuple[float, float] | None = None
    needed: tuple[int, ...] = ()


Draw = Callable[[np.random.Generator], Case]


def draws() -> dict[str, Draw]:
    """Every operator's function that draws a case."""
    found: dict[str, Draw] = {}
    for file in sorted((Path(__file__).parent / "families").glob("[a-z]*.py")):
        found |= import_module(f"tests.contrib.families.{file.stem}").DRAWS
    return found


def expected(case: Case) -> list[Array]:
    """The outputs the case should have."""
    if case.reference is not None:
        return list(case.reference(*case.inputs))
    return ort_run(case.op_type, case.inputs, case.opset, case.outputs, case.domain, **case.attributes)


def check(case: Case, gpu: Any = None) -> None:
    """Compare one node, on NumPy or on `gpu`, with its oracle: types, shapes and values."""
    wanted = expected(case)
    if gpu is not None and case.host:
        with pytest.raises(Unsupported):
            run_op(op_of(case), list(case.inputs), gpu)
        return
    compare(case, run_op(op_of(case), list(case.inputs), gpu), wanted)


def check_graph(case: Case, constant: bool) -> None:
    """Compare the node as planning and passes leave it, on NumPy; `constant`: all inputs but one are weights."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    kinds = {n: (x, *carrier(x)) for n, x in zip(names, case.inputs, strict=True) if x is not None}
    wanted = expected(case)
    needed = needed_values(op_of(case), {n: _known(t, v, n) for n, (_, t, v) in kinds.items()}, names)
    fed = {n: k for n, k in kinds.items() if (not constant or n == "x0") and n not in needed}
    constants = {n: Constant.from_array(v, t) for n, (_, t, v) in kinds.items() if n not in fed}
    outputs = [f"y{i}" for i in range(case.outputs)]
    types = {n: TensorType(t, v.shape) for n, (_, t, v) in fed.items()}
    graph = typed_graph([Node(op_of(case), tuple(names), tuple(outputs), "node")], types, outputs, constants)
    optimize(graph, Target())
    graph.verify()
    compare(case, evaluate(graph, {n: v for n, (_, _, v) in fed.items()}), wanted)


def _known(dtype: DType, value: Array, name: str) -> TensorType:
    return TensorType(dtype, value.shape, lambda: value, name)


def needed_values(op: Op, types: Mapping[str, TensorType], names: Sequence[str]) -> set[str]:
    """The inputs whose values planning must know."""
    if op.data_dependent:
        return set(types)
    found: set[str] = set()
    while True:
        try:
            op.infer(*(types[n] if n in found else replace(types[n], source=None) if n else None for n in names))
        except ValueNeeded as missing:
            assert missing.name in types and missing.name not in found
            found.add(missing.name)
        else:
            return found


def op_of(case: Case) -> Op:
    """The operator of a case."""
    node = node_of(case.op_type, case.inputs, case.outputs, case.domain, **case.attributes)
    return make_op(node, {case.domain: 1, "": case.opset})


def compare(case: Case, got: Sequence[Array], wanted: Sequence[Array]) -> None:
    """Hold outputs in their carriers against those that the case should have."""
    assert len(got) >= case.outputs
    for number, (mine, theirs) in enumerate(zip(got, wanted, strict=False)):
        dtype, value = carrier(theirs)
        assert mine.dtype == value.dtype, f"output {number}: type {mine.dtype}, expected {value.dtype}"
        assert mine.shape == value.shape, f"output {number}: shape {mine.shape}, expected {value.shape}"
        if case.defined is not None:
            mine, value = case.defined(number, mine), case.defined(number, value)
        if dtype.is_float:
            rtol, atol = case.tolerance or TOLERANCE.get(dtype, (1e-9, 1e-12))
            np.testing.assert_allclose(mine, value, rtol, atol, err_msg=f"output {number}")
        else:
            np.testing.assert_array_equal(mine, value, err_msg=f"output {number}")
