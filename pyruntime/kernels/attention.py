"""Attention as one fused kernel: which one, which tile, and its dispatches.

few      `kernels/attention_few.py`: few rows share keys, as in decoding, or heads are too wide for the kernels below
flash    `shaders/attention_flash.wgsl`: a query row is shared by a few invocations; short sequences
tiled    `shaders/attention_tiled.wgsl`: tiles of 64 or 32 queries as register-tiled products. Where tiles are few,
         keys are dealt out over workgroups and `shaders/attention_merge.wgsl` joins the shares
rows     `kernels/attention_few.py`: adapters that run on a processor
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyruntime.ir import DType, upper
from pyruntime.kernels.attention_few import attend_few, attend_rows, few_queries, is_few, merge
from pyruntime.kernels.attention_form import AttentionForm, AttentionTensors, HeadView, flags_of, named, values_of
from pyruntime.kernels.dispatch import Dispatch, Limits, Operand, Target, scratch
from pyruntime.kernels.indexing import contiguous
from pyruntime.kernels.kernel import Kernel
from pyruntime.kernels.template import params_of, template

__all__ = ["WIDEST_HEAD", "Tile", "attend", "fits", "select"]

WIDEST_HEAD = 128
"""Components of a head that flash and tiled keep in registers."""

WORTHWHILE = 128
"""Workgroups below which the tiled kernel leaves a GPU idle."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A configuration of `shaders/attention_tiled.wgsl`.

    Attributes:
        rows, keys: queries and keys of a workgroup's step. tall: rows of an invocation.
        splits: shares of the keys over workgroups.
    """

    rows: int
    keys: int
    tall: int
    splits: int = 1

    @property
    def threads(self) -> int:
        """Invocations of a workgroup."""
        return self.keys // 4 * self.rows // self.tall

    def workgroup_bytes(self, size: int, v_size: int) -> int:
        """Workgroup memory for heads of `size` and `v_size` components."""
        quads, quads_v = -(-size // 4), -(-v_size // 4)
        staged = quads * self.rows + max(quads * self.keys, self.keys * quads_v)
        return 16 * (staged + self.keys * (self.rows // 4 + 1) + self.threads + self.rows // 4)

    def groups(self, form: AttentionForm) -> int:
        """Workgroups of one split."""
        return -(-form.sizes[2] // self.rows) * form.heads

    def steps(self, form: AttentionForm) -> int:
        """Tiles of keys a workgroup walks over."""
        return -(-form.sizes[3] // (self.keys * self.splits))


LARGE = Tile(64, 32, 8)
SMALL = Tile(32, 32, 4)


def select(form: AttentionForm, limits: Limits, split: bool = True) -> Tile | None:
    """The tile for an attention on a device; None where the kernel without tiles is better or nothing else fits."""
    form = form.most()
    size, v_size = form.sizes[4:]
    fits = [t for t in (LARGE, SMALL) if t.workgroup_bytes(size, v_size) <= limits.workgroup_bytes]
    if max(size, v_size) > 64:
        # Sixty-four rows would take more registers than there are.
        fits = [t for t in fits if t is SMALL]
    made = [Tile(t.rows, t.keys, t.tall, _splits(t, form) if split else 1) for t in fits]
    full = [t for t in made if t.groups(form) * t.splits >= 2 * WORTHWHILE]
    if full:
        return full[0]
    return next((t for t in made if t.groups(form) * t.splits >= WORTHWHILE), None)


def _splits(tile: Tile, form: AttentionForm) -> int:
    """Shares of the keys: more where tiles are few, none below eight steps."""
    groups, steps = tile.groups(form), -(-form.sizes[3] // tile.keys)
    splits = 1
    while splits < 8 and groups * splits * 2 <= 600 and steps // (splits * 2) >= 8:
        splits *= 2
    # Every share has keys.
    return -(-steps // -(-steps // splits))


def fits(target: Target, form: AttentionForm) -> bool:
    """True where one kernel is better than products around a softmax."""
    few = is_few(form) and (target.allows("attention_few") or target.is_software)
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
    if tile is None and target.is_software:
        return (attend_rows(target, form, tensors),)
    wide = max(form.sizes[4:]) > WIDEST_HEAD
    few = is_few(form) and target.allows("attention_few")
    if tile is None and (wide or few):
        made = few_queries(form, target.limits, target.allows("attention_split"))
        if made is not None:
            return attend_few(target, form, tensors, made)
    if wide:
        return (attend_rows(target, form, tensors),)
    if tile is None and target.allows("attention_tiled"):
        tile = select(form, target.limits, target.allows("attention_split"))
    if tile is None:
        return (_flash(target, form, tensors),)
    return _tiled(target, form, tensors, tile)


_UNROLLED = 256
"""Components of keys that the text of the flash kernel multiplies one by one."""


def _flash(target: Target, form: AttentionForm, tensors: AttentionTensors) -> Dispatch:
    _, _, M, _, D, E = form.sizes
    rows, split = (1, 64) if upper(M) == 1 else (4, 16) if upper(form.rows) < 512 else (16, 4)
    bound = named(tensors)
    types = {n: x.type.dtype for n, x in bound.items()}
    flags = flags_of(form, tensors)

    def of(rows: int, split: int) -> Kernel:
        keys = 64
        while keys > split and keys * (max(D, E) + 7 + rows) * 4 + 1024 > target.limits.workgroup_bytes:
            keys //= 2
        together = keys // split
        while together > 1 and together * max(D, E) > _UNROLLED:
            together //= 2
        taken = {"ROWS": rows, "SPLIT": split, "KEYS": keys, "TOGETHER": together}
        return template("attention_flash", types, DIM=D, DIM_V=E, **taken, **flags)

    kernel = of(rows, split)
    while kernel.module.workgroup_bytes > target.limits.workgroup_bytes and rows * split > 2:
        rows, split = (rows // 2, split) if rows > 1 else (1, split // 2)
        kernel = of(rows, split)
    tiles = -(-M // rows)
    params = params_of(kernel, **values_of(form, tensors.mask, form.y), tiles=tiles, jobs=tiles * form.heads)
    operands = tuple(bound[b.name] for b in kernel.bindings)
    return Dispatch(kernel, operands, target.fold(tiles * form.heads), params, flops=form.flops)


def _tiled(target: Target, form: AttentionForm, tensors: AttentionTensors, tile: Tile) -> tuple[Dispatch, ...]:
    batch, heads, M, _, D, E = form.sizes
    splits = tile.splits
    part, view = tensors.y, form.y
    shape = (batch, heads, M, E)
    stats: Operand | None = None
    if splits > 1:
        part = scratch(DType.FLOAT, splits, *shape)
        stats = scratch(DType.FLOAT, splits, form.rows, 2)
        batch_step, head_step, row_step, _ = contiguous(shape)
        view = HeadView(0, (batch_step, head_step, row_step, 1))
    bound = named(tensors, y=part, stats=stats, sink=None if splits > 1 else tensors.sink)
    flags = flags_of(form, tensors, SPLIT=splits > 1)
    if splits > 1:
        flags = {n: on for n, on in flags.items() if n not in ("SINK", "EMPTY_ZERO")}
    kernel = template(
        "attention_tiled",
        {name: operand.type.dtype for name, operand in bound.items()},
        DIM=D,
        DIM_V=E,
        ROWS=tile.rows,
        KEYS=tile.keys,
        TALL=tile.tall,
        **flags,
    )
    groups = tile.groups(form)
    params = params_of(
        kernel,
        **values_of(form, tensors.mask, view),
        tiles=groups // form.heads,
        jobs=groups * splits,
        plane=groups,
        steps=tile.steps(form),
        splits=splits,
        split_stride=math.prod(shape),
    )
    operands = tuple(bound[b.name] for b in kernel.bindings)
    first = Dispatch(kernel, operands, target.fold(groups * splits), params, flops=form.flops)
    if stats is None:
        return (first,)
    return first, merge(target, form, part, stats, tensors, splits)
