"""GreedySearch and Sampling: generate by argmax or by sampling. Source: com.microsoft operators of these names.

Results are those of onnxruntime's CPU provider (on Linux, for Sampling).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pyruntime.ir import Array, TensorType, ValueType
from pyruntime.ops.base import attributes, op
from pyruntime.ops.control.body import permit
from pyruntime.ops.microsoft.search.decoders import PromptDecoder, tensor_of
from pyruntime.ops.microsoft.search.generation import Generation

_INPUTS = "input_ids max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask"

_MODULUS = 2**31 - 1


@attributes
class _TokenByToken(Generation):
    """Base of GreedySearch and Sampling, which generate one sequence for each prompt."""

    inputs: ClassVar[str] = _INPUTS

    def chooser(self, fed: dict[str, TensorType]) -> _Chooser:
        """Return the function that selects tokens."""
        return _Chooser()

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        fed, outer = self.fed(inputs)
        if self.model_type:
            self.fail("a model_type of 0, a decoder alone", f"{self.model_type}; use BeamSearch with num_beams 1")
        ids = self.prompt(fed)
        batch, before = ids.shape
        longest = self.length(fed, before, batch)
        mask = self.matrix(fed, "attention_mask", ids.shape)
        graphs = (self.decoder, self.init_decoder)
        decoder = PromptDecoder(self, graphs, outer, ids, mask, self.pad_token_id, self.vocab_size)
        self.within(ids, decoder.vocab)
        scoring = self.scoring(fed, batch, decoder.vocab, temperature=getattr(self, "temperature", 1.0))
        choose = self.chooser(fed)
        made, ended = np.full((batch, longest), self.pad_token_id, np.int32), np.zeros(batch, bool)
        made[:, :before] = ids
        logits = decoder.first()
        for length in range(before, longest):
            permit(self, length - before)
            tokens = choose(scoring(logits, made[:, :length], first=length == before))
            ended |= tokens == self.eos_token_id
            made[:, length] = np.where(ended, self.pad_token_id, tokens)
            if ended.all() or length == longest - 1:
                break
            logits = decoder.step(made[:, length], None, made[:, : length + 1])
        return (tensor_of(made),)


class _Chooser:
    """Selects the token with the largest score, the first of equal ones."""

    def __call__(self, scores: Array) -> Array:
        """Return tokens [batch], given scores [batch, vocab]."""
        tokens: Array = np.argmax(scores, axis=1)
        return tokens


@dataclass(slots=True)
class _Drawn(_Chooser):
    """Top-p sampling: draw from the most probable tokens whose probabilities sum to top_p; others get filter_value.

    With `custom`, tokens are sorted in descending order, and the first one is always included. Otherwise they are
    sorted in ascending order: a token is included if the cumulative sum up to it exceeds 1 - top_p, or if it is among
    the last `keep`. Random numbers come from C++'s minstd_rand0, two for each uniform one.
    """

    top_p: np.float32
    filter_value: np.float32
    keep: int
    custom: bool
    state: int

    def __call__(self, scores: Array) -> Array:
        filtered = scores.copy()
        for row, kept in zip(scores, filtered, strict=True):
            kept[self._left_out(row)] = self.filter_value
        return np.array([self._drawn(row) for row in filtered])

    def _left_out(self, row: Array) -> Array:
        """Return the excluded tokens."""
        order = np.argsort(-row if self.custom else row, kind="stable")
        ordered = row[order]
        weight = np.exp(ordered - ordered.max())
        reached = np.cumsum(weight / weight.sum(dtype=np.float32), dtype=np.float32)
        if self.custom:
            return order[1:][reached[:-1] > self.top_p]
        out = reached <= np.float32(1) - self.top_p
        out[max(len(row) - self.keep, 1) :] = False
        return order[out]

    def _drawn(self, row: Array) -> int:
        wide = row.astype(np.float64)
        finite = np.isfinite(wide)
        weight = np.exp(
            wide - wide[finite].max(initial=np.finfo(np.float32).min), where=finite, out=np.zeros_like(wide)
        )
        reached = np.cumsum(weight)
        return min(int(np.searchsorted(reached, self._uniform() * reached[-1], side="right")), len(row) - 1)

    def _uniform(self) -> float:
        low, high = self._next() - 1, self._next() - 1
        span = float(_MODULUS - 1)
        return (low + high * span) / (span * span)

    def _next(self) -> int:
        self.state = self.state * 16807 % _MODULUS
        return self.state


@op("GreedySearch", opsets=range(1, 2), domain="com.microsoft")
class GreedySearch(_TokenByToken):
    """Selects the token with the largest score at each step, the first of equal ones.

    input_ids: int32 [B, L], masked by attention_mask (int32 [B, L]) or where they are pad_token_id. sequences: int32
    [B, max_length], padded with pad_token_id from the end token on. For the subgraphs see `decoders.py`.
    """

    arity = (2, 7)


@op("Sampling", opsets=range(1, 2), domain="com.microsoft")
class Sampling(_TokenByToken):
    """GreedySearch with sampled tokens (`_Drawn`), determined by `seed`.

    `temperature` divides the scores. presence_mask has no effect, since presence_penalty must be 0.
    """

    inputs: ClassVar[str] = f"{_INPUTS} presence_mask seed"
    arity = (2, 9)
    custom: int = 0
    filter_value: float = -1e20
    min_tokens_to_keep: int = 0
    presence_penalty: float = 0.0
    temperature: float = 1.0
    top_p: float = 0.0

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        if self.wants(1):
            self.fail("no output filtered_logits", "this output; convert the model without it")
        if self.presence_penalty:
            self.fail(
                "a presence_penalty of 0", f"{self.presence_penalty}; convert the model without it (custom sampling)"
            )
        return super().infer(*inputs)

    def chooser(self, fed: dict[str, TensorType]) -> _Chooser:
        return _Drawn(
            np.float32(self.top_p),
            np.float32(self.filter_value),
            self.min_tokens_to_keep,
            bool(self.custom),
            self.whole(fed, "seed", 0, least=0) % _MODULUS or 1,
        )
