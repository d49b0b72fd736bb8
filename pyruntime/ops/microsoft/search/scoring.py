"""Modify the scores of the next token before one is selected, in onnxruntime's order.

Scores are float32 [rows, vocab], one row per sequence; a forbidden token has the lowest float32. Source:
com.microsoft.BeamSearch and similar operators, as onnxruntime's CPU provider computes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array
from pyruntime.ops.microsoft.search.ngrams import repeating

__all__ = ["LOWEST", "Scoring", "Timestamps", "log_softmax"]

LOWEST = np.finfo(np.float32).min
"""Score of a forbidden token."""


def log_softmax(x: Array) -> Array:
    """Return log(softmax(x)) over the rows of x [rows, vocab], float32."""
    y = x - x.max(axis=1, keepdims=True)
    z: Array = y - np.log(np.exp(y).sum(axis=1, keepdims=True, dtype=np.float32))
    return z


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Whisper's timestamp rules: timestamps are paired, do not decrease, and are forced where likelier than any text.

    Attributes:
        end, start, start_of_lm, no_timestamps, translate, transcribe: special tokens.
        first: token of time 0; larger tokens are later times.
        initial: maximum offset of the first timestamp from `first`.
    """

    end: int
    start: int
    start_of_lm: int
    no_timestamps: int
    translate: int
    transcribe: int
    first: int
    initial: int = 50

    def apply(self, scores: Array, sequence: Array) -> None:
        """Forbid, in the scores [vocab] of one row, tokens that must not follow its sequence [length]."""
        length, times = len(sequence), np.flatnonzero(sequence >= self.first)
        begin = int(times[0]) + 1 if len(times) else length
        banned = [self.no_timestamps, self.start_of_lm]
        if length > begin:
            banned += [self.start, self.translate, self.transcribe]
        scores[[token for token in banned if 0 <= token < len(scores)]] = LOWEST
        last = length > 0 and bool(sequence[-1] >= self.first)
        paired = length <= begin or bool(sequence[-2] >= self.first)
        if last and paired:
            scores[self.first :] = LOWEST
        elif last:
            scores[: self.end] = LOWEST
        if len(times):
            scores[self.first : int(sequence[times[-1]]) + (not (last and not paired))] = LOWEST
        if length == begin:
            scores[self.first + self.initial + 1 :] = LOWEST
        self._prefer_times(scores)

    def _prefer_times(self, scores: Array) -> None:
        """Forbid text where the timestamps together are likelier than any text token."""
        times, text = scores[self.first :], scores[: self.first]
        allowed = times[times > LOWEST]
        if not len(allowed):
            return
        best = times.max()
        together = np.log(np.exp(allowed - best).sum(dtype=np.float32)) + best
        if together > text.max():
            text[:] = LOWEST


@dataclass(frozen=True, slots=True)
class Scoring:
    """Score modifiers; each has no effect at its default.

    Attributes:
        vocab_mask: [vocab], 0 for forbidden tokens.
        prefix_mask: [batch, vocab], 0 for tokens forbidden at the first position.
        min_length: shorter sequences must not end.
    """

    end: int
    repetition_penalty: float = 1.0
    ngram: int = 0
    vocab_mask: Array | None = None
    prefix_mask: Array | None = None
    min_length: int = 0
    temperature: float = 1.0
    timestamps: Timestamps | None = None

    def __call__(self, scores: Array, sequences: Array, first: bool) -> Array:
        """Return the modified scores [rows, vocab] of the token after `sequences` [rows, length].

        Args:
            first: this is the first generated token.
        """
        scores = np.array(scores, np.float32)
        if self.repetition_penalty != 1:
            self._repeated(scores, sequences)
        if self.ngram > 0:
            scores[repeating(sequences, self.ngram)] = LOWEST
        if self.vocab_mask is not None:
            scores[:, self.vocab_mask == 0] = LOWEST
        if self.prefix_mask is not None and first:
            beams = len(scores) // len(self.prefix_mask)
            scores[np.repeat(self.prefix_mask == 0, beams, axis=0)] = LOWEST
        if sequences.shape[1] < self.min_length and 0 <= self.end < scores.shape[1]:
            scores[:, self.end] = LOWEST
        if self.temperature > 0:
            scores /= np.float32(self.temperature)
        if self.timestamps is not None:
            for row, sequence in zip(scores, sequences, strict=True):
                self.timestamps.apply(row, sequence)
        return scores

    def _repeated(self, scores: Array, sequences: Array) -> None:
        """Apply the repetition penalty: multiply negative scores of tokens in the sequence by it, and divide others."""
        rows, penalty = np.arange(len(scores))[:, None], np.float32(self.repetition_penalty)
        seen = scores[rows, sequences]
        scores[rows, sequences] = np.where(seen < 0, seen * penalty, seen / penalty)
