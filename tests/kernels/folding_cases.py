"""Reductions, softmax, norms and scans as tests/kernels/choices lists them: what runs, told from the dispatches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Limits, Target, inp, out
from pyruntime.kernels.rows.groups import Groups, normalize_groups
from pyruntime.kernels.rows.reduce import Fold, reduction
from pyruntime.kernels.rows.rows import Norm, normalize_rows, rows_of, softmax_rows
from pyruntime.ops.registry import newest
from tests.harness import typed

__all__ = ["GPU", "LEAST", "PROCESSOR", "TARGETS", "WAYS", "listed", "told"]

GPU = Target(Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")
LEAST = Target()
PROCESSOR = Target(Limits(storage_buffers=10, workgroup_bytes=32768), vendor="google")
TARGETS = (GPU, LEAST, PROCESSOR)

_SUM = Fold("sum", "f32", "0.0", "x", "a + b", state=DType.FLOAT)


def listed(family: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Problem, and what costs choose on an H200, on a GPU of WebGPU's least limits, and on SwiftShader."""
    name = "rows" if family in ("softmax", "normalization") else family
    for line in (Path(__file__).parent / "choices" / f"{name}.txt").read_text().splitlines():
        if not line.startswith("#"):
            problem, *chosen = (part.strip() for part in line.split("|"))
            if family != "normalization" or problem.count("x") == 1:  # elements of norms lie together
                yield problem, tuple(chosen)


def _reduction(target: Target, text: str, dtype: DType) -> str:
    """'6x100': results and elements of each; 'apart': these lie apart, results side by side; 'once': in one pass."""
    sizes, *flags = text.split()
    outputs, count = map(int, sizes.split("x"))
    apart = "apart" in flags
    x = TensorType(dtype, (count, outputs) if apart else (outputs, count))
    fold = Fold("arg", "f32", "0.0", "x", "a + b") if "once" in flags else _SUM
    made = reduction(target, fold, out(0, TensorType(dtype, (outputs,))), inp(0, x), (0 if apart else 1,))
    shares = made[0].operands[-1].type.shape[0] if len(made) > 1 else 1
    return "+".join(_lanes(d) for d in made).replace("+", f"/{shares}+", 1) if shares > 1 else _lanes(made[0])


def _lanes(dispatch: Dispatch) -> str:
    found = re.search(r"_(?:each|rows)(\d+)_r", dispatch.kernel.name)
    assert found is not None
    return found[1]


def _rows(make: Callable[[Target, TensorType, int], Dispatch]) -> Callable[[Target, str, DType], str]:
    def told(target: Target, text: str, dtype: DType) -> str:
        outer, length, inner = (*map(int, text.split("x")), 1)[:3]
        x = TensorType(dtype, (outer, length, inner))
        name = make(target, x, inner).kernel.name
        wide, lanes = (re.search(rf"_{of}(\d+)", name) for of in ("wg", "lanes"))
        return f"{lanes[1] if lanes else 64}/{wide[1] if wide else 64}"

    return told


def _softmax(target: Target, x: TensorType, inner: int) -> Dispatch:
    return softmax_rows(target, out(0, x), inp(0, x), rows_of(x.shape, 1))


def _norm(target: Target, x: TensorType, inner: int) -> Dispatch:
    scale = inp(1, TensorType(x.dtype, (x.shape[1],)))
    return normalize_rows(target, out(0, x), inp(0, x), rows_of(x.shape, 1, True), Norm(1e-5, scale=scale))


def _scan(target: Target, text: str, dtype: DType) -> str:
    """Rows as of softmax. Invocations of a row."""
    shape = (*map(int, text.split("x")), 1)[:3]
    (made,) = newest("CumSum").lower(target, TensorType(dtype, shape), typed(np.array(1)))
    wide = re.search(r"_wg(\d+)", made.kernel.name)
    return "1" if "alone" in made.kernel.name else wide[1] if wide else "64"


def _groups(target: Target, text: str, dtype: DType) -> str:
    """'32x8192': rows and elements of each. Invocations of a workgroup, or how many share a row in two passes."""
    rows, length = map(int, text.split("x"))
    x = TensorType(dtype, (rows, length))
    made = normalize_groups(target, out(0, x), inp(0, x), Groups(rows, 1e-5))
    if len(made) > 1:
        return f"/{made[0].operands[1].type.shape[1]}"
    found = re.search(r"_wg(\d+)", made[0].kernel.name)
    return found[1] if found else "64"


WAYS = {
    "reduction": _reduction,
    "softmax": _rows(_softmax),
    "normalization": _rows(_norm),
    "scan": _scan,
    "groups": _groups,
}
"""By family: what runs for a problem in the list's words."""


def told(family: str, problem: str, target: Target, dtype: DType = DType.FLOAT) -> str:
    """What runs."""
    return WAYS[family](target, problem, dtype)
