"""What an attention is: sizes, views, which keys a query sees, and the tensors it binds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from pyruntime.ir import Array, DType, exact_quotient, is_dim, multiple, upper
from pyruntime.kernels.ir.dispatch import Operand, scratch
from pyruntime.kernels.ir.indexing import broadcast_strides, contiguous

__all__ = [
    "ALL_KEYS",
    "AttentionForm",
    "AttentionProblem",
    "AttentionTensors",
    "HeadView",
    "Reach",
    "flags_of",
    "in_shares",
    "named",
    "values_of",
]


@dataclass(frozen=True, slots=True)
class HeadView:
    """Where component (batch, head, position, component) of a tensor is: `base` and strides, in elements."""

    base: int
    strides: tuple[int, int, int, int]

    @staticmethod
    def of(x: Operand) -> HeadView:
        """All of a tensor [batch, heads, positions, components] as it lies."""
        batch, head, position, component = contiguous(x.type.shape)
        return HeadView(0, (batch, head, position, component))

    @staticmethod
    def flat(positions: int, heads: int, size: int) -> HeadView:
        """All of a tensor [batch, positions, heads * components]."""
        return HeadView(0, (positions * heads * size, size, heads * size, 1))

    @staticmethod
    def dense(heads: int, positions: int, size: int) -> HeadView:
        """All of a tensor [batch, heads, positions, components]."""
        return HeadView(0, (heads * positions * size, positions * size, size, 1))

    def array(self, x: Array, shape: tuple[int, ...]) -> Array:
        """Return the elements of an array that the view addresses, in this shape, without copying."""
        flat = np.ascontiguousarray(x).reshape(-1)[self.base :]
        steps = tuple(s * flat.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False)

    def in_capacity(self, shape: tuple[int, ...], axis: int, rows: int) -> HeadView | None:
        """The same components where the tensor of `shape` is the first rows, along `axis`, of one that has `rows`.

        None where strides do not tell what they count.
        """
        inner = math.prod(shape[axis + 1 :])
        block = shape[axis] * inner
        moved: list[int] = []
        for step in (self.base, *self.strides):
            blocks = exact_quotient(step, block)
            if blocks is None and is_dim(step):
                return None
            moved.append(step if blocks is None else blocks * rows * inner)
        base, *strides = moved
        batch, head, position, component = strides
        return HeadView(base, (batch, head, position, component))

    @property
    def is_quads(self) -> bool:
        """True where components are contiguous and everything else lies at multiples of four."""
        return self.strides[3] == 1 and all(multiple(s, 4) for s in (self.base, *self.strides[:3]))


@dataclass(frozen=True, slots=True)
class Reach:
    """Which keys a query sees: those from its position - `before` to its position + `after`; -1: all on that side.

    Attributes:
        first: position of the first query among the keys, where no lengths are bound.
        lacking: what is to be added to the bound lengths (1 for lengths less one).
    """

    before: int = -1
    after: int = -1
    first: int = 0
    lacking: int = 0

    @property
    def is_all(self) -> bool:
        """True where positions do not matter."""
        return self.before < 0 and self.after < 0

    def keys(self, queries: int, keys: int) -> int:
        """At most this many keys are seen by some query."""
        if self.before < 0:
            return keys
        return min(keys, self.before + queries + (max(self.after, 0) if self.after >= 0 else keys))


ALL_KEYS = Reach()


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """softmax(mask + cap(scale * q kᵀ)) v.

    Attributes:
        sizes: batch, heads, queries, keys, components of queries and keys, components of values.
        q, k, v, y: where the tensors' components are.
        empty_zero: rows that see no key, or whose every key is masked by -infinity, are 0 instead of NaN.
        group: heads of q that share a head of k and v.
        cap: scores become cap * tanh(score / cap); 0: they stay.
    """

    sizes: tuple[int, int, int, int, int, int]
    q: HeadView
    k: HeadView
    v: HeadView
    y: HeadView
    scale: float
    empty_zero: bool
    group: int = 1
    cap: float = 0.0
    reach: Reach = field(default=ALL_KEYS)

    @property
    def heads(self) -> int:
        """Heads of all batch entries."""
        return self.sizes[0] * self.sizes[1]

    @property
    def rows(self) -> int:
        """Queries of all heads."""
        return self.heads * self.sizes[2]

    @property
    def flops(self) -> int:
        """A multiplication and an addition for every component of every score and every result."""
        return 2 * self.rows * self.sizes[3] * (self.sizes[4] + self.sizes[5])

    @property
    def is_quads(self) -> bool:
        """True where all tensors can be read and written in vec4s."""
        whole = self.sizes[4] % 4 == 0 and self.sizes[5] % 4 == 0
        return whole and all(v.is_quads for v in (self.q, self.k, self.v, self.y))


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """An attention for the choice of its kernel: the most its sizes can be.

    Attributes:
        heads: of q, of all batch entries. group: those that share a head of k and v.
        seen: keys that some query sees.
        half: keys and values are float16, and the device has shader-f16. half_q: so are queries.
    """

    heads: int
    queries: int
    keys: int
    size: int
    v_size: int
    group: int
    seen: int
    half: bool = False
    half_q: bool = False

    @staticmethod
    def of(form: AttentionForm, half: bool = False, half_q: bool = False) -> AttentionProblem:
        """Return the problem of an attention, for the choice of its kernel."""
        batch, heads, queries, keys, size, v_size = map(upper, form.sizes)
        seen = form.reach.keys(queries, keys)
        return AttentionProblem(batch * heads, queries, keys, size, v_size, form.group, seen, half, half and half_q)

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """Batch, heads, queries, keys and head sizes, in the order of `AttentionForm.sizes`."""
        return 1, self.heads, self.queries, self.keys, self.size, self.v_size

    @property
    def rows(self) -> int:
        """Queries of all heads."""
        return self.heads * self.queries

    @property
    def key(self) -> str:
        """'12x128x128x64': heads, queries, keys, components, those of values; then what else matters.

        Heads in a group, keys that are seen, and 'f16' where all is float16, 'kv16' where keys and values are.
        """
        values = f"x{self.v_size}" if self.v_size != self.size else ""
        group = f" g{self.group}" if self.group > 1 else ""
        seen = f" s{self.seen}" if self.seen < self.keys else ""
        half = (" f16" if self.half_q else " kv16") if self.half else ""
        return f"{self.heads}x{self.queries}x{self.keys}x{self.size}{values}{group}{seen}{half}"

    @property
    def form(self) -> AttentionForm:
        """As an attention of whole tensors, [1, heads, positions, components]."""
        view, shared = HeadView.dense, self.heads // self.group
        views = (
            view(self.heads, self.queries, self.size),
            view(shared, self.keys, self.size),
            view(shared, self.keys, self.v_size),
            view(self.heads, self.queries, self.v_size),
        )
        # A window that ends with the last key: as many keys as are seen.
        reach = Reach(self.seen - self.queries, 0, self.keys - self.queries) if self.seen < self.keys else ALL_KEYS
        return AttentionForm(self.sizes, *views, 1.0, False, self.group, reach=reach)


@dataclass(frozen=True, slots=True)
class AttentionTensors:
    """The tensors of an attention.

    Attributes:
        mask: added to the scores, broadcasts to [batch, heads, queries, keys].
        lengths: int32 or int64 [batch]: the keys there are, less `Reach.lacking`; the queries are the last of them.
        prompt: int32 [1]: where it is the number of queries, these are the first positions whatever the lengths.
        sink: [heads]: a score of a key without value.
        cache_bits: of the components of k and v, packed rows with views in bytes (`kernels.attention.packed_cache`);
            0: they are tensors of numbers.
    """

    q: Operand
    k: Operand
    v: Operand
    y: Operand
    mask: Operand | None = None
    lengths: Operand | None = None
    prompt: Operand | None = None
    sink: Operand | None = None
    cache_bits: int = 0


def named(tensors: AttentionTensors, **others: Operand | None) -> dict[str, Operand]:
    """Return the operands that are present, by their names in shaders; `others` replace or add some."""
    names = ("q", "k", "v", "mask", "lengths", "prompt", "sink", "y")
    given = {**{n: getattr(tensors, n) for n in names}, **others}
    return {n: x for n, x in given.items() if x is not None}


def in_shares(
    form: AttentionForm, tensors: AttentionTensors, splits: int
) -> tuple[AttentionForm, AttentionTensors, Operand | None]:
    """Return what each of so many shares of the keys makes, and where it leaves maxima and divisors for `merge`."""
    if splits == 1:
        return form, tensors, None
    batch, heads, queries, _, _, size = form.sizes
    y = scratch(DType.FLOAT, splits, batch, heads, queries, size)
    part = replace(form, y=HeadView.dense(heads, queries, size), empty_zero=False)
    return part, replace(tensors, y=y, sink=None), scratch(DType.FLOAT, splits, form.rows, 2)


def flags_of(form: AttentionForm, tensors: AttentionTensors, **others: object) -> dict[str, int]:
    """Conditions that every attention shader has, and others: those that are met."""
    lengths = tensors.lengths
    flags = {
        "VEC": form.is_quads,
        "MASK": tensors.mask,
        "EMPTY_ZERO": form.empty_zero,
        "CAP": form.cap > 0,
        "SINK": tensors.sink,
        "RANGE": lengths is not None or not form.reach.is_all,
        "LENGTHS": lengths,
        "LONG": lengths is not None and lengths.type.dtype is DType.INT64,
        "PROMPT": tensors.prompt,
        "PACKED_ROWS": tensors.cache_bits,
        "NIBBLES": tensors.cache_bits == 4,
        **others,
    }
    return {name: 1 for name, on in flags.items() if on}


def values_of(form: AttentionForm, mask: Operand | None) -> dict[str, float | int | list[int] | tuple[int, ...]]:
    """Return the fields of `Params` that all attention shaders have."""
    _, heads, queries, keys, _, _ = form.sizes
    reach = form.reach
    return {
        "q_strides": form.q.strides,
        "k_strides": form.k.strides,
        "v_strides": form.v.strides,
        "y_strides": form.y.strides,
        "mask_strides": tuple(broadcast_strides(mask.type.shape, form.sizes[:4])) if mask is not None else (),
        "bases": [form.q.base, form.k.base, form.v.base, form.y.base],
        "reach": [reach.first, reach.before, reach.after, reach.lacking],
        "queries": queries,
        "keys": keys,
        "heads": heads,
        "group": form.group,
        "scale": form.scale,
        "cap": form.cap,
    }
