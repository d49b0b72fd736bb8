"""GroupQueryAttention: causal attention with a KV cache. Source: com.microsoft operator GroupQueryAttention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.ir import Array, Bound, DType, TensorType, has_dims, known
from pyruntime.kernels import Dispatch, Target
from pyruntime.ops.attention.rotary import position_bound
from pyruntime.ops.base import Unsupported, attributes_of, op
from pyruntime.ops.caches import Rewritten
from pyruntime.ops.decomposed import Decomposed, Expansion, SometimesDecomposed
from pyruntime.ops.microsoft.attention.group_query_evaluation import evaluate_group_query
from pyruntime.ops.microsoft.attention.group_query_form import (
    PER_ROW,
    GroupQueryForm,
    GroupQueryInputs,
    GroupQuerySizes,
)
from pyruntime.ops.microsoft.attention.group_query_lowering import lower_group_query
from pyruntime.ops.microsoft.attention.sliding_cache import slide
from pyruntime.ops.movement.append_rows import AppendsToCaches
from pyruntime.ops.operands import index_of

__all__ = ["GroupQueryAttention"]

_FLOATS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)
PAST_KEY, PAST_VALUE = (index_of(GroupQueryInputs, name) for name in ("past_key", "past_value"))
_KINDS = ("NONE", "PER_TENSOR", "PER_CHANNEL", PER_ROW)


@op("GroupQueryAttention", opsets=range(1, 2), domain="com.microsoft")
class GroupQueryAttention(GroupQueryForm, SometimesDecomposed):
    """y = softmax(cap(scale · q kᵀ) + attention_bias) v, over the keys that each query sees.

    query: [B, S, H·D], key and value: [B, N, G·D]; or all three packed along the last axis of query. H is a multiple of
    G. past_key, past_value: [B, G, P, D]; seqlens_k: int32 [B], number of keys of each batch entry minus 1;
    total_sequence_length: int32 scalar, the maximum number of keys. cos_cache, sin_cache: [positions, R / 2], R <= D.
    attention_bias: [B or 1, H or 1, S, total]. head_sink: [H]. Outputs: y [B, S, H·D]; present_key, present_value: the
    cache with the new rows; output_qk [B, H, S, total]: the scores before (`qk_output` 1; 0 for hidden keys) or after
    (2) the softmax.

    - The queries are the last positions of a batch entry: the first is at position seqlens_k + 1 - S. In a first
      prompt, where total_sequence_length is S, they start at 0. Entries may then be shorter than S, and the outputs of
      rows past their end are undefined.
    - A query at position i sees keys j <= i, and with `local_window_size` w only those with j > i - w. With `causal` 0
      it sees all keys of its batch entry.
    - If P = total - N, the cache grows: present has `total` rows. If P >= total, present has P rows, of which those
      from total on are undefined. total_sequence_length distinguishes the two cases, so planning needs its value where
      P and N are positive, unless the shape of attention_bias gives it.
    - N = 0: the cache belongs to another layer and is not changed.
    - Query and key are normalized (q_norm_weight, k_norm_weight [D]; `q_norm_epsilon` and `k_norm_epsilon`, by default
      `qk_norm_epsilon`), then rotated at position_ids (int64 [B, S]) or their positions. The cache holds rotated keys.
      (In a first prompt onnxruntime's CPU provider reads only the first of position_ids and counts on from there.)
    - query_seqlens, int32 [B], is the number of tokens in the rows of each batch entry; the others are padding on the
      right, are not cached, and have undefined outputs. The first token is at position seqlens_k + 1 - query_seqlens,
      and total_sequence_length is only a bound. Runs on the host.
    - `smooth_softmax` 1 adds exp(0) to the divisor of the softmax, head_sink adds exp(sink).
    - int8 caches hold round(x / scale). uint8 caches (`kv_cache_bit_width` 4) hold pairs of such 4-bit values plus 8,
      low bits first. Scales are float [1] or, PER_CHANNEL, [G·D]. The quantization type PER_ROW, which onnxruntime
      lacks, stores a scale in each row (`packed_rows.py`) instead of scale inputs.
    - `sliding_window_cache`: the cache holds only the last rows (`sliding_cache.py`). Prompts with several batch
      entries, attention_bias and output_qk then run on the host.

    Computed in float32 and rounded once.
    """

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        given: GroupQueryInputs[TensorType] = GroupQueryInputs(*inputs)
        s = self.sizes(*inputs)
        self._check(s, given)
        cache = given.query.dtype
        if given.past_key is not None:
            cache = given.past_key.dtype
        elif self.is_quantized:
            cache = self.quantized_dtype
        present = TensorType(cache, (s.batch, self.kv_num_heads, s.present, self.stored(s.size)))
        made = (TensorType(given.query.dtype, (s.batch, s.queries, self.num_heads * s.size)), present, present)
        if not self.wants(3):
            return made
        total = self.total(s.past, s.new, given)
        return (*made, TensorType(given.query.dtype, (s.batch, self.num_heads, s.queries, total)))

    def _check(self, s: GroupQuerySizes, given: GroupQueryInputs[TensorType]) -> None:
        """Raise InvalidGraph where types and shapes of the inputs do not match."""
        query, lengths, total = given.query, given.seqlens_k, given.total_sequence_length
        if query.dtype not in _FLOATS:
            self.fail("a query of float, float16 or bfloat16", query)
        norms = (given.q_norm_weight, given.k_norm_weight)
        floats = (given.key, given.value, given.cos_cache, given.sin_cache, given.attention_bias, given.head_sink)
        self.same_dtype(query, *floats, *norms)
        if lengths.dtype is not DType.INT32 or lengths.size != s.batch:
            self.fail(f"seqlens_k of int32 [{s.batch}]", lengths)
        if total.dtype is not DType.INT32 or total.size != 1:
            self.fail("total_sequence_length of one int32", total)
        self._check_rotary(s, given)
        bias, sink, valid = given.attention_bias, given.head_sink, given.query_seqlens
        if bias is not None:
            lead = (s.batch, self.num_heads, s.queries)
            if bias.rank != 4 or any(d not in (1, n) for d, n in zip(bias.shape[:2], lead, strict=False)):
                self.fail(f"attention_bias of shape [{s.batch} or 1, {self.num_heads} or 1, {s.queries}, total]", bias)
            if bias.shape[2] != s.queries:
                self.fail(f"attention_bias for {s.queries} queries", bias)
        if sink is not None and sink.shape != (self.num_heads,):
            self.fail(f"head_sink of shape [{self.num_heads}]", sink)
        if (norms[0] is None) != (norms[1] is None):
            self.fail("q_norm_weight and k_norm_weight together", "one of them")
        for weight in norms:
            if weight is not None and weight.shape != (s.size,):
                self.fail(f"q_norm_weight and k_norm_weight of shape [{s.size}]", weight)
        if not self.causal and self.local_window_size > 0:
            self.fail("local_window_size -1 where causal is 0", self.local_window_size)
        if self.sliding_window_cache and not (given.past_key and 0 < self.local_window_size <= s.past):
            self.fail("a cache of at least local_window_size > 0 rows with sliding_window_cache", given.past_key)
        if valid is not None:
            if valid.dtype is not DType.INT32 or valid.shape != (s.batch,):
                self.fail(f"query_seqlens of int32 [{s.batch}]", valid)
            if not self.causal or given.past_key is None or s.new != s.queries:
                self.fail("causal 1, past caches and as many keys as queries with query_seqlens", given.past_key)
        self._check_quantized(s, given)

    def _check_rotary(self, s: GroupQuerySizes, given: GroupQueryInputs[TensorType]) -> None:
        cosines, sines, positions = given.cos_cache, given.sin_cache, given.position_ids
        if self.do_rotary and (cosines is None or sines is None):
            self.fail("cos_cache and sin_cache with do_rotary", "none")
        if cosines is not None and sines is not None:
            fits = cosines.rank == 2 and cosines.shape == sines.shape and 2 * cosines.shape[1] <= s.size
            if not fits or not cosines.shape[0]:
                self.fail(f"cos_cache and sin_cache of one shape [positions, at most {s.size // 2}]", cosines)
        if positions is not None and positions.shape != (s.batch, s.queries):
            self.fail(f"position_ids of shape {[s.batch, s.queries]}", positions)

    def _check_quantized(self, s: GroupQuerySizes, given: GroupQueryInputs[TensorType]) -> None:
        kinds = (self.k_quant_type, self.v_quant_type)
        alone = any(one in kinds and kinds != (one, one) for one in ("NONE", PER_ROW))
        if any(k not in _KINDS for k in kinds) or alone:
            self.fail(f"k_quant_type and v_quant_type in {', '.join(_KINDS)}, both NONE or {PER_ROW} or neither", kinds)
        wanted = given.query.dtype
        if self.is_packed and self.sliding_window_cache:
            self.fail(f"no sliding_window_cache with caches of type {PER_ROW}", self.sliding_window_cache)
        if self.is_quantized:
            if self.bits not in (4, 8) or s.size % 8:
                self.fail("kv_cache_bit_width 4 or 8 and heads of a multiple of 8", f"{self.bits} and {s.size}")
            wanted = self.quantized_dtype
        if self.is_quantized and not self.is_packed:
            for scale, kind in ((given.k_scale, kinds[0]), (given.v_scale, kinds[1])):
                count = 1 if kind == "PER_TENSOR" else self.kv_num_heads * s.size
                if scale is None or scale.size != count or scale.dtype is not DType.FLOAT:
                    self.fail(f"k_scale and v_scale of {count} floats for {kind}", scale)
        for x in (given.past_key, given.past_value):
            if x is not None and x.dtype is not wanted:
                self.fail(f"caches of {wanted.type_string}", x)

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        given: GroupQueryInputs[TensorType] = GroupQueryInputs(*inputs)
        present, fields = self.sizes(*inputs).present, GroupQueryInputs._fields
        step = "give the number of keys that there are, less 1, or larger caches"
        lengths = Bound(fields.index("seqlens_k"), 0, present - 1, "lengths", "the rows of present_key", step)
        found = [] if self.sliding_window_cache else [lengths]
        if given.query_seqlens is not None:
            valid = fields.index("query_seqlens")
            found.append(Bound(valid, 0, given.query.shape[1], "lengths", "the rows of query", "give fewer tokens"))
        if self.do_rotary and given.cos_cache is not None:
            name = "seqlens_k" if given.position_ids is None else "position_ids"
            rows = given.cos_cache.shape[0]
            found.append(position_bound(fields.index(name), rows))
            if given.position_ids is None:
                total, step = fields.index("total_sequence_length"), "give fewer tokens or larger caches"
                found.append(Bound(total, 1, rows, "total_sequence_length", "the rows of cos_cache", step))
        return found

    def instead(self, *inputs: Any) -> Decomposed | None:
        given: GroupQueryInputs[TensorType] = GroupQueryInputs(*inputs)
        if not self.sliding_window_cache or self.wants(3):
            return None
        if given.attention_bias is not None or given.query_seqlens is not None:
            return None
        s = self.sizes(*inputs)
        if has_dims(TensorType(DType.INT32, (s.batch, s.new, s.past, s.size))):
            return None  # _Sliding needs constant numbers of rows
        if not s.new or (s.new > 1 and s.batch > 1):
            return None  # batch entries may be shorter than the prompt
        self.infer(*inputs)
        return _Sliding(attention=self, present=self.present)

    def evaluate(self, *inputs: Array | None) -> tuple[Array, ...]:
        types: list[Any] = [
            None if x is None else known(TensorType(DType.from_numpy(x.dtype), x.shape), x) for x in inputs
        ]
        for bound in self.bounds(*types):
            bound.check(inputs[bound.input])  # type: ignore[arg-type]
        return evaluate_group_query(self, self.sizes(*types), GroupQueryInputs(*inputs))  # type: ignore[arg-type]

    def appends(self, *inputs: TensorType | None) -> dict[int, tuple[int, int]]:
        s = self.sizes(*inputs)
        if not self._writes_words(s, *inputs) or s.present == s.past:
            return {}
        return {1: (PAST_KEY, 2), 2: (PAST_VALUE, 2)}

    def _writes_words(self, s: GroupQuerySizes, *inputs: TensorType | None) -> bool:
        """Whether all new rows go to a cache and are whole 32-bit words, so that no store touches another row."""
        if GroupQueryInputs(*inputs).query_seqlens is not None:
            return False
        words = 8 if self.is_quantized and self.bits == 4 else 4
        return bool(s.past and s.new and not self.sliding_window_cache and s.size % words == 0)

    def rewrites(self, *inputs: TensorType | None) -> dict[int, Rewritten]:
        """Return the caches that do not grow, whose rows past total_sequence_length are undefined."""
        s = self.sizes(*inputs)
        if not self._writes_words(s, *inputs) or s.present > s.past:
            return {}
        total = self.total(s.past, s.new, GroupQueryInputs(*inputs))  # type: ignore[arg-type]
        lengths = index_of(GroupQueryInputs, "seqlens_k")
        first, end, known = (lengths, 1 - s.queries), (lengths, 1), (total - s.new, total)
        if total == s.queries:
            first, end = (-1, 0), (-1, total)
        return {i: Rewritten(past, 2, first, end, known) for i, past in ((1, PAST_KEY), (2, PAST_VALUE))}

    def rewrite_in_place(self, *inputs: TensorType | None) -> _RewritesInPlace:
        return _RewritesInPlace(**attributes_of(self))

    def append_in_place(self, *inputs: TensorType | None) -> _AppendsInPlace:
        return _AppendsInPlace(**attributes_of(self), past_rows=self.sizes(*inputs).past)

    def lower(self, target: Target, *inputs: TensorType | None) -> tuple[Dispatch, ...]:
        if self.sliding_window_cache:
            raise Unsupported("a sliding-window cache with a bias, or with several prompts, is computed on the host")
        given: GroupQueryInputs[TensorType] = GroupQueryInputs(*inputs)  # type: ignore[arg-type]
        return lower_group_query(self, target, self.sizes(*given), given, self.infer(*given))


@op("GroupQueryAttentionInPlace", opsets=range(1, 2), domain="pyruntime")
class _RewritesInPlace(GroupQueryAttention):
    """GroupQueryAttention that writes new rows in place into caches that do not grow."""

    @property
    def overwrites(self) -> dict[int, int]:
        return {1: PAST_KEY, 2: PAST_VALUE}


@op("GroupQueryAttention", opsets=range(1, 2), domain="pyruntime")
class _AppendsInPlace(AppendsToCaches, GroupQueryAttention):
    """GroupQueryAttention that appends new rows in place to caches with unused capacity.

    past_key, past_value: [B, G, C, D] with `past_rows` valid rows; present_key and present_value share their memory.
    """


@op("GroupQueryAttentionSliding", opsets=range(1, 2), domain="pyruntime")
class _Sliding(Decomposed):
    """Decomposition of `attention`, a GroupQueryAttention with a sliding-window cache."""

    attention: Any

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        return slide(self.attention, body, GroupQueryInputs(*inputs))
