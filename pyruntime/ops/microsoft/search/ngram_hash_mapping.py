"""Hashes of the n-grams that end at each token, as rows of embedding tables. Source: com.microsoft operators.

    NGramHashMapping        ids [B, L], of B sequences
    VarlenNGramHashMapping  ids [T], of concatenated sequences

For n from 2 to N and each of the H heads per n, hash = mix mod vocabulary, where mix is the xor over k < n of the
wrapping products id[t - k] · multiplier[k]. Ids before a sequence come from `past_ids`, or are the fill id:
eos_token_id, or else `pad_id`. The fill id also replaces hidden ids: with `reset_on_eos` those up to the last eos
before the token, with segment ids those of earlier segments. Runs on the host only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import Op, attributes, op
from pyruntime.ops.operands import named


@attributes
class _Mapping(Op):
    """Hashes n-grams in rows of ids."""

    reset_on_eos: int = 0
    pad_id: int
    n_head_per_ngram: int
    max_ngram_size: int

    @property
    def history(self) -> int:
        """Number of preceding ids that the hashes of a token depend on."""
        return self.max_ngram_size - 1

    @property
    def heads(self) -> int:
        """Number of hashes per token."""
        return self.history * self.n_head_per_ngram

    def check(self, given: Any) -> None:
        """Raise InvalidGraph unless attributes are in range and tables have the required shapes."""
        ids, multipliers, eos = given.ids, given.multipliers, given.eos
        if self.max_ngram_size < 2 or self.n_head_per_ngram < 1:
            self.fail(
                "max_ngram_size >= 2 and n_head_per_ngram >= 1", f"{self.max_ngram_size} and {self.n_head_per_ngram}"
            )
        dtype = self.same_dtype(ids, multipliers, given.vocab, given.offsets, eos, given.past)
        if dtype not in (DType.INT32, DType.INT64):
            self.fail("int32 or int64 ids", ids)
        if dtype is DType.INT32 and not -(1 << 31) <= self.pad_id < 1 << 31:
            self.fail("a pad_id of 32 bits", self.pad_id)
        if multipliers.rank != 1 or multipliers.shape[0] < self.max_ngram_size:
            self.fail(f"at least {self.max_ngram_size} multipliers", multipliers)
        for table in (given.vocab, given.offsets):
            if table is not None and table.shape != (self.heads,):
                self.fail(f"vocab_sizes and head_offsets [{self.heads}]", table)
        if eos is not None and eos.rank:
            self.fail("a scalar eos_token_id", eos)

    def check_vocab(self, vocab: Array) -> None:
        """Raise InvalidGraph for an empty vocabulary."""
        if (vocab <= 0).any():
            self.fail("vocab_sizes > 0", vocab.min())

    def filler(self, eos: Array | None, dtype: Any) -> Array:
        """Return the fill id, [1]."""
        return np.array([self.pad_id], dtype) if eos is None else eos.reshape(1)

    def hashes(
        self, whole: Array, first: Array, tables: tuple[Array, Array, Array | None], fill: Array, eos: Array | None
    ) -> Array:
        """Return the hashes of the n-grams that end at each token, [B, L, heads].

        Args:
            whole: ids [B, history + L].
            first: [B, history + L], index of the first id visible to each token.
            tables: multipliers, vocabulary sizes, offsets.
            fill: the fill id.
            eos: the end token, or None.
        """
        multipliers, vocab, offsets = tables
        places = np.arange(whole.shape[1])
        if eos is not None and self.reset_on_eos:
            following = np.where(whole == eos, places + 1, 0)
            following = np.pad(following[:, :-1], ((0, 0), (1, 0))) if whole.shape[1] else following
            first = np.maximum(first, np.maximum.accumulate(following, axis=1))
        start, count = self.history, self.n_head_per_ngram
        y = np.empty((whole.shape[0], whole.shape[1] - start, self.heads), whole.dtype)
        mix = whole[:, start:] * multipliers[0]
        for k in range(1, self.max_ngram_size):
            seen = places[start:] - k >= first[:, start:]
            shifted = np.where(seen, whole[:, start - k : whole.shape[1] - k], fill)
            mix = mix ^ (shifted * multipliers[k])
            of = slice((k - 1) * count, k * count)
            y[:, :, of] = mix[:, :, None] % vocab[of]
        return y if offsets is None else y + offsets

    def begins(self, segments: Array) -> Array:
        """Return for each position of rows of segment ids the start of its run of equal ids."""
        places = np.arange(segments.shape[1])
        new = segments[:, 1:] != segments[:, :-1]
        starts = np.where(np.pad(new, ((0, 0), (1, 0))), places, 0)
        return np.maximum.accumulate(starts, axis=1) if segments.shape[1] else starts


@op("NGramHashMapping", opsets=range(1, 2), domain="com.microsoft")
class NGramHashMapping(_Mapping):
    """ids: [B, L]; multipliers: [>= N]; vocab, offsets: [(N - 1) · H]; eos: scalar; past: [B, N - 1], int32 or int64.

    segments: int32 [B, L], which do not extend into past. Outputs: hashes [B, L, (N - 1) · H], n = 2 first, and the
    last N - 1 ids.
    """

    operands = named("ids multipliers vocab", optional="past offsets eos segments")

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        ids, _, _, past, _, _, segments = given = self.operands(*inputs)
        self.check(given)
        if ids.rank != 2:
            self.fail("ids [B, L]", ids)
        before = (ids.shape[0], self.history)
        if past is not None and past.shape != before:
            self.fail(f"past_ids {list(before)}", past)
        if segments is not None and (segments.shape != ids.shape or segments.dtype is not DType.INT32):
            self.fail(f"int32 segment_ids {list(ids.shape)}", segments)
        return TensorType(ids.dtype, (*ids.shape, self.heads)), TensorType(ids.dtype, before)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        ids, multipliers, vocab, past, offsets, eos, segments = self.operands(*inputs)
        self.check_vocab(vocab)
        most = np.iinfo(ids.dtype).max
        if offsets is not None and ((offsets < 0) | (offsets > most - vocab)).any():
            self.fail(f"head_offsets from 0 to {most} less the vocabulary", offsets.tolist())
        fill = self.filler(eos, ids.dtype)
        if past is None:
            past = np.broadcast_to(fill, (ids.shape[0], self.history))
        whole = np.concatenate([past, ids], axis=1)
        first = np.zeros(whole.shape, np.int64)
        if segments is not None and segments.shape[1]:
            own = np.concatenate([np.repeat(segments[:, :1], self.history, 1), segments], axis=1)
            first = self.begins(own)
        y = self.hashes(whole, first, (multipliers, vocab, offsets), fill, eos)
        return y, whole[:, whole.shape[1] - self.history :]


@op("VarlenNGramHashMapping", opsets=range(1, 2), domain="com.microsoft")
class VarlenNGramHashMapping(_Mapping):
    """ids: [T]; ends: int32 [B + 1], where sequence i is ids[ends[i] : ends[i + 1]]; counts: int32 [B].

    The other inputs are as in NGramHashMapping: past [B, N - 1], segments int32 [T], past_segments int32 [B, N - 1], by
    default the first segment of each sequence. Outputs: hashes [T, (N - 1) · H]; the last N - 1 ids and segments of
    each sequence; for its first `counts` tokens (at most `state_update_capacity`) the N - 1 ids up to that token, else
    `pad_id`.
    """

    operands = named("ids multipliers vocab ends", optional="past offsets eos segments past_segments counts")

    state_update_capacity: int = 0

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        ids, _, _, ends, past, _, _, segments, past_segments, counts = given = self.operands(*inputs)
        self.check(given)
        if ids.rank != 1 or ends.rank != 1 or ends.shape[0] < 2:
            self.fail("ids [T] and cumulative_sequence_length [B + 1], B >= 1", f"{ids} and {ends}")
        before = (ends.shape[0] - 1, self.history)
        shapes = ((past, before), (past_segments, before), (segments, ids.shape), (counts, before[:1]))
        for x, shape in shapes:
            if x is not None and x.shape != shape:
                self.fail(f"a tensor {list(shape)}", x)
        for x in (ends, segments, past_segments, counts):
            if x is not None and x.dtype is not DType.INT32:
                self.fail("int32 lengths, segment ids and counts", x)
        if not 0 <= self.state_update_capacity <= 8 or (counts is not None) != (self.state_update_capacity > 0):
            self.fail(
                "state_update_capacity from 0 to 8, capture_count where it is not 0",
                (self.state_update_capacity, counts),
            )
        if segments is None and (past_segments is not None or self.wants(2)):
            self.fail("segment_ids with past_segment_ids or present_segment_ids", "none")
        state = TensorType(ids.dtype, (before[0], self.state_update_capacity, self.history))
        hashes = TensorType(ids.dtype, (*ids.shape, self.heads))
        return hashes, TensorType(ids.dtype, before), TensorType(DType.INT32, before), state

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        given = self.operands(*inputs)
        ids, multipliers, vocab, ends, past, offsets, eos, segments, past_segments, counts = given
        self.check_vocab(vocab)
        if ends[0] or ends[-1] != ids.shape[0] or (np.diff(ends.astype(np.int64)) < 1).any():
            self.fail(f"cumulative_sequence_length from 0 to {ids.shape[0]}, each more than the last", ends.tolist())
        batch, before = ends.shape[0] - 1, self.history
        fill = self.filler(eos, ids.dtype)
        y = np.empty((*ids.shape, self.heads), ids.dtype)
        present = np.empty((batch, before), ids.dtype)
        kept = np.zeros((batch, before), np.int32)
        states = np.full((batch, self.state_update_capacity, before), self.pad_id, ids.dtype)
        for b, (start, end) in enumerate(pairwise(ends.tolist())):
            old = np.repeat(fill, before) if past is None else past[b]
            whole = np.concatenate([old, ids[start:end]])
            first = np.zeros((1, whole.size), np.int64)
            if segments is not None:
                own = segments[start:end]
                earlier = np.repeat(own[:1], before) if past_segments is None else past_segments[b]
                runs = np.concatenate([earlier, own])
                first, kept[b] = self.begins(runs[None]), runs[-before:]
            y[start:end] = self.hashes(whole[None], first, (multipliers, vocab, offsets), fill, eos)[0]
            present[b] = whole[-before:]
            count = 0 if counts is None else min(int(counts[b]), end - start, self.state_update_capacity)
            for i in range(count):
                states[b, i] = whole[i + 1 : i + 1 + before]
        return y, present, kept, states
