"""Beam search: select continuations of the beams, and collect finished sequences.

Source: com.microsoft.BeamSearch as onnxruntime's CPU provider computes it (transformers' generation/beam_search.py of
2021, with the length of the whole sequence in the length penalty).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pyruntime.ir import Array

__all__ = ["Beams", "Chosen"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Continued beams, [batch · beams] each: scores, appended tokens, and the beams they continue."""

    scores: Array
    tokens: Array
    origins: Array


@dataclass(slots=True)
class _Hypotheses:
    """Best finished sequences of one batch entry, in descending order of score."""

    limit: int
    length_penalty: np.float32
    kept: list[tuple[np.float32, Array]] = field(default_factory=list)
    done: bool = False

    def scored(self, total: np.float32, length: int) -> np.float32:
        """Return total / length ^ penalty."""
        return np.float32(total / np.float32(length) ** self.length_penalty)

    def add(self, sequence: Array, total: np.float32) -> None:
        """Insert the sequence if it is among the best; ties are in order of arrival."""
        score = self.scored(total, len(sequence))
        if len(self.kept) == self.limit and score <= self.kept[-1][0]:
            return
        at = next((i for i, (other, _) in enumerate(self.kept) if score > other), len(self.kept))
        self.kept.insert(at, (score, sequence.copy()))
        del self.kept[self.limit :]


def _largest(x: Array, count: int) -> Array:
    """Return the indices of the `count` largest elements of x [n], descending, ties by index."""
    least = -np.partition(-x, count - 1)[count - 1] if len(x) > count else -np.inf
    places = np.flatnonzero(x >= least)
    if len(places) < count:  # x contains NaN
        places = np.arange(len(x))
    found: Array = places[np.argsort(-x[places], kind="stable")[:count]]
    return found


class Beams:
    """Beam search over a batch.

    Attributes:
        batch, beams: number of prompts, and of beams for each prompt.
    """

    def __init__(
        self, batch: int, beams: int, *, end: int, pad: int, length_penalty: float, early_stopping: bool
    ) -> None:
        self.batch, self.beams = batch, beams
        self._end, self._pad, self._early = end, pad, early_stopping
        self._found = [_Hypotheses(beams, np.float32(length_penalty)) for _ in range(batch)]

    @property
    def over(self) -> bool:
        """Whether all batch entries have finished sequences that cannot be improved."""
        return all(found.done for found in self._found)

    def follow(self, totals: Array, sequences: Array) -> Chosen:
        """Return the continuations of `sequences` [batch · beams, length] to keep, by scores [batch · beams, vocab]."""
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
        """Split the candidates of one entry, best first, into continued beams and finished sequences."""
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
        """Whether a continued sequence may become better than the worst finished one.

        onnxruntime considers 2 · beams scores from index entry · beams of the concatenated scores of all entries.
        """
        seen = scores.reshape(-1)[entry * self.beams :][: 2 * self.beams]
        return bool(found.kept[-1][0] < found.scored(seen.max(), length))

    def finish(self, sequences: Array, totals: Array, length: int, count: int) -> tuple[Array, Array]:
        """Return the `count` best sequences per entry, int32 [batch, count, length], and scores [batch, count]."""
        ids = np.full((self.batch, count, length), self._pad, np.int32)
        scores = np.zeros((self.batch, count), np.float32)
        for entry, found in enumerate(self._found):
            if not found.done:
                for row in range(entry * self.beams, (entry + 1) * self.beams):
                    found.add(sequences[row], totals[row])
            for place, (score, sequence) in enumerate(found.kept[:count]):
                ids[entry, place, : len(sequence)], scores[entry, place] = sequence, score
        return ids, scores
