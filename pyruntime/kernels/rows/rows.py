"""Kernels that treat a tensor as rows along one axis: softmax, norms, scans; `rows_candidates` are how they run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.ir import multiple, positive, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand
from pyruntime.kernels.ir.fallback import fallback_flag
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.rows.rows_candidates import NORMS, SCANS, SOFTMAX, RowsProblem, lanes_of
from pyruntime.kernels.selection.lanes import shuffled, workgroup_of
from pyruntime.target import Target

__all__ = ["Norm", "Rows", "Scan", "normalize_rows", "rows_of", "scan_rows", "softmax_rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor as `outer * inner` rows of `length` elements that lie `inner` apart."""

    outer: int
    length: int
    inner: int

    @property
    def count(self) -> int:
        """How many rows."""
        return self.outer * self.inner

    @property
    def vector(self) -> bool:
        """True where rows are whole vec4s."""
        return multiple(self.length, 4) and self.inner == 1

    @property
    def problem(self) -> RowsProblem:
        """The problem that kernels are chosen for."""
        return RowsProblem(upper(self.outer), upper(self.length), upper(self.inner))

    def grid(self, target: Target, lanes: int) -> tuple[int, int, int]:
        """Workgroups that cover all rows."""
        return target.fold(positive(-(-self.count // (workgroup_of(lanes) // lanes))))

    def defines(self, target: Target, lanes: int) -> dict[str, int]:
        """WG, LANES, SHARED and VEC of the row templates, and how lanes reduce their partial results."""
        flags = {"SHARED": lanes > 1, "VEC": self.vector}
        return {"WG": workgroup_of(lanes), "LANES": lanes, **flags, **shuffled(target, lanes)}


def rows_of(shape: Sequence[int], axis: int, flatten: bool = False) -> Rows:
    """Rows along `axis` (not negative); `flatten`: along it and all after it."""
    if flatten:
        return Rows(math.prod(shape[:axis]), math.prod(shape[axis:]), 1)
    return Rows(math.prod(shape[:axis]), shape[axis] if shape else 1, math.prod(shape[axis + 1 :]))


def softmax_rows(
    target: Target, y: Operand, x: Operand, rows: Rows, log: bool = False, masked: bool = False
) -> Dispatch:
    """y = softmax of x along rows, or its logarithm; `masked`: rows of -inf alone give 0."""
    lanes = lanes_of(SOFTMAX, rows.problem, target)
    defines = {"LOG": log, "MASKED": masked, **rows.defines(target, lanes)}
    values = {"rows": rows.count, "length": rows.length, "inner": positive(rows.inner)}
    made = launch("softmax_rows", {"x": x, "y": y}, rows.grid(target, lanes), defines, values, 5 * x.type.size)
    # A row's sum is known when all of it is read; then an invocation rereads only what it writes.
    return replace(made, inplace=((0, 1),)) if made.kernel.can_share(0, 1) else made


@dataclass(frozen=True, slots=True)
class Scan:
    """What `scan_rows` computes: sums or products, without the element itself, from the last element to the first."""

    product: bool = False
    exclusive: bool = False
    reverse: bool = False


def scan_rows(target: Target, y: Operand, x: Operand, rows: Rows, scan: Scan) -> Dispatch:
    """y[k] = x[0] op ... op x[k] along rows, of x's type."""
    lanes = lanes_of(SCANS, rows.problem, target)
    flags = {
        "ALONE": lanes == 1,
        "PRODUCT": scan.product,
        "EXCLUSIVE": scan.exclusive,
        "REVERSE": scan.reverse,
        "WIDE": x.type.dtype.is_wide,
        "WG": workgroup_of(lanes),
    }
    run = -(-rows.length // lanes)
    values = {"rows": rows.count, "length": rows.length, "inner": max(1, rows.inner), "run": run}
    return launch("scan_rows", {"x": x, "y": y}, rows.grid(target, lanes), flags, values, 2 * x.type.size)


@dataclass(frozen=True, slots=True)
class Norm:
    """What `normalize_rows` computes besides y = (x - mean) / sqrt(var + epsilon).

    Attributes:
        rms: the mean is not taken off.
        scale, bias: tensors of a row's length, shared by all rows.
        scales: how many rows of `scale` there are, which take turns.
        mean, inv: where the statistics go, one a row.
        skip: added to x first, repeated over the rows. offset: a tensor of a row's length, added too.
        sum: where the sum goes.
        order: uint32, x is taken in pieces of equal length, piece `order[i]` in the place of piece i.
        places: uint32 [rows], row r of y is written as row `places[r]`.
    """

    epsilon: float
    rms: bool = False
    scale: Operand | None = None
    bias: Operand | None = None
    mean: Operand | None = None
    inv: Operand | None = None
    skip: Operand | None = None
    offset: Operand | None = None
    sum: Operand | None = None
    order: Operand | None = None
    places: Operand | None = None
    scales: Any = 1


_ALONE = 8192
"""Elements of a row whose mean an invocation may find alone, until the pipeline is there in which many do."""


def normalize_rows(target: Target, y: Operand, x: Operand, rows: Rows, norm: Norm) -> Dispatch:
    """y = (s - mean) / sqrt(var + epsilon) * scale + bias, s = x + skip + offset, along rows with `rows.inner` = 1."""
    reads = {"x": x, "skip": norm.skip, "offset": norm.offset, "scale": norm.scale, "bias": norm.bias}
    reads |= {"order": norm.order, "places": norm.places}
    writes = {"y": y, "joined": norm.sum, "mean": norm.mean, "inv": norm.inv}
    bound = {**reads, **writes}
    lanes = lanes_of(NORMS, rows.problem, target)
    parts = ("skip", "offset", "scale", "bias", "joined", "mean", "inv", "order", "places")
    flags = {"RMS": norm.rms, "SCALES": norm.scales != 1, **{name.upper(): bound[name] for name in parts}}
    fallback = fallback_flag(target) if lanes > 1 and upper(rows.length) <= _ALONE else {}
    defines = {**flags, **rows.defines(target, lanes), **fallback}
    period = norm.skip.type.size if norm.skip is not None else 0
    values = {"rows": rows.count, "length": rows.length, "period": positive(period), "epsilon": norm.epsilon}
    moved = norm.order is not None or norm.places is not None
    if norm.order is not None:
        values["piece"] = rows.count * rows.length // norm.order.type.size
    if norm.scales != 1:
        values["scales"] = positive(norm.scales)
    made = launch("normalize_rows", bound, rows.grid(target, lanes), defines, values, 8 * x.type.size)
    place = made.operands.index(y)
    return replace(made, inplace=((0, place),)) if not moved and made.kernel.can_share(0, place) else made
