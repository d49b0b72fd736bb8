"""Sampling in a loop: the sampler's inputs for a generation's settings, and what it remembers from step to step."""

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
    """Logits with -∞ for each token that would repeat an n-gram of `size` tokens. Source: Paulus et al. 2017."""
    made = np.array(logits)
    made[repeating(ids, size)] = -np.inf
    return made


class Chooser:
    """Chooses the next ids of `batch` sequences.

    Each sequence draws from a generator of its own, so what it gets does not depend on the others.
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
        """Whether a step depends on the tokens before it on the host."""
        o = self.options
        return bool(self.constraints or o.functions or o.no_repeat_ngram_size)

    async def choose(
        self, logits: OrtValue, sequences: Sequence[Sequence[int]], rows: Array | None, prompt: int, new: int, left: int
    ) -> tuple[OrtValue, OrtValue]:
        """Choose ids int64 [batch, 1]; returns them and log-probabilities float32 [batch, 1], where the logits are.

        Args:
            sequences: the ids so far; read at the first step, and where `needs_tokens`.
            rows: which row of the logits counts, where it is not the last.
            prompt: how many ids of each sequence are its prompt.
            new: how many tokens were generated.
            left: how many may still come.
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
        feeds = {
            n: v if isinstance(v, OrtValue) else OrtValue.ortvalue_from_numpy(np.asarray(v)) for n, v in given.items()
        }
        session = await self._model.sampler(options)
        ids, log_probability, *counts = await session.run_with_ort_values_async(None, feeds)
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
        """Forget the counts of tokens: the next step counts again for penalties."""
        self._counts = None

    def accept(self, ids: Sequence[int]) -> None:
        """Count the tokens that were chosen."""
        for constraint, token in zip(self.constraints, ids, strict=False):
            constraint.accept(token)


def _counts(sequences: Sequence[Sequence[int]], words: int, prompt: int) -> Array:
    """The sampler's counts of sequences whose first `prompt` ids are their prompts."""
    made = np.zeros((len(sequences), words), np.int32)
    for row, sequence in zip(made, sequences, strict=True):
        row[np.asarray(sequence[:prompt], np.int64)] = -1
        for token in sequence[prompt:]:
            row[token] = max(row[token], 0) + 1
    return made
