"""Decoding step by step: sequences of ids, a cache, and the logits behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.generate.choosing import Chooser
from pyruntime.generate.decoder import Cache, DecoderModel
from pyruntime.generate.options import GenerationOptions
from pyruntime.generate.window import in_window
from pyruntime.ir import Array
from pyruntime.session import OrtValue

__all__ = ["Decoding"]


class Decoding:
    """Sequences that grow together: `append` what is given, `next` what the model says.

    Prompts of different lengths are padded: behind, where the model counts its mask, else before. A sequence that has
    ended goes on as `pad` until all have.

    Args:
        batch: how many sequences.
        cache: of a decoding before, whose tokens `sequences` are.
    """

    def __init__(
        self,
        model: DecoderModel,
        options: GenerationOptions,
        batch: int = 1,
        pad: int = 0,
        cache: Cache | None = None,
        sequences: Sequence[Sequence[int]] = (),
    ) -> None:
        self.model = model
        self.options = options
        self.pad = pad
        self.sequences: list[list[int]] = [list(s) for s in sequences] or [[] for _ in range(batch)]
        self.contexts = [list(s) for s in self.sequences]
        """What the model looks back at: the sequences, or with a window what it has started over with."""
        self.ended = [False] * batch
        self.cache = cache or model.cache(batch)
        self.logits: OrtValue | None = None
        self.last_logits: OrtValue | None = None
        self.prompts = [0] * batch
        """How many tokens of each sequence were there when the last ones were appended."""
        self.chooser = Chooser(model, options, batch)
        self.rows: Array | None = None
        self._prompt = 0
        self._began = 0
        self._new = 0

    @property
    def batch(self) -> int:
        """How many sequences."""
        return len(self.sequences)

    @property
    def done(self) -> bool:
        """Whether all sequences have ended, or none may grow."""
        return all(self.ended) or self.room == 0

    @property
    def room(self) -> int:
        """How many tokens may still come."""
        o = self.options
        limits = []
        if o.max_new_tokens is not None:
            limits.append(o.max_new_tokens - (len(self.sequences[0]) - self._began))
        if o.max_length is not None:
            limits.append(o.max_length - max(map(len, self.sequences)))
        return max(0, min(limits, default=1 << 30))

    @property
    def window_room(self) -> int:
        """How many more tokens may be computed before a window has to start over."""
        return self.options.window - self._computed if self.options.window else 1 << 30

    async def append(self, ids: Sequence[Sequence[int]], keep_logits: int = 1) -> None:
        """Compute these ids behind what is there; the logits are those of the last one of each sequence.

        Raises:
            InvalidArgument: no ids, another number of sequences, or more than max_length.
        """
        if len(ids) != self.batch or not all(map(len, ids)):
            raise InvalidArgument(f"expected ids for each of {self.batch} sequences, got {[len(s) for s in ids]}")
        longest = max(map(len, ids))
        most = self.options.max_length
        if most is not None and max(map(len, self.sequences)) + longest > most:
            raise InvalidArgument(
                f"{longest} tokens behind {max(map(len, self.sequences))} are more than max_length {most}; raise it"
            )
        ragged = len(set(map(len, ids))) > 1
        if ragged and self.cache.length:
            raise InvalidArgument("sequences of a batch go on with equally many tokens; start over with whole prompts")
        for own, context, more in zip(self.sequences, self.contexts, ids, strict=True):
            own.extend(int(t) for t in more)
            context.extend(int(t) for t in more)
        if longest > self.window_room:
            await self.start_over()
        else:
            await self._fill(ids, keep_logits)
        self.ended = [False] * self.batch
        self._prompt, self._new = min(map(len, self.sequences)), 0
        self._began = len(self.sequences[0])
        self.prompts = [len(s) for s in self.sequences]
        self.chooser.forget()

    async def start_over(self) -> None:
        """Compute what a window starts over with, and let go of what the cache had."""
        o = self.options
        self.contexts = [in_window(context, o.window, o.sinks) for context in self.contexts]
        self.cache, self.logits = self.model.cache(self.batch), None
        await self._fill(self.contexts)

    async def _fill(self, ids: Sequence[Sequence[int]], keep_logits: int = 1) -> None:
        """Compute these ids behind what is in the cache."""
        longest = max(map(len, ids))
        ragged = len(set(map(len, ids))) > 1
        padded = np.full((self.batch, longest), self.pad, np.int64)
        mask = np.zeros_like(padded)
        for b, sequence in enumerate(ids):
            at = slice(0, len(sequence)) if self.model.right_padded else slice(longest - len(sequence), None)
            padded[b, at], mask[b, at] = sequence, 1
        chunk = longest if ragged else self.options.prefill_chunk
        cache, logits = self.cache, None
        for begin in range(0, longest, chunk):
            part = slice(begin, begin + chunk)
            keep = longest if ragged else min(keep_logits, chunk)
            logits, cache = await self.model.step(padded[:, part], cache, mask[:, part], keep)
        self.cache, self.logits = cache, logits
        self.rows = np.array([len(s) - 1 for s in ids], np.int64) if ragged and self.model.right_padded else None

    def set_logits(self, logits: OrtValue) -> None:
        """Choose the next ids from these logits [batch, 1, vocab]."""
        self.logits, self.rows = logits, None

    async def choose(self) -> tuple[OrtValue, OrtValue]:
        """Ids [batch, 1] and log-probabilities for the logits at hand; they are not yet part of the sequences."""
        if self.logits is None:
            raise InvalidArgument("there are no logits yet: append tokens first")
        made = await self.chooser.choose(self.logits, self.sequences, self.rows, self._prompt, self._new, self.room)
        self._new += 1
        return made

    async def compute(self, ids: OrtValue | Array) -> None:
        """The logits behind chosen ids, which the window has room for."""
        self.logits, self.cache = await self.model.step(ids, self.cache)
        self.rows = None

    def accept(self, ids: Sequence[int]) -> list[int]:
        """Put chosen ids behind the sequences; returns them, `pad` for sequences that had ended."""
        made = [self.pad if ended else int(t) for t, ended in zip(ids, self.ended, strict=True)]
        for b, token in enumerate(made):
            self.sequences[b].append(token)
            self.contexts[b].append(token)
            if not self.ended[b]:
                self.ended[b] = token in self.options.end_tokens
        self.chooser.accept(made)
        return made

    async def next(self) -> tuple[list[int], Array]:
        """The next id of each sequence and its log-probability; logits of the ids before are computed first."""
        await self.catch_up()
        ids, scores = await self.choose()
        tokens = (await ids.numpy_async())[:, 0].tolist()
        self.last_logits, self.logits = self.logits, None
        return self.accept(tokens), (await scores.numpy_async())[:, 0]

    def withdraw(self) -> None:
        """Take the last step's tokens, which nothing was computed of, out of the sequences; they stay ended."""
        for sequence in (*self.sequences, *self.contexts):
            sequence.pop()

    async def catch_up(self) -> None:
        """Compute what is in the sequences and not in the cache: the last ids, after `next`."""
        behind = max(map(len, self.contexts)) - self._computed
        if self.logits is not None or behind <= 0:
            return
        if behind > self.window_room:
            await self.start_over()
        else:
            await self._fill([context[-behind:] for context in self.contexts])

    @property
    def _computed(self) -> int:
        """How many tokens of the longest sequence are in the cache."""
        return int(self.cache.mask.sum(axis=1).max(initial=0))

    async def rewind(self, length: int) -> None:
        """Go back to the first `length` tokens; `append` or `next` go on from there.

        Raises:
            InvalidArgument: sequences of different lengths, or states that cannot go back.
        """
        if len(set(map(len, self.sequences))) > 1:
            raise InvalidArgument("a batch of sequences of different lengths cannot be rewound")
        if not 0 <= length <= len(self.sequences[0]):
            raise InvalidArgument(f"cannot rewind to {length}: there are {len(self.sequences[0])} tokens")
        # The last token is computed again: its logits are wanted. Of a window that has started over nothing is kept.
        started = len(self.contexts[0]) != len(self.sequences[0])
        kept = 0 if started else max(0, min(length - 1, self.cache.length))
        self.cache = await self.model.rewound(self.cache, kept)
        self.sequences = [s[:length] for s in self.sequences]
        self.contexts = [list(s) for s in self.sequences]
        self.ended, self.logits, self.rows = [False] * self.batch, None, None
        self.chooser.forget()
        self._prompt, self._new, self._began = min(self._prompt, length), 0, length

    async def read(self, pending: Sequence[tuple[OrtValue, OrtValue]]) -> list[tuple[list[int], Array]]:
        """Ids and log-probabilities of steps that were submitted."""
        made: list[tuple[Any, Any]] = []
        for ids, scores in pending:
            made.append(((await ids.numpy_async())[:, 0].tolist(), (await scores.numpy_async())[:, 0]))
        return made
