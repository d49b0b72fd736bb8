"""Attention as one fused kernel: the dispatches of each that `kernels.attention.candidates` chooses from.

few      `kernels/attention/few_queries.py`: few queries share keys, as in decoding, or heads are too wide for others
flash    `shaders/attention/attention_flash.wgsl`: a query row is shared by a few invocations; short sequences
tiled    `shaders/attention/attention_tiled.wgsl`: tiles of 64 or 32 queries as register-tiled products. With few tiles,
         keys are split across workgroups, and `shaders/attention/attention_merge.wgsl` reduces the partial results
rows     `kernels/attention/few_queries.py`: adapters that run on a processor
"""

from __future__ import annotations

from pyruntime.ir import DType
from pyruntime.kernels.attention.candidates import (
    ATTENTIONS,
    FLASH_THREADS,
    LARGE,
    SMALL,
    WIDE,
    WIDEST_HEAD,
    Tile,
    few_of,
    is_few,
)
from pyruntime.kernels.attention.description import (
    AttentionForm,
    AttentionProblem,
    AttentionTensors,
    flags_of,
    in_shares,
    named,
    values_of,
)
from pyruntime.kernels.attention.few_queries import attend_few, attend_rows, merge
from pyruntime.kernels.attention.new_row import NewRow
from pyruntime.kernels.ir.dispatch import Dispatch
from pyruntime.kernels.ir.fallback import fallback_flag
from pyruntime.kernels.ir.kernel import Kernel
from pyruntime.kernels.ir.launch import bind, kernel_of, launch
from pyruntime.kernels.ir.template import params_of
from pyruntime.target import Target

__all__ = ["LARGE", "SMALL", "WIDE", "WIDEST_HEAD", "Tile", "attend", "attend_new_row", "fits"]


def fits(target: Target, form: AttentionForm) -> bool:
    """True where one kernel is better than products around a softmax."""
    problem = AttentionProblem.of(form)
    few = is_few(problem) and (target.allows("attention_few") or target.is_software)
    return few or max(form.sizes[4:]) <= WIDEST_HEAD


def attend(
    target: Target,
    form: AttentionForm,
    tensors: AttentionTensors,
    tile: Tile | None = None,
) -> tuple[Dispatch, ...]:
    """y = softmax(mask + cap(scale * q kᵀ)) v over the keys that queries see.

    Args:
        tile: the configuration to use instead of the best, to measure it.
    """
    if tile is not None:
        return _tiled(target, form, tensors, tile)
    half = target.has_f16 and tensors.k.type.dtype is tensors.v.type.dtype is DType.FLOAT16
    problem = AttentionProblem.of(form, half, tensors.q.type.dtype is DType.FLOAT16)
    way = ATTENTIONS.choose(problem, target).way
    if way.kernel == "few":
        made = few_of(problem, target, way)
        assert made is not None
        return attend_few(target, form, tensors, made)
    if way.tile is not None:
        return _tiled(target, form, tensors, way.tile.over(problem))
    if way.kernel == "flash":
        return (_flash(target, form, tensors, way.rows),)
    return (attend_rows(target, form, tensors),)


def attend_new_row(
    target: Target, form: AttentionForm, tensors: AttentionTensors, new_row: NewRow
) -> tuple[Dispatch, ...] | None:
    """`attend` of one query that is made ready here, as the newest row of keys and values is, which caches then have.

    None where another kernel than that for few queries is better, or a device binds too few tensors.

    Args:
        tensors: q as it is given; k and v: the caches, in memory that holds all rows but the newest.
    """
    if target.is_software or not target.allows("attention_new_row") or not new_row.fits(form, tensors):
        return None
    problem = AttentionProblem.of(form)
    way = ATTENTIONS.choose(problem, target).way
    made = few_of(problem, target, way) if way.kernel == "few" else None
    if made is None:
        return None
    dispatches = attend_few(target, form, tensors, made, new_row)
    return dispatches if all(len(d.operands) <= target.limits.storage_buffers for d in dispatches) else None


_UNROLLED = 256
"""Components of keys that the text of the flash kernel multiplies one by one."""


def _flash(target: Target, form: AttentionForm, tensors: AttentionTensors, rows: int) -> Dispatch:
    _, _, M, _, D, E = form.sizes
    split = FLASH_THREADS // rows
    bound = named(tensors)
    flags = flags_of(form, tensors)

    def of(rows: int, split: int) -> Kernel:
        keys = 64
        while keys > split and keys * (max(D, E) + 7 + rows) * 4 + 1024 > target.limits.workgroup_bytes:
            keys //= 2
        together = keys // split
        while together > 1 and together * max(D, E) > _UNROLLED:
            together //= 2
        taken = {"ROWS": rows, "SPLIT": split, "KEYS": keys, "TOGETHER": together}
        return kernel_of("attention_flash", bound, {"DIM": D, "DIM_V": E, **taken, **flags})

    kernel = of(rows, split)
    while kernel.module.workgroup_bytes > target.limits.workgroup_bytes and rows * split > 2:
        rows, split = (rows // 2, split) if rows > 1 else (1, split // 2)
        kernel = of(rows, split)
    tiles = -(-M // rows)
    params = params_of(kernel, **values_of(form, tensors.mask), tiles=tiles, jobs=tiles * form.heads)
    return Dispatch(kernel, bind(kernel, bound), target.fold(tiles * form.heads), params, flops=form.flops)


def _tiled(target: Target, form: AttentionForm, tensors: AttentionTensors, tile: Tile) -> tuple[Dispatch, ...]:
    batch, heads, M, _, D, E = form.sizes
    splits = tile.splits
    part, given, stats = in_shares(form, tensors, splits)
    half_q = tile.half and tensors.q.type.dtype is DType.FLOAT16
    flags = flags_of(part, given, SPLIT=splits > 1, HALF=tile.half, HALF_Q=half_q)
    defines = {"DIM": D, "DIM_V": E, "ROWS": tile.rows, "KEYS": tile.keys, "TALL": tile.tall, **flags}
    defines |= fallback_flag(target, form.flops, LIGHT=1)
    groups = tile.groups(form)
    values = {
        **values_of(part, given.mask),
        "tiles": groups // form.heads,
        "jobs": groups * splits,
        "plane": groups,
        "steps": tile.steps(form),
        "splits": splits,
        "split_stride": batch * heads * M * E,
    }
    bound = named(given, stats=stats)
    first = launch("attention_tiled", bound, target.fold(groups * splits), defines, values, form.flops)
    if stats is None:
        return (first,)
    return first, merge(target, form, given.y, stats, tensors, splits)
