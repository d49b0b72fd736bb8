"""Attributes, inputs and sizes of GroupQueryAttention. Source: com.microsoft operator GroupQueryAttention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import attributes
from pyruntime.ops.caches import CacheOp
from pyruntime.ops.microsoft.attention.packed_rows import row_bytes

__all__ = ["PER_ROW", "GroupQueryForm", "GroupQueryInputs", "GroupQuerySizes"]

T = TypeVar("T")

PER_ROW = "PER_ROW"
"""Quantization type of packed rows (`packed_rows.py`). onnxruntime does not have it."""


class GroupQueryInputs(NamedTuple, Generic[T]):
    """Types, arrays or operands in input order; None for an absent input."""

    query: T
    key: T | None
    value: T | None
    past_key: T | None
    past_value: T | None
    seqlens_k: T
    total_sequence_length: T
    cos_cache: T | None = None
    sin_cache: T | None = None
    position_ids: T | None = None
    attention_bias: T | None = None
    head_sink: T | None = None
    k_scale: T | None = None
    v_scale: T | None = None
    q_norm_weight: T | None = None
    k_norm_weight: T | None = None
    query_seqlens: T | None = None


@dataclass(frozen=True, slots=True)
class GroupQuerySizes:
    """Sizes: `new` rows follow `past` rows, and the output cache has `present` rows of `size` components."""

    batch: int
    queries: int
    new: int
    past: int
    present: int
    size: int


@attributes
class GroupQueryForm(CacheOp):
    """Attributes of GroupQueryAttention, and properties derived from them and the input types."""

    operands = GroupQueryInputs

    causal: int = 1
    do_rotary: int | None = None
    k_norm_epsilon: float | None = None
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int | None = None
    kv_num_heads: int
    local_window_size: int = -1
    num_heads: int
    q_norm_epsilon: float | None = None
    qk_norm_epsilon: float = 9.999999974752427e-07
    qk_output: int = 0
    rotary_interleaved: int | None = None
    scale: float | None = None
    sliding_window_cache: int = 0
    smooth_softmax: int = -1
    softcap: float | None = None
    v_quant_type: str = "NONE"

    @property
    def is_quantized(self) -> bool:
        """Whether the caches are quantized."""
        return self.k_quant_type != "NONE"

    @property
    def is_packed(self) -> bool:
        """Whether the caches have packed rows, each with its scale."""
        return self.k_quant_type == PER_ROW

    @property
    def bits(self) -> int:
        """Bits of a quantized component."""
        return self.kv_cache_bit_width or 8

    @property
    def quantized_dtype(self) -> DType:
        """Element type of quantized caches."""
        return DType.INT8 if self.bits == 8 and not self.is_packed else DType.UINT8

    def stored(self, size: int) -> int:
        """Return the number of stored elements of a cache row with `size` components."""
        if self.is_packed:
            return row_bytes(size, self.bits)
        return size // 2 if self.is_quantized and self.bits == 4 else size

    @property
    def epsilons(self) -> tuple[float, float]:
        """Epsilons of the RMS norms of queries and keys."""
        both = (self.q_norm_epsilon, self.k_norm_epsilon)
        q, k = (self.qk_norm_epsilon if e is None else e for e in both)
        return q, k

    @property
    def has_one_epsilon(self) -> bool:
        """Whether queries and keys are normalized with the same epsilon."""
        q, k = self.epsilons
        return q == k

    def sizes(self, *inputs: TensorType | None) -> GroupQuerySizes:
        """Return the sizes. Raises InvalidGraph, ValueNeeded."""
        given: GroupQueryInputs[TensorType] = GroupQueryInputs(*inputs)  # type: ignore[arg-type]
        query, key, value = given.query, given.key, given.value
        past_key, past_value = given.past_key, given.past_value
        if query is None or query.rank != 3:
            self.fail("a query of rank 3", query)
        heads, groups = self.num_heads, self.kv_num_heads
        if heads <= 0 or groups <= 0 or heads % groups:
            self.fail("num_heads a multiple of kv_num_heads", f"{heads} and {groups}")
        if (key is None) != (value is None):
            self.fail("key and value together", "one of them")
        batch, queries, width = query.shape
        parts = heads if key is not None else heads + 2 * groups
        if width % parts:
            self.fail(f"a query whose last dimension is a multiple of {parts} heads", query)
        size = width // parts
        new = queries if key is None or key.rank != 3 else key.shape[1]
        fresh = (batch, new, groups * size)
        if key is not None and value is not None and not key.shape == value.shape == fresh:
            self.fail(f"key and value of shape {list(fresh)}", f"{key} and {value}")
        if new not in (0, queries):
            self.fail(f"keys for {queries} queries, or none", new)
        if (past_key is None) != (past_value is None):
            self.fail("past_key and past_value together", "one of them")
        past = past_key.shape[2] if past_key is not None and past_key.rank == 4 else 0
        stored = self.stored(size)
        for x in (past_key, past_value):
            if x is not None and x.shape != (batch, groups, past, stored):
                self.fail(f"past_key and past_value of shape {[batch, groups, 'P', stored]}", x)
        return GroupQuerySizes(batch, queries, new, past, self._present(past, new, given), size)

    def _present(self, past: int, new: int, given: GroupQueryInputs[TensorType]) -> int:
        """Return the number of rows of the output caches."""
        if not past or not new or self.sliding_window_cache:
            return past or new
        total = self.total(past, new, given)
        if total == past + new:
            return past + new
        if total > past:
            self.fail(f"total_sequence_length {past + new}, or at most {past} for a cache that does not grow", total)
        return past

    def total(self, past: int, new: int, given: GroupQueryInputs[TensorType]) -> int:
        """Return total_sequence_length. Raises ValueNeeded if it does not follow from the shapes."""
        bias, total = given.attention_bias, given.total_sequence_length
        if bias is not None and bias.rank == 4:
            return bias.shape[3]
        if not past:
            return new
        if total.size != 1:
            self.fail("total_sequence_length to be one number", total)
        return total.ints()[0]

    def factor(self, size: int) -> float:
        """Return the scale of the scores."""
        return self.scale or 1.0 / math.sqrt(max(size, 1))

    @property
    def cap(self) -> float:
        """Softcap of the scores; 0: none."""
        return max(0.0, self.softcap or 0.0)

    @property
    def before(self) -> int:
        """Number of keys visible before a query's position; -1: all."""
        return self.local_window_size - 1 if self.local_window_size > 0 else -1
