"""Normalisation of neighbouring elements with one scale a channel or group: GroupNorm, InstanceNorm, MVN.

one pass     `shaders/rows/normalize_groups.wgsl`: a workgroup reads its row three times
two passes   `shaders/rows/normalize_moments.wgsl` and `normalize_spread.wgsl`: where rows are long and few, all of the
             GPU takes their moments, then all of it writes

Which of them runs, `kernels.rows.groups_candidates` say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyruntime.ir import DType, multiple, positive, upper
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.rows.groups_candidates import CHUNK, GROUP_NORMS, SHARES, GroupsProblem, shares_of
from pyruntime.kernels.selection.lanes import shuffled
from pyruntime.target import Target

__all__ = ["Groups", "normalize_groups"]


@dataclass(frozen=True, slots=True)
class Groups:
    """A tensor as `rows` runs of neighbouring elements, normalised each on its own.

    Attributes:
        epsilon: added to the variance. floor: added to the deviation.
        affine: scale and bias.
        groups: rows an image. inner: elements a channel.
        per_group: scale and bias are one a group, not one a channel.
    """

    rows: int
    epsilon: float
    floor: float = 0.0
    affine: tuple[Operand, Operand] | None = None
    groups: int = 1
    inner: int = 1
    per_group: bool = False


def normalize_groups(target: Target, y: Operand, x: Operand, form: Groups) -> tuple[Dispatch, ...]:
    """y = (x - mean) / (sqrt(var + epsilon) + floor) [* scale + bias] over each row."""
    length = x.type.size // positive(form.rows)
    scale, bias = form.affine or (None, None)
    tensors = {"x": x, "scale": scale, "bias": bias, "y": y}
    whole = form.affine is None or form.per_group or multiple(form.inner, 4)
    flags = {"AFFINE": form.affine is not None, "VEC": multiple(length, 4) and whole}
    common = {
        "length": length,
        "inner": form.inner,
        "per_group": int(form.per_group),
        "epsilon": form.epsilon,
        "floor": form.floor,
    }
    problem = GroupsProblem(upper(form.rows), upper(length))
    way = GROUP_NORMS.choose(problem, target).way
    if way.split:
        return _two_passes(target, tensors, form, shares_of(problem, target), flags, common)
    defines = {"WG": way.wide, **flags, **shuffled(target, way.wide)}
    values = {"rows": form.rows, "groups": form.groups, **common}
    return (launch("normalize_groups", tensors, target.fold(positive(form.rows)), defines, values, 8 * x.type.size),)


def _two_passes(
    target: Target,
    tensors: Mapping[str, Operand | None],
    form: Groups,
    shares: int,
    flags: Mapping[str, bool],
    common: Mapping[str, int | float],
) -> tuple[Dispatch, ...]:
    x = tensors["x"]
    assert x is not None
    length = x.type.size // form.rows
    share = -(-upper(length) // (4 * shares)) * 4
    segments = -(-length // share)
    stats = scratch(DType.FLOAT, form.rows, segments, 4)
    joins, flops = shuffled(target, SHARES), 4 * x.type.size
    groups = form.rows * segments
    defines = {"VEC": multiple(length, 4), **joins}
    values = {"groups": groups, "length": length, "segments": segments, "share": share}
    first = launch("normalize_moments", {"x": x, "stats": stats}, target.fold(groups), defines, values, flops)
    chunks = -(-length // CHUNK)
    groups = form.rows * chunks
    spread = {"groups": groups, "segments": segments, "chunks": chunks, "chunk": CHUNK, "rows": form.groups}
    bound = {**tensors, "stats": stats}
    second = launch("normalize_spread", bound, target.fold(groups), {**flags, **joins}, {**spread, **common}, flops)
    last = len(second.operands) - 1
    return first, replace(second, inplace=((0, last),)) if second.kernel.can_share(0, last) else second
