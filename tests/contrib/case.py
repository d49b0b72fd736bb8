"""Random single nodes of com.microsoft, and what they are held against: onnxruntime's CPU, or a reference of their own.

`tests/contrib/families/` has a module for each family of operators; its `DRAWS` maps an operator's name to a function
that draws a case from a random generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array
from pyruntime.ops.base import Unsupported
from tests.harness import carrier, make_op, run_op
from tests.oracle import TOLERANCE, node_of, ort_run

__all__ = ["Case", "Draw", "check", "draws"]


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
    node = node_of(case.op_type, case.inputs, case.outputs, case.domain, **case.attributes)
    op = make_op(node, {case.domain: 1, "": case.opset})
    if gpu is not None and case.host:
        with pytest.raises(Unsupported):
            run_op(op, list(case.inputs), gpu)
        return
    got = run_op(op, list(case.inputs), gpu)
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
