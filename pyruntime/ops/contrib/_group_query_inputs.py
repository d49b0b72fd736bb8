"""The inputs of GroupQueryAttention by name. Source: com.microsoft operator GroupQueryAttention."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

__all__ = ["GroupQueryInputs"]

T = TypeVar("T")


class GroupQueryInputs(NamedTuple, Generic[T]):
    """Types, arrays or operands in the operator's order; None where an input is absent."""

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
