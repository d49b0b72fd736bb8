"""Beam search: finds the most probable continuations of a prompt by following several at once.

score = sum of log p / length^length_penalty over generated tokens, for finished sequences; at the end also for others.
At each step the 2k best continuations of k beams are taken in order: finished ones become results if they are among the
first k, others become the next beams. Penalties, n-grams, processors and constraints change the logits before the
softmax. Source: transformers' generation/beam_search.py (order, early stopping).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.generate.choosing import no_repeated_ngrams
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.options import Constraint, GenerationOptions
from pyruntime.ir import Array

__all__ = ["beam_search"]

_NEVER = -1e9
"""Score of a beam that only fills the batch."""


async def beam_search(
    model: DecoderModel,
    prompt: Sequence[int],
    beams: int,
    options: GenerationOptions,
    length_penalty: float = 1.0,
    early_stopping: bool = True,
    whole_length: bool = False,
) -> list[tuple[list[int], float]]:
    """Search the `num_sequences` best sequences; return ids, prompt and end token included, and scores.

    Args:
        options: beam search does not sample, so do_sample and its settings must be off.
        whole_length: a score's length counts the prompt but not the end token, as in onnxruntime-genai; otherwise the
            generated tokens, as in transformers.
        early_stopping: stop when there are as many results as beams; otherwise when no better result is possible.

    Raises:
        InvalidArgument: no prompt, no length limit, fewer beams than sequences, do_sample, or operators as processors.
    """
    options = options.begun([prompt])
    most, window = _most_tokens(model, prompt, beams, options), options.bounds
    search = _Search(prompt, beams, options, length_penalty, whole_length)
    dropped = window.dropped(len(prompt)) if window else 0
    seen = window.context(prompt) if window else list(prompt)
    logits, cache = await model.step(np.array([seen] * beams, np.int64), model.cache(beams))
    while True:
        rows = search.follow((await logits.numpy_async())[:, -1].astype(np.float64), most)
        if not rows or search.is_over(most, early_stopping):
            return search.results(running=bool(rows))
        ids: Array = np.array([sequence[-1:] for sequence in search.running], np.int64)
        if window and window.dropped(search.length) != dropped:
            dropped = window.dropped(search.length)
            cache, ids = model.cache(beams), np.array([window.context(ids) for ids in search.running], np.int64)
        else:
            cache = await model.reordered(cache, rows)
        logits, cache = await model.step(ids, cache)


def _most_tokens(model: DecoderModel, prompt: Sequence[int], beams: int, o: GenerationOptions) -> int:
    """Return the maximum length of a sequence. Raises InvalidArgument: see `beam_search`."""
    if not o.greedy:
        raise InvalidArgument(
            "beam search does not sample: expected do_sample=False; or sample num_sequences, without beams"
        )
    if o.operators:
        raise InvalidArgument("beam search runs processors on the host: expected functions, or no beams")
    limits = [n for n in (o.max_length, None if o.max_new_tokens is None else len(prompt) + o.max_new_tokens) if n]
    if not prompt or not limits or beams < o.num_sequences:
        raise InvalidArgument(
            "beam search: expected a prompt, max_length or max_new_tokens, and beams >= num_sequences"
        )
    positions = None if model.local else model.limit(o.bounds)
    if positions is None:
        return min(limits)
    if len(prompt) > positions:
        raise InvalidArgument(
            f"the prompt has {len(prompt)} tokens, and the model knows {positions} positions; with "
            f"GenerationOptions(window={positions}) it sees the first and the last ones"
        )
    return min(*limits, positions)


class _Search:
    """The beams and the finished sequences.

    Attributes:
        running: ids of the unfinished sequences, best first, all of the same length.
    """

    def __init__(
        self, prompt: Sequence[int], beams: int, options: GenerationOptions, length_penalty: float, whole_length: bool
    ) -> None:
        self.running = [list(prompt)] * beams
        self._prompt, self._beams, self._options = len(prompt), beams, options
        self._length_penalty, self._whole_length = length_penalty, whole_length
        self._totals = np.array([0.0] + [_NEVER] * (beams - 1))
        self._done: list[tuple[list[int], float]] = []
        self._constraints = [options.constraint.copy() for _ in range(beams)] if options.constraint else []

    @property
    def length(self) -> int:
        """Tokens in each unfinished sequence."""
        return len(self.running[0])

    def follow(self, logits: Array, most: int) -> list[int]:
        """Select the best continuations, given logits [beams, vocab]; return the beam that each new one extends.

        The list is empty if no continuation but an end token is possible.
        """
        o = self._options
        x = _changed(logits, self.running, self._prompt, most - self.length, o, self._constraints)
        log_p = x - x.max(axis=1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
        every = (self._totals[:, None] + log_p).reshape(-1)
        best = np.argsort(-every, kind="stable")[: 2 * self._beams]
        chosen: list[tuple[int, int, float]] = []
        for rank, at in enumerate(best[np.isfinite(every[best])].tolist()):
            row, token = divmod(at, log_p.shape[1])
            if token not in o.end_tokens:
                chosen.append((row, token, float(every[at])))
            elif rank < self._beams:
                self._done.append(self._scored([*self.running[row], token], float(every[at])))
            if len(chosen) == self._beams:
                break
        self._done = sorted(self._done, key=lambda r: -r[1])[: self._beams]
        if not chosen:
            return []
        chosen += [(*chosen[0][:2], _NEVER)] * (self._beams - len(chosen))
        rows = [row for row, _, _ in chosen]
        self.running = [[*self.running[row], token] for row, token, _ in chosen]
        self._totals = np.array([total for _, _, total in chosen])
        self._constraints = [self._constraints[row].copy() for row in rows] if self._constraints else []
        for constraint, (_, token, _) in zip(self._constraints, chosen, strict=False):
            constraint.accept(token)
        return rows

    def _scored(self, sequence: list[int], total: float) -> tuple[list[int], float]:
        ended = sequence[-1] in self._options.end_tokens
        length = len(sequence) - ended if self._whole_length else len(sequence) - self._prompt
        return sequence, float(total / length**self._length_penalty)

    def is_over(self, most: int, early_stopping: bool) -> bool:
        """Return whether sequences have the maximum length, or there are enough results."""
        if self.length >= most:
            return True
        if len(self._done) < self._beams:
            return False
        _, best = self._scored(self.running[0], float(self._totals[0]))
        return early_stopping or not best > self._done[-1][1]

    def results(self, running: bool) -> list[tuple[list[int], float]]:
        """Return the best results; if there are too few and `running`, unfinished sequences count too."""
        if running and len(self._done) < self._beams:
            self._done += [self._scored(s, float(t)) for s, t in zip(self.running, self._totals, strict=True)]
        return sorted(self._done, key=lambda r: -r[1])[: self._options.num_sequences]


def _changed(
    x: Array,
    running: Sequence[Sequence[int]],
    prompt: int,
    remaining: int,
    o: GenerationOptions,
    constraints: Sequence[Constraint],
) -> Array:
    """Return logits [beams, vocab] after penalties, n-gram masks, processors and constraints."""
    ids = np.array(running, np.int64)
    if o.penalized:
        rows = np.arange(len(ids))[:, None]
        seen = x[rows, ids]
        penalized = x.copy()
        penalized[rows, ids] = np.where(seen < 0, seen * o.repetition_penalty, seen / o.repetition_penalty)
        counts = np.zeros(x.shape)
        np.add.at(counts, (rows, ids[:, prompt:]), 1)
        x = penalized - o.frequency_penalty * counts - o.presence_penalty * (counts > 0)
    if o.no_repeat_ngram_size:
        x = no_repeated_ngrams(ids, x, o.no_repeat_ngram_size)
    for processor in o.functions:
        x = np.asarray(processor(ids, x.astype(np.float32)), np.float64)
    if ids.shape[1] - prompt < o.min_new_tokens:
        x[:, list(o.end_tokens)] = -np.inf
    for row, constraint in zip(x, constraints, strict=False):
        allowed = constraint.mask(remaining)
        row[: len(allowed)][~allowed[: len(row)]] = -np.inf
        row[len(allowed) :] = -np.inf
    return x
