"""Normalisation of neighbouring elements with one scale a channel or group: GroupNorm, InstanceNorm, MVN.

one pass     `shaders/normalize_groups.wgsl`: a workgroup reads its row three times
two passes   `shaders/normalize_moments.wgsl` and `normalize_spread.wgsl`: where few rows are long, all of the GPU
             takes their moments, then all of it writes

Which of them runs, `kernels.groups_candidates` say.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.ir import DType, multiple, positive, upper
from pyruntime.kernels.dispatch import Dispatch, Operand, Target, scratch
from pyruntime.kernels.groups_candidates import CHUNK, GROUP_NORMS, SHARES, GroupsProblem, shares_of
from pyruntime.kernels.lanes import shuffled
from pyruntime.kernels.template import params_of, template

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
    types = {"x": x.type.dtype, "y": y.type.dtype}
    if form.affine is not None:
        types |= {"scale": form.affine[0].type.dtype, "bias": form.affine[1].type.dtype}
    whole = form.affine is None or form.per_group or multiple(form.inner, 4)
    flags = {"AFFINE": form.affine is not None, "VEC": multiple(length, 4) and whole}
    defines = {name: 1 for name, on in flags.items() if on}
    common = {
        "length": length,
        "inner": form.inner,
        "per_group": int(form.per_group),
        "epsilon": form.epsilon,
        "floor": form.floor,
    }
    problem = GroupsProblem(upper(form.rows), upper(length))
    way = GROUP_NORMS.choose(problem, target).way
    if way.dealt:
        return _two_passes(target, y, x, form, shares_of(problem, target), types, defines, common)
    kernel = template("normalize_groups", types, WG=way.wide, **defines, **shuffled(target, way.wide))
    params = params_of(kernel, rows=form.rows, groups=form.groups, **common)
    operands = (x, *(form.affine or ()), y)
    return (Dispatch(kernel, operands, target.fold(positive(form.rows)), params, flops=8 * x.type.size),)


def _two_passes(
    target: Target,
    y: Operand,
    x: Operand,
    form: Groups,
    shares: int,
    types: dict[str, DType],
    defines: dict[str, int],
    common: dict[str, int | float],
) -> tuple[Dispatch, ...]:
    length = x.type.size // form.rows
    share = -(-upper(length) // (4 * shares)) * 4
    segments = -(-length // share)
    stats = scratch(DType.FLOAT, form.rows, segments, 4)
    vector = {"VEC": 1} if multiple(length, 4) else {}
    joins = shuffled(target, SHARES)
    moments = template("normalize_moments", {"x": x.type.dtype}, **vector, **joins)
    groups = form.rows * segments
    params = params_of(moments, groups=groups, length=length, segments=segments, share=share)
    first = Dispatch(moments, (x, stats), target.fold(groups), params, flops=4 * x.type.size)
    chunks = -(-length // CHUNK)
    spread = template("normalize_spread", types, **defines, **joins)
    groups = form.rows * chunks
    params = params_of(spread, groups=groups, segments=segments, chunks=chunks, chunk=CHUNK, rows=form.groups, **common)
    operands = (x, stats, *(form.affine or ()), y)
    inplace = ((0, len(operands) - 1),) if spread.can_share(0, len(operands) - 1) else ()
    return first, Dispatch(spread, operands, target.fold(groups), params, inplace, flops=4 * x.type.size)
