"""Attention as one fused kernel: which one, which tile, and its dispatches.

flash    `shaders/attention_flash.wgsl`: a query row is shared by a few invocations; short sequences, decoding, and
         (without workgroup memory) adapters that run on a processor
tiled    `shaders/attention_tiled.wgsl`: tiles of 64 or 32 queries as register-tiled products. Where tiles are few,
         keys are dealt out over workgroups and `shaders/attention_merge.wgsl` joins the shares
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array, DType
from pyruntime.kernels.dispatch import Dispatch, Limits, Operand, Target, scratch
from pyruntime.kernels.indexing import broadcast_strides, contiguous
from pyruntime.kernels.template import params_of, template

__all__ = ["WIDEST_HEAD", "AttentionForm", "HeadView", "Tile", "attend", "select"]

WIDEST_HEAD = 128
"""Components of a head the kernels keep in registers."""

WORTHWHILE = 128
"""Workgroups below which the tiled kernel leaves a GPU idle."""


@dataclass(frozen=True, slots=True)
class HeadView:
    """Where component (batch, head, position, component) of a tensor is: `base` and strides, in elements."""

    base: int
    strides: tuple[int, int, int, int]

    def array(self, x: Array, shape: tuple[int, ...]) -> Array:
        """The view of `x` with this shape."""
        flat = np.ascontiguousarray(x).reshape(-1)[self.base :]
        steps = tuple(s * flat.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False)

    @property
    def is_quads(self) -> bool:
        """True where components are contiguous and everything else lies at multiples of four."""
        return self.strides[3] == 1 and all(s % 4 == 0 for s in (self.base, *self.strides[:3]))


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """softmax(scale * q kᵀ + mask) v.

    Attributes:
        sizes: batch, heads, queries, keys, components of queries and keys, components of values.
        q, k, v, y: where the tensors' components are.
        empty_zero: rows whose every key is masked by -infinity are 0 instead of NaN.
    """

    sizes: tuple[int, int, int, int, int, int]
    q: HeadView
    k: HeadView
    v: HeadView
    y: HeadView
    scale: float
    empty_zero: bool

    @property
    def heads(self) -> int:
        """Heads of all batch entries."""
        return self.sizes[0] * self.sizes[1]

    @property
    def flops(self) -> int:
        """A multiplication and an addition for every component of every score and every result."""
        return 2 * self.heads * self.sizes[2] * self.sizes[3] * (self.sizes[4] + self.sizes[5])

    @property
    def is_quads(self) -> bool:
        """True where all tensors can be read and written in vec4s."""
        whole = self.sizes[4] % 4 == 0 and self.sizes[5] % 4 == 0
        return whole and all(v.is_quads for v in (self.q, self.k, self.v, self.y))


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


def attend(
    target: Target,
    form: AttentionForm,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None,
    y: Operand,
    first_scratch: int = 0,
    tile: Tile | None = None,
) -> tuple[Dispatch, ...]:
    """y = softmax(scale * q kᵀ + mask) v.

    Args:
        mask: broadcasts to [batch, heads, queries, keys].
        first_scratch: number of the first scratch tensor this may use (two).
        tile: the configuration to use instead of the best, to measure it.
    """
    if tile is None and not target.is_software and target.allows("attention_tiled"):
        tile = select(form, target.limits, target.allows("attention_split"))
    if tile is None:
        return (_flash(target, form, q, k, v, mask, y),)
    return _tiled(target, form, (q, k, v, mask, y), tile, first_scratch)


def _flags(**flags: object) -> dict[str, int]:
    return {name: 1 for name, on in flags.items() if on}


def _views(form: AttentionForm, mask: Operand | None, y: HeadView) -> dict[str, list[int] | tuple[int, ...]]:
    """The Params fields both kernels have."""
    return {
        "q_strides": form.q.strides,
        "k_strides": form.k.strides,
        "v_strides": form.v.strides,
        "y_strides": y.strides,
        "mask_strides": tuple(broadcast_strides(mask.type.shape, form.sizes[:4])) if mask is not None else (),
        "bases": [form.q.base, form.k.base, form.v.base, y.base],
    }


def _flash(
    target: Target, form: AttentionForm, q: Operand, k: Operand, v: Operand, mask: Operand | None, y: Operand
) -> Dispatch:
    _, heads, M, N, D, E = form.sizes
    rows, split = (1, 64) if M == 1 else (4, 16) if M * form.heads < 512 else (16, 4)
    keys = 64
    if target.is_software:
        rows, split, keys = 64, 1, 8
    while keys > split and keys * (max(D, E) + 7) * 4 + 1024 > target.limits.workgroup_bytes:
        keys //= 2
    flags = _flags(
        VEC=form.is_quads,
        MASK=mask,
        EMPTY_ZERO=form.empty_zero,
        DIRECT=target.is_software,
        UNROLL=not target.is_software,
    )
    bound = [x for x in (q, k, v, mask, y) if x is not None]
    names = [n for n, x in zip(("q", "k", "v", "mask", "y"), (q, k, v, mask, y), strict=True) if x is not None]
    types = {n: x.type.dtype for n, x in zip(names, bound, strict=True)}
    kernel = template("attention_flash", types, DIM=D, DIM_V=E, ROWS=rows, SPLIT=split, KEYS=keys, **flags)
    tiles = math.ceil(M / rows)
    params = params_of(
        kernel,
        **_views(form, mask, form.y),
        queries=M,
        keys=N,
        heads=heads,
        tiles=tiles,
        jobs=tiles * form.heads,
        scale=form.scale,
    )
    return Dispatch(kernel, tuple(bound), target.fold(tiles * form.heads), params, flops=form.flops)


def _tiled(
    target: Target,
    form: AttentionForm,
    operands: tuple[Operand, Operand, Operand, Operand | None, Operand],
    tile: Tile,
    first_scratch: int,
) -> tuple[Dispatch, ...]:
    q, k, v, mask, y = operands
    _, heads, M, N, D, E = form.sizes
    splits = tile.splits
    part, view = y, form.y
    shape = (form.sizes[0], heads, M, E)
    bound = {"q": q, "k": k, "v": v, "mask": mask}
    stats: Operand | None = None
    if splits > 1:
        part = scratch(first_scratch, DType.FLOAT, splits, *shape)
        stats = scratch(first_scratch + 1, DType.FLOAT, splits, form.heads, M, 2)
        batch_step, head_step, row_step, _ = contiguous(shape)
        view = HeadView(0, (batch_step, head_step, row_step, 1))
    bound |= {"y": part, "stats": stats}
    given = {name: operand for name, operand in bound.items() if operand is not None}
    quads = form.is_quads
    kernel = template(
        "attention_tiled",
        {name: operand.type.dtype for name, operand in given.items()},
        DIM=D,
        DIM_V=E,
        ROWS=tile.rows,
        KEYS=tile.keys,
        TALL=tile.tall,
        **_flags(VEC=quads, MASK=mask, SPLIT=splits > 1, EMPTY_ZERO=form.empty_zero and splits == 1),
    )
    groups = tile.groups(form)
    params = params_of(
        kernel,
        **_views(form, mask, view),
        queries=M,
        keys=N,
        heads=heads,
        tiles=groups // form.heads,
        jobs=groups * splits,
        plane=groups,
        steps=tile.steps(form),
        split_stride=math.prod(shape),
        scale=form.scale,
    )
    first = Dispatch(kernel, tuple(given.values()), target.fold(groups * splits), params, flops=form.flops)
    if stats is None:
        return (first,)
    return first, _merge(target, form, part, stats, y, splits)


def _merge(target: Target, form: AttentionForm, part: Operand, stats: Operand, y: Operand, splits: int) -> Dispatch:
    _, heads, M, _, _, E = form.sizes
    kernel = template(
        "attention_merge",
        {"y": y.type.dtype},
        DIM_V=E,
        **_flags(VEC=form.is_quads, EMPTY_ZERO=form.empty_zero),
    )
    rows = form.heads * M
    jobs = rows * -(-E // 4)
    params = params_of(
        kernel,
        y_strides=form.y.strides,
        base=form.y.base,
        queries=M,
        heads=heads,
        rows=rows,
        splits=splits,
        jobs=jobs,
    )
    return Dispatch(kernel, (part, stats, y), target.grid(jobs), params)
