"""MultiHeadAttention: attention with additive masks and KV caches. Source: com.microsoft.MultiHeadAttention."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, out
from pyruntime.kernels.attention.description import HeadView
from pyruntime.ops.base import Unsupported, attributes_of, op
from pyruntime.ops.caches import CacheOp
from pyruntime.ops.microsoft.attention.evaluation import heads_of, packed
from pyruntime.ops.microsoft.attention.masked import Added, Cache, Caches, Results, Rows, attend_masked, lower_masked
from pyruntime.ops.microsoft.attention.masks import MaskedHeads, check_bias, check_mask, filter_of, lowest
from pyruntime.ops.movement.append_rows import AppendsToCaches
from pyruntime.ops.operands import bound, index_of, types_of

_FLOATS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)

T = TypeVar("T")


class MultiHeadInputs(NamedTuple, Generic[T]):
    """Types, arrays or operands in input order; None for an absent input."""

    query: T
    key: T | None = None
    value: T | None = None
    bias: T | None = None
    key_padding_mask: T | None = None
    attention_bias: T | None = None
    past_key: T | None = None
    past_value: T | None = None
    past_sequence_length: T | None = None
    cache_indirection: T | None = None


@op("MultiHeadAttention", opsets=range(1, 2), domain="com.microsoft")
class MultiHeadAttention(CacheOp):
    """y = softmax(scale · (q + bias_q) (k + bias_k)ᵀ + mask + attention_bias) (v + bias_v).

    Layouts: query [B, S, H·D], key [B, N, H·D], value [B, N, H·E]; or key and value [B, H, N, ·] (cross-attention); or
    key [B, N, H, 2, D] with the values packed in; or query [B, S, H, 3, D] with all three. bias: [2·H·D + H·E], added
    to the query only if key and value have rank 4. key_padding_mask: see `masks.py`; it adds `mask_filter_value`.
    attention_bias: [B or 1, H or 1, S, T]. past_key, past_value: [B, H, P, ·]; new rows are appended, or, with
    past_sequence_length (int32 [1]), overwrite the rows from there on. `unidirectional` is causal masking; the first
    query follows the past. cache_indirection (beam search) is not supported.

    Outputs: y [B, S, H·E], present_key and present_value [B, H, T, ·], and qk [B, H, S, T], the input of the softmax.
    Computed in float32 and rounded once.
    """

    operands = MultiHeadInputs

    mask_filter_value: float | None = None
    num_heads: int
    scale: float | None = None
    unidirectional: int = 0

    def sizes(self, *inputs: Any) -> MaskedHeads:
        """Return the sizes of the attention. Raises InvalidGraph."""
        given: MultiHeadInputs[TensorType] = MultiHeadInputs(*inputs)
        query, key, value, bias, _, _, past_key, past_value, length, beams = given
        heads = self.num_heads
        if beams is not None and length is not None and beams.shape[1] > 1:
            self.fail("no cache_indirection: beams are not supported", beams)
        if query.rank not in (3, 5) or heads <= 0:
            self.fail("a query of rank 3 or 5 and num_heads > 0", query)
        batch, queries = query.shape[:2]
        size = query.shape[4] if query.rank == 5 else query.shape[2] // heads
        wanted: tuple[Any, Any] = (None, None)
        new, v_size = queries, size
        if query.rank == 5:
            fits = query.shape == (batch, queries, heads, 3, size) and key is None and value is None
        elif key is not None and key.rank == 5:
            new = key.shape[1]
            fits = key.shape == (batch, new, heads, 2, size) and value is None
        elif key is not None and value is not None and key.rank == value.rank == 4:
            new, v_size = key.shape[2], value.shape[3]
            wanted = ((batch, heads, new, size), (batch, heads, new, v_size))
            fits = (key.shape, value.shape) == wanted
        elif key is not None and value is not None and key.rank == value.rank == 3:
            new, v_size = key.shape[1], value.shape[2] // heads
            wanted = ((batch, new, heads * size), (batch, new, heads * v_size))
            fits = (key.shape, value.shape) == wanted
        else:
            fits = False
        if not fits or (query.rank == 3 and query.shape[2] != heads * size):
            self.fail(f"query, key and value of {heads} heads with matching shapes", f"{query}, {key}, {value}")
        width = heads * (2 * size + v_size)
        if bias is not None and bias.shape != (width,):
            self.fail(f"a bias of shape [{width}]", bias)
        past = past_key.shape[2] if past_key is not None and past_key.rank == 4 else 0
        for x, d in ((past_key, size), (past_value, v_size)):
            if (past_key is None) != (past_value is None) or (x and x.shape != (batch, heads, past, d)):
                self.fail(f"past_key and past_value of shape {[batch, heads, past, d]}", f"{past_key}, {past_value}")
        shared = length is not None and past_key is not None
        if shared and length is not None and (length.dtype is not DType.INT32 or length.size != 1):
            self.fail("past_sequence_length of one int32", length)
        made = (batch, heads, queries, new, past, size, v_size, self.scale, filter_of(self.mask_filter_value))
        return MaskedHeads(*made, causal=bool(self.unidirectional), shared=shared)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        given: MultiHeadInputs[TensorType] = MultiHeadInputs(*inputs)
        s = self.sizes(*inputs)
        tensors = given._replace(key_padding_mask=None, past_sequence_length=None, cache_indirection=None)
        dtype = self.same_dtype(*tensors)
        if dtype not in _FLOATS:
            self.fail("a query of float, float16 or bfloat16", given.query)
        check_mask(self, given.key_padding_mask, s)
        check_bias(self, given.attention_bias, s)
        made = (
            TensorType(dtype, (s.batch, s.queries, s.heads * s.v_size)),
            TensorType(dtype, (s.batch, s.heads, s.present, s.size)),
            TensorType(dtype, (s.batch, s.heads, s.present, s.v_size)),
        )
        if not self.wants(3):
            return made
        total = s.present
        if s.shared and given.past_sequence_length is not None:
            total = given.past_sequence_length.ints()[0] + s.new
        return (*made, TensorType(dtype, (s.batch, s.heads, s.queries, total)))

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        given: Any = MultiHeadInputs(*inputs)
        query, key, value, bias, mask, attention_bias, past_key, past_value, length, _ = given
        s = self.sizes(*types_of(inputs))
        if query.ndim == 5:
            parts = [query[:, :, :, i].swapaxes(1, 2).astype(np.float32) for i in range(3)]
        elif key.ndim == 5:
            parts = [heads_of(query, s.heads), *(key[:, :, :, i].swapaxes(1, 2).astype(np.float32) for i in range(2))]
        elif key.ndim == 4:
            parts = [heads_of(query, s.heads), key.astype(np.float32), value.astype(np.float32)]
        else:
            parts = [heads_of(x, s.heads) for x in (query, key, value)]
        if bias is not None:
            split = np.split(bias.astype(np.float32), [s.heads * s.size, 2 * s.heads * s.size])
            added = 1 if key is not None and key.ndim == 4 else 3
            parts[:added] = [x + b.reshape(s.heads, 1, -1) for x, b in zip(parts[:added], split, strict=False)]
        past_length = int(length.reshape(-1)[0]) if s.shared else None
        y, k, v, scores = attend_masked(s, parts, (past_key, past_value), mask, attention_bias, past_length)
        kind = query.dtype
        made = (packed(y).astype(kind), k.astype(kind), v.astype(kind))
        if not self.wants(3):
            return made
        hidden = np.float32(lowest(DType.from_numpy(kind)))
        return (*made, np.where(np.isneginf(scores.before), hidden, scores.before).astype(kind))

    def appends(self, *inputs: Any) -> dict[int, tuple[int, int]]:
        s = self.sizes(*inputs)
        whole = s.size % 4 == 0 and s.v_size % 4 == 0
        if MultiHeadInputs(*inputs).past_key is None or not whole or s.shared:
            return {}
        return {1: (index_of(MultiHeadInputs, "past_key"), 2), 2: (index_of(MultiHeadInputs, "past_value"), 2)}

    def append_in_place(self, *inputs: Any) -> _AppendsInPlace:
        return _AppendsInPlace(**attributes_of(self), past_rows=self.sizes(*inputs).past)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        given: MultiHeadInputs[Operand] = bound(MultiHeadInputs, inputs)
        s, outs = self.sizes(*inputs), self.infer(*inputs)
        if not s.present or not s.size:
            raise Unsupported("no keys")
        keys, values = (out(i, outs[i]) if self.wants(i) else None for i in (1, 2))
        caches = Caches(
            Cache(given.past_key, keys),
            Cache(given.past_value, values),
            given.past_sequence_length if s.shared else None,
            in_place=bool(self.overwrites),
        )
        y = (out(0, outs[0]), HeadView.flat(s.queries, s.heads, s.v_size)) if self.wants(0) else None
        results = Results(y, out(3, outs[3]) if self.wants(3) else None)
        added = Added(given.key_padding_mask, given.attention_bias)
        return tuple(lower_masked(target, s, _rows(s, given), caches, added, results))


def _rows(s: MaskedHeads, given: MultiHeadInputs[Operand]) -> tuple[Rows, Rows, Rows]:
    """Return the views of query, key and value in each supported layout, with the bias of each."""
    query, key, value, bias = given.query, given.key, given.value, given.bias
    qk = s.heads * s.size
    biases = [None if bias is None else (bias, first) for first in (0, qk, 2 * qk)]
    q_rows = Rows(query, HeadView.flat(s.queries, s.heads, s.size), biases[0])
    if key is None or key.type.rank == 5:
        parts = 3 if key is None else 2
        of, rows = (query, s.queries) if key is None else (key, s.new)
        step = s.heads * parts * s.size
        views = [HeadView(p * s.size, (rows * step, parts * s.size, step, 1)) for p in range(parts)]
        made = [Rows(of, v, b) for v, b in zip(views, biases[3 - parts :], strict=True)]
        return (made[0], made[1], made[2]) if parts == 3 else (q_rows, made[0], made[1])
    assert value is not None
    if key.type.rank == 4:
        return q_rows, Rows(key, HeadView.of(key)), Rows(value, HeadView.of(value))
    k_rows = Rows(key, HeadView.flat(s.new, s.heads, s.size), biases[1])
    return q_rows, k_rows, Rows(value, HeadView.flat(s.new, s.heads, s.v_size), biases[2])


@op("MultiHeadAttention", opsets=range(1, 2), domain="pyruntime")
class _AppendsInPlace(AppendsToCaches, MultiHeadAttention):
    """MultiHeadAttention that appends in place to caches [B, H, C, ·], of which `past_rows` rows are valid."""
