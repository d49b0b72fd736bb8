"""Beam search: which continuations of the beams are followed, which end, and what comes out.

Source: com.microsoft.BeamSearch as onnxruntime's CPU provider computes it (transformers' generation/beam_search.py of
2021, with the whole sequence's length in the length penalty).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pyruntime.ir import Array

__all__ = ["Beams", "Chosen"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The beams that are followed, [batch · beams] each: which token follows which beam, and its score."""

    scores: Array
    tokens: Array
    origins: Array


@dataclass(slots=True)
class _Hypotheses:
    """The best sequences of one batch entry that have ended, best first."""

    limit: int
    length_penalty: np.float32
    kept: list[tuple[np.float32, Array]] = field(default_factory=list)
    done: bool = False

    def scored(self, total: np.float32, length: int) -> np.float32:
        """total / length ^ penalty"""
        return np.float32(total / np.float32(length) ** self.length_penalty)

    def add(self, sequence: Array, total: np.float32) -> None:
        """Keep the sequence where it is among the best; equal ones stay in the order in which they came."""
        score = self.scored(total, len(sequence))
        if len(self.kept) == self.limit and score <= self.kept[-1][0]:
            return
        at = next((i for i, (other, _) in enumerate(self.kept) if score > other), len(self.kept))
        self.kept.insert(at, (score, sequence.copy()))
        del self.kept[self.limit :]


def _largest(x: Array, count: int) -> Array:
    """Where the `count` largest of x [n] are, from the largest on, equal ones in order; without sorting all of x."""
    least = -np.partition(-x, count - 1)[count - 1] if len(x) > count else -np.inf
    places = np.flatnonzero(x >= least)
    if len(places) < count:  # where x has NaN
        places = np.arange(len(x))
    found: Array = places[np.argsort(-x[places], kind="stable")[:count]]
    return found


class Beams:
    """The search over a batch.

    Attributes:
        batch, beams: how many prompts, and how many sequences are followed for each.
    """

    def __init__(
        self, batch: int, beams: int, *, end: int, pad: int, length_penalty: float, early_stopping: bool
    ) -> None:
        self.batch, self.beams = batch, beams
        self._end, self._pad, self._early = end, pad, early_stopping
        self._found = [_Hypotheses(beams, np.float32(length_penalty)) for _ in range(batch)]

    @property
    def over(self) -> bool:
        """Whether every batch entry has its sequences, none of which can become better."""
        return all(found.done for found in self._found)

    def follow(self, totals: Array, sequences: Array) -> Chosen:
        """The continuations to follow of `sequences` [batch · beams, length], by scores [batch · beams, vocab]."""
        vocab, count = totals.shape[1], 2 * self.beams
        every = totals.reshape(self.batch, self.beams * vocab)
        best = np.stack([_largest(row, count) for row in every])
        scores = np.take_along_axis(every, best, axis=1)
        made = Chosen(
            np.zeros(len(sequences), np.float32),
            np.full(len(sequences), self._pad, np.int32),
            np.zeros(len(sequences), np.intp),
        )
        for entry, found in enumerate(self._found):
            if found.done:
                continue
            self._followed(made, entry, scores[entry], best[entry] // vocab, best[entry] % vocab, sequences)
            if len(found.kept) == self.beams:
                found.done = self._early or not self._improves(found, scores, entry, sequences.shape[1])
        return made

    def _followed(self, made: Chosen, entry: int, scores: Array, beams: Array, tokens: Array, sequences: Array) -> None:
        """Sort one entry's candidates, best first, into beams and ends; each beam has one end at most."""
        at, stop = entry * self.beams, (entry + 1) * self.beams
        for rank, (score, beam, token) in enumerate(zip(scores, beams, tokens, strict=True)):
            origin = entry * self.beams + int(beam)
            if token != self._end:
                made.scores[at], made.tokens[at], made.origins[at] = score, token, origin
                at += 1
            elif rank < self.beams:
                self._found[entry].add(sequences[origin], score)
            if at == stop:
                return

    def _improves(self, found: _Hypotheses, scores: Array, entry: int, length: int) -> bool:
        """Whether a sequence that goes on may become better than the worst that has ended.

        onnxruntime looks at 2 · beams scores from index entry · beams on of the concatenated scores of all entries.
        """
        seen = scores.reshape(-1)[entry * self.beams :][: 2 * self.beams]
        return bool(found.kept[-1][0] < found.scored(seen.max(), length))

    def finish(self, sequences: Array, totals: Array, length: int, count: int) -> tuple[Array, Array]:
        """The `count` best of each entry, padded to `length`: int32 [batch, count, length], float32 [batch, count]."""
        ids = np.full((self.batch, count, length), self._pad, np.int32)
        scores = np.zeros((self.batch, count), np.float32)
        for entry, found in enumerate(self._found):
            if not found.done:
                for row in range(entry * self.beams, (entry + 1) * self.beams):
                    found.add(sequences[row], totals[row])
            for place, (score, sequence) in enumerate(found.kept[:count]):
                ids[entry, place, : len(sequence)], scores[entry, place] = sequence, score
        return ids, scores
