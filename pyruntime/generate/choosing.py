"""Token selection in a loop: the sampler's inputs for given options, and its state between steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.options import GenerationOptions
from pyruntime.generate.sampling import SamplerOptions
from pyruntime.ir import Array
from pyruntime.ops.microsoft.search.ngrams import repeating
from pyruntime.session import OrtValue

__all__ = ["Chooser", "no_repeated_ngrams"]


def no_repeated_ngrams(ids: Array, logits: Array, size: int) -> Array:
    """Set logits [batch, vocab] to -∞ for tokens that repeat an n-gram of `size` tokens; ids [batch, length].

    Source: Paulus et al. 2017.
    """
    made = np.array(logits)
    made[repeating(ids, size)] = -np.inf
    return made


class Chooser:
    """Selects the next ids of `batch` sequences.

    Each sequence has a separate random generator, so its samples do not depend on the other sequences.
    """

    def __init__(self, model: DecoderModel, options: GenerationOptions, batch: int) -> None:
        self._model = model
        self.options = options
        seeds = np.random.SeedSequence(options.seed).spawn(batch)
        self._draws = [np.random.Generator(np.random.Philox(s)) for s in seeds]
        self._counts: OrtValue | Array | None = None
        self.constraints = [options.constraint.copy() for _ in range(batch)] if options.constraint else []

    @property
    def needs_tokens(self) -> bool:
        """True if a step needs the previous tokens on the host."""
        o = self.options
        return bool(self.constraints or o.functions or o.no_repeat_ngram_size)

    async def choose(
        self, logits: OrtValue, sequences: Sequence[Sequence[int]], rows: Array | None, prompt: int, new: int, left: int
    ) -> tuple[OrtValue, OrtValue]:
        """Select ids int64 [batch, 1]; return them and log-probabilities float32 [batch, 1], on the logits' device.

        Args:
            sequences: the ids so far; read in the first step, and if `needs_tokens`.
            rows: for each sequence, the row of the logits to use; None: the last.
            prompt: prompt tokens in each sequence.
            new: tokens generated so far.
            left: tokens that may still be generated.
        """
        o = self.options
        batch, _, words = logits.shape()
        dtype = self._model.logits_dtype
        value: Any = logits
        if o.functions or o.no_repeat_ngram_size:
            value, dtype = await self._processed(logits, sequences, rows), "float32"
            rows = None
        mask = self._mask(batch, words, new, left)
        options = SamplerOptions(
            o.greedy, dtype, o.candidates, o.penalized, mask is not None, rows is not None, operators=o.operators
        )
        given: dict[str, Any] = {"logits": value}
        if rows is not None:
            given["row"] = rows
        if not o.greedy:
            given |= {"uniform": np.array([g.random(dtype=np.float32) for g in self._draws], np.float32)}
            given |= {"temperature": np.float32(o.temperature), "min_p": np.float32(o.min_p)}
            if o.candidates:
                given |= {"top_k": np.int64(o.top_k), "top_p": np.float32(o.top_p)}
        if options.counts:
            if self._counts is None:
                self._counts = _counts(sequences, words, prompt)
            given["counts"] = self._counts
        if o.penalized:
            given |= {"repetition": np.float32(o.repetition_penalty), "presence": np.float32(o.presence_penalty)}
            given["frequency"] = np.float32(o.frequency_penalty)
        if mask is not None:
            given["mask"] = mask
        ids, log_probability, *counts = await self._model.sampled(options, given)
        if counts:
            self._counts = counts[0]
        return ids, log_probability

    async def _processed(self, logits: OrtValue, sequences: Sequence[Sequence[int]], rows: Array | None) -> Array:
        every = (await logits.numpy_async()).astype(np.float32)
        x = every[:, -1] if rows is None else every[np.arange(len(every)), rows]
        width = min(map(len, sequences))
        ids = np.array([s[len(s) - width :] for s in sequences], np.int64)
        if self.options.no_repeat_ngram_size:
            x = np.concatenate(
                [
                    no_repeated_ngrams(np.array([s]), x[i : i + 1], self.options.no_repeat_ngram_size)
                    for i, s in enumerate(sequences)
                ]
            )
        for processor in self.options.functions:
            x = np.asarray(processor(ids, x), np.float32)
        return np.expand_dims(x, 1)

    def _mask(self, batch: int, words: int, new: int, left: int) -> Array | None:
        o = self.options
        barred = bool(o.end_tokens) and new < o.min_new_tokens
        if not self.constraints and not barred:
            return None
        mask = np.ones((batch, words), bool)
        for row, constraint in zip(mask, self.constraints, strict=False):
            allowed = constraint.mask(left)
            row[: len(allowed)] = allowed[:words]
            row[len(allowed) :] = False
        if barred:
            mask[:, [t for t in o.end_tokens if t < words]] = False
        return mask

    def forget(self) -> None:
        """Discard token counts for penalties; the next step counts again."""
        self._counts = None

    def accept(self, ids: Sequence[int]) -> None:
        """Update the constraints with the selected tokens."""
        for constraint, token in zip(self.constraints, ids, strict=False):
            constraint.accept(token)


def _counts(sequences: Sequence[Sequence[int]], words: int, prompt: int) -> Array:
    """Return token counts [batch, words]; the first `prompt` ids of each sequence are its prompt."""
    made = np.zeros((len(sequences), words), np.int32)
    for row, sequence in zip(made, sequences, strict=True):
        row[np.asarray(sequence[:prompt], np.int64)] = -1
        for token in sequence[prompt:]:
            row[token] = max(row[token], 0) + 1
    return made
