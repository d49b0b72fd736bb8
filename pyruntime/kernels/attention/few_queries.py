"""Attention of few queries, as decoding has it; of adapters that run on a processor; and the sum of shares of keys.

few      `shaders/attention/attention_few_queries.wgsl`: all query heads that share keys in one workgroup; many keys are
         split across workgroups; also heads too wide for the registers of the other kernels
rows     `shaders/attention/attention_rows.wgsl`: an invocation makes a row, for adapters that run on a processor
merge    `shaders/attention/attention_merge.wgsl`: the second pass where keys were split
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache

from pyruntime.ir import upper
from pyruntime.kernels.attention.description import (
    AttentionForm,
    AttentionProblem,
    AttentionTensors,
    HeadView,
    flags_of,
    in_shares,
    named,
    values_of,
)
from pyruntime.kernels.attention.new_row import NewRow
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, Partials
from pyruntime.kernels.ir.fallback import fallback_flag
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.selection.lanes import shuffled
from pyruntime.target import WORKGROUP, Limits, Target

__all__ = ["FewQueries", "attend_few", "attend_rows", "few_queries", "merge", "merge_lanes"]

MOST_ROWS = 8
"""Rows of a workgroup at most: each holds its results in registers."""

UNROLLED = 8
"""Turns of a loop over components or keys that are written out, at most."""

ROW_WORKGROUP = 8
"""Invocations of a workgroup where rows are few: a processor gives a core a workgroup at a time."""


@dataclass(frozen=True, slots=True)
class FewQueries:
    """A configuration of `shaders/attention/attention_few_queries.wgsl`.

    Attributes:
        rows: rows of a workgroup.
        keys: keys of a step.
        share: invocations that share a key.
        together: results of an invocation that go through workgroup memory at a time.
        splits: shares of the keys.
    """

    rows: int
    keys: int
    share: int = 1
    together: int = 1
    splits: int = 1

    @property
    def threads(self) -> int:
        """Invocations of a workgroup."""
        return self.keys * self.share

    @property
    def lanes(self) -> int:
        """Invocations that find a row's maximum."""
        return min(16, self.keys // self.rows)

    def workgroup_bytes(self, size: int) -> int:
        """Workgroup memory for heads of `size` components of q and k."""
        staged = 16 * (self.rows * -(-size // 4) + max(self.together, -(-self.rows // 4)) * self.threads)
        return staged + 4 * self.rows * (self.keys + self.lanes + 3) + 64

    def fits(self, size: int, limits: Limits) -> bool:
        """Whether a device has the memory and the invocations for heads of `size` components of q and k."""
        return self.workgroup_bytes(size) <= limits.workgroup_bytes and self.threads <= limits.invocations

    def blocks(self, form: AttentionForm | AttentionProblem) -> int:
        """Workgroups along the rows of a head of k."""
        return -(-form.group * form.sizes[2] // self.rows)

    def groups(self, form: AttentionForm | AttentionProblem) -> int:
        """Workgroups of one split."""
        return self.blocks(form) * form.heads // form.group


@lru_cache(maxsize=1024)
def few_queries(wanted: int, size: int, v_size: int, limits: Limits) -> FewQueries | None:
    """Return the configuration for `wanted` rows that share keys; None if not even one row fits workgroup memory."""
    # A vec4 of results a row and 512 components: more would not stay in registers.
    most = max(1, min(MOST_ROWS, MOST_ROWS * 512 // max(512, v_size)))
    rows = min(most, 1 << max(0, wanted - 1).bit_length())
    shares = [share for share in (4, 2, 1) if share <= -(-size // 4)]
    while rows >= 1:
        results = rows * -(-v_size // 512)
        for keys, share, together in itertools.product((128, 64), shares, (4, 2, 1)):
            made = FewQueries(rows, keys, share, min(together, results))
            if made.fits(size, limits):
                return made
        rows //= 2
    return None


def attend_few(
    target: Target,
    form: AttentionForm,
    tensors: AttentionTensors,
    made: FewQueries,
    new_row: NewRow | None = None,
) -> tuple[Dispatch, ...]:
    """Return the dispatches of attention with few queries; with two scratch tensors if keys are split.

    Args:
        new_row: how the kernel itself prepares the query and the newest row of the caches.
    """
    batch, heads, M, _, D, E = form.sizes
    splits = made.splits
    part, given, stats = in_shares(form, tensors, splits)
    bound = named(given, stats=stats, **(new_row.operands(tensors) if new_row is not None else {}))
    flags = flags_of(part, given, SPLIT=splits > 1, **(new_row.flags(tensors) if new_row is not None else {}))
    defines = {
        "DIM": D,
        "DIM_V": E,
        "ROWS": made.rows,
        "KEYS": made.keys,
        "SHARE": made.share,
        "LANES": made.lanes,
        "TOGETHER": made.together,
        "FEW_QUADS": int(-(-D // (4 * made.share)) <= UNROLLED),
        "FEW_TURNS": int(made.keys * min(-(-E // 4), made.threads) <= UNROLLED * made.threads),
        **flags,
        # Where a row's lanes lie in several subgroups, workgroup memory takes them no more barriers.
        **(shuffled(target, made.lanes) if made.lanes <= target.subgroup else {}),
        **(fallback_flag(target, form.flops, LIGHT=1) if new_row is None else {}),
    }
    groups = made.groups(form)
    values = {
        **values_of(part, given.mask),
        "blocks": made.blocks(form),
        "splits": splits,
        "plane": groups,
        "jobs": groups * splits,
        "rows": form.rows,
        "split_stride": batch * heads * M * E,
        **(new_row.values if new_row is not None else {}),
    }
    first = launch("attention_few_queries", bound, target.fold(groups * splits), defines, values, form.flops)
    if stats is None:
        return (first,)
    return first, merge(target, form, given.y, stats, tensors, splits)


def merge_lanes(splits: int) -> int:
    """Invocations that share a result of `merge`: each waits for five splits, or for more where there are above 80.

    One alone reduces as many as a product would on the way (`MOST_SHARES` of `products/nbits.py`), in the same order.
    """
    return min(16, 1 << max(0, -(-splits // 5) - 1).bit_length())


def merge(
    target: Target, form: AttentionForm, part: Operand, stats: Operand, tensors: AttentionTensors, splits: int
) -> Dispatch:
    """y from the shares `part`, [splits, batch, heads, queries, components], and their maxima and divisors."""
    _, heads, M, _, _, E = form.sizes
    bound = {"parts": part, "stats": stats, "sink": tensors.sink, "y": tensors.y}
    lanes = merge_lanes(splits)
    given = {"DIM_V": E, "LANES": lanes, "TRIPS": min(UNROLLED, -(-splits // lanes))}
    defines = {**given, "VEC": form.is_quads, "EMPTY_ZERO": form.empty_zero, "SINK": tensors.sink}
    jobs = form.rows * -(-E // 4)
    groups = -(-jobs * lanes // WORKGROUP)
    counts = {"queries": M, "heads": heads, "rows": form.rows, "splits": splits, "jobs": jobs, "groups": groups}
    values = {"y_strides": form.y.strides, "base": form.y.base, **counts}
    rows = form.y == HeadView.flat(M, heads, E)
    partials = Partials(part, stats, form.empty_zero) if rows and form.is_quads and tensors.sink is None else None
    return replace(launch("attention_merge", bound, target.fold(groups), defines, values), partials=partials)


def attend_rows(target: Target, form: AttentionForm, tensors: AttentionTensors) -> Dispatch:
    """y by the kernel for adapters that run on a processor."""
    bound = named(tensors)
    workgroup = ROW_WORKGROUP if upper(form.rows) < 1024 else WORKGROUP
    defines = {"DIM": form.sizes[4], "DIM_V": form.sizes[5], "WG": workgroup, **flags_of(form, tensors)}
    values = {**values_of(form, tensors.mask), "rows": form.rows}
    return launch("attention_rows", bound, target.grid(form.rows, workgroup), defines, values, form.flops)
