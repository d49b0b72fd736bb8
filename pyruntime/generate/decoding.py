"""Step-by-step decoding: token sequences, their cache, and the logits of the next token."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from pyruntime.device.execution.concurrency import all_of
from pyruntime.errors import InvalidArgument, OrtError
from pyruntime.generate.choosing import Chooser
from pyruntime.generate.decoder import Cache, DecoderModel
from pyruntime.generate.options import GenerationOptions
from pyruntime.ir import Array
from pyruntime.session import OrtValue
from pyruntime.session.api.ortvalue import arrays_of

__all__ = ["Decoding"]


class Decoding:
    """A batch of growing sequences: `append` adds given tokens, `next` adds selected ones.

    Prompts of different lengths are padded: on the right if the model derives lengths from the mask, otherwise on the
    left. A finished sequence grows by `pad` until all have finished. With a window, the cache covers the tokens in the
    window.

    Args:
        batch: number of sequences.
        cache: the cache of an earlier decoding, which covers `sequences` without the `dropped` tokens after the sinks.
    """

    def __init__(
        self,
        model: DecoderModel,
        options: GenerationOptions,
        batch: int = 1,
        pad: int = 0,
        cache: Cache | None = None,
        sequences: Sequence[Sequence[int]] = (),
        dropped: int = 0,
    ) -> None:
        self._limit = model.limit(options.bounds)
        self.model = model
        self.options = options
        self.pad = pad
        self.sequences: list[list[int]] = [list(s) for s in sequences] or [[] for _ in range(batch)]
        self.ended = [False] * batch
        self.cache = cache or model.cache(batch)
        self._dropped = [dropped] * batch
        self.logits: OrtValue | None = None
        self.last_logits: OrtValue | None = None
        self.prompts = [0] * batch
        """Length of the first sequence before the last `append`."""
        self.chooser = Chooser(model, options, batch)
        self.rows: Array | None = None
        self._ahead: tuple[OrtValue, Cache] | None = None
        self._prompt = 0
        self._began = 0
        self._new = 0

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return len(self.sequences)

    @property
    def done(self) -> bool:
        """True if all sequences have finished, or the length limit is reached."""
        return all(self.ended) or self.remaining == 0

    @property
    def remaining(self) -> int:
        """Number of tokens that may still be generated."""
        o = self.options
        limits = []
        if o.max_new_tokens is not None:
            limits.append(o.max_new_tokens - (len(self.sequences[0]) - self._began))
        if o.max_length is not None:
            limits.append(o.max_length - max(map(len, self.sequences)))
        if self._context is not None:
            limits.append(self._context - max(map(len, self.sequences)))
        return max(0, min(limits, default=1 << 30))

    @property
    def _context(self) -> int | None:
        """Maximum length of a text for the model's positions; None: unlimited."""
        return None if self.model.local and self.cache.mask.all() else self._limit

    @property
    def window_remaining(self) -> int:
        """Tokens that can follow before the window moves; negative: it has to move now."""
        window = self.options.bounds
        if window is None:
            return 1 << 30
        return min(window.remaining(len(s), d) for s, d in zip(self.sequences, self._dropped, strict=True))

    def seen(self, b: int) -> list[int]:
        """Return the ids of a sequence that the model sees, with those that are not computed yet."""
        sequence, window = self.sequences[b], self.options.bounds
        return [*sequence[: window.sinks], *sequence[window.sinks + self._dropped[b] :]] if window else sequence

    def _last(self, b: int, count: int) -> list[int]:
        """Return the last `count` ids of `seen`."""
        sequence, window, dropped = self.sequences[b], self.options.bounds, self._dropped[b]
        alone = not window or not dropped or count <= len(sequence) - window.sinks - dropped
        return sequence[-count:] if alone else self.seen(b)[-count:]

    async def append(self, ids: Sequence[Sequence[int]], keep_logits: int = 1) -> None:
        """Append ids to each sequence and compute them; the current logits are then those of each last id.

        Raises:
            InvalidArgument: no ids, another number of sequences, or more than max_length.
        """
        if len(ids) != self.batch or not all(map(len, ids)):
            raise InvalidArgument(f"expected ids for each of {self.batch} sequences, got {[len(s) for s in ids]}")
        longest = max(map(len, ids))
        most = self.options.max_length
        if most is not None and max(map(len, self.sequences)) + longest > most:
            raise InvalidArgument(
                f"{longest} tokens after {max(map(len, self.sequences))} are more than max_length {most}; raise it"
            )
        if not any(self.sequences):
            self.options = self.chooser.options = self.options.begun(ids)
        grown = [[*own, *map(int, more)] for own, more in zip(self.sequences, ids, strict=True)]
        if self._lost(grown) == self._dropped:
            await self._compute(ids, keep_logits)
        else:
            await self._slide(grown, keep_logits)
        self.sequences, self._ahead = grown, None
        self.ended = [False] * self.batch
        self._prompt, self._new = min(map(len, self.sequences)), 0
        self._began = len(self.sequences[0])
        self.prompts = [len(s) for s in self.sequences]
        self.chooser.forget()

    async def _compute(self, ids: Sequence[Sequence[int]], keep_logits: int = 1) -> None:
        """Compute the logits of ids that follow the cache's tokens."""
        longest = max(map(len, ids))
        context = self._context
        if context is not None and self.cache.length + longest > context:
            raise InvalidArgument(
                f"{longest} tokens after {self.cache.length} are more than the {context} positions that the model "
                f"knows; with GenerationOptions(window={context}) it sees the first and the last ones"
            )
        ragged = len(set(map(len, ids))) > 1
        if ragged and self.cache.length:
            raise InvalidArgument("a batch grows by as many tokens in each sequence; start over with whole prompts")
        padded = np.full((self.batch, longest), self.pad, np.int64)
        mask = np.zeros_like(padded)
        for b, sequence in enumerate(ids):
            at = slice(0, len(sequence)) if self.model.right_padded else slice(longest - len(sequence), None)
            padded[b, at], mask[b, at] = sequence, 1
        chunk = longest if ragged else min(self.options.prefill_chunk, self.model.chunk)
        cache, keep = self.cache, longest if ragged else min(keep_logits, chunk)
        last = (longest - 1) // chunk * chunk
        for begin in range(0, last, chunk):
            part = slice(begin, begin + chunk)
            cache = await self.model.prefill(padded[:, part], cache, mask[:, part])
        self.logits, self.cache = await self.model.step(padded[:, last:], cache, mask[:, last:], keep)
        self.rows = np.array([len(s) - 1 for s in ids], np.int64) if ragged and self.model.right_padded else None

    def _lost(self, sequences: Sequence[Sequence[int]]) -> list[int]:
        """Return the number of tokens of each sequence that are outside of the window."""
        window = self.options.bounds
        return [window.dropped(len(s)) if window else 0 for s in sequences]

    async def _slide(self, sequences: Sequence[Sequence[int]], keep_logits: int = 1) -> None:
        """Move the window to the end of `sequences`, which extend the current ones; compute all but the sinks.

        The old cache is released first. If this is interrupted, the cache covers only the sinks.
        """
        window = self.options.bounds
        assert window is not None
        contexts = [window.context(s) for s in sequences]
        sinks = self._common_sinks(min(map(len, contexts)) - 1) if len(set(map(len, contexts))) == 1 else 0
        self.logits = self.last_logits = self.rows = self._ahead = None
        self.cache = await self.model.rewound(self.cache, sinks)
        self._dropped = self._lost(sequences)
        await self._compute([context[sinks:] for context in contexts], keep_logits)

    def _common_sinks(self, most: int) -> int:
        """Return the number of leading sinks that are in the cache of all sequences and can be kept."""
        window = self.options.bounds
        if window is None:
            return 0
        sinks = max(0, min(window.sinks, most, self.cache.length))
        return sinks if self.model.can_rewind(self.cache, sinks) and self.cache.mask[:, :sinks].all() else 0

    def set_logits(self, logits: OrtValue) -> None:
        """Set the current logits [batch, 1, vocab], from which the next ids are selected."""
        self.logits, self.rows = logits, None

    async def choose(self) -> tuple[OrtValue, OrtValue]:
        """Select ids [batch, 1] and their log-probabilities from the current logits. The sequences do not change."""
        if self.logits is None:
            raise InvalidArgument("there are no logits yet: append tokens first")
        made = await self.chooser.choose(
            self.logits, self.sequences, self.rows, self._prompt, self._new, self.remaining
        )
        self._new += 1
        return made

    async def compute(self, ids: OrtValue | Array) -> None:
        """Compute the logits of selected ids. The window must have capacity for them."""
        self.logits, self.cache = await self.model.step(ids, self.cache)
        self.rows = None

    def accept(self, ids: Sequence[int]) -> list[int]:
        """Append selected ids to the sequences; return them, with `pad` for sequences that had finished."""
        made = [self.pad if ended else int(t) for t, ended in zip(ids, self.ended, strict=True)]
        for b, token in enumerate(made):
            self.sequences[b].append(token)
            if not self.ended[b]:
                self.ended[b] = token in self.options.end_tokens
        self.chooser.accept(made)
        return made

    async def next(self) -> list[int]:
        """Select the next id of each sequence and append it; missing logits are computed first.

        On a GPU the logits after these ids are computed while the ids are read back, if another step may follow.
        """
        await self.catch_up()
        ids, _ = await self.choose()
        ahead = list[tuple[OrtValue, Cache]]()

        async def compute() -> None:
            # The step may never be wanted. If it fails, `catch_up` computes it again when it is, and raises.
            with suppress(OrtError):
                ahead.append(await self.model.step(ids, self.cache))

        follows = self.model.on_gpu and not self._missing and self.remaining > 1 and self.window_remaining > 0
        (read,) = await _read([ids], compute() if follows else None)
        tokens = read[:, 0].tolist()
        self.spend()
        made = self.accept(tokens)
        self._ahead = ahead[0] if ahead and made == tokens and not all(self.ended) else None
        return made

    def withdraw(self) -> None:
        """Remove the last step's tokens, which were not computed, from the sequences. Finished ones stay so."""
        for sequence in self.sequences:
            sequence.pop()

    def spend(self) -> None:
        """Mark the current logits as used, so that `catch_up` computes the next ones."""
        self.last_logits, self.logits = self.logits, None

    async def catch_up(self) -> None:
        """Compute the tokens that are not in the cache (the last ones, after `next`), and move a full window."""
        if self.logits is not None:
            return
        if self._ahead is not None:
            (self.logits, self.cache), self.rows, self._ahead = self._ahead, None, None
            return
        if self._lost(self.sequences) != self._dropped:
            await self._slide(self.sequences)
            return
        missing = self._missing
        if missing > 0:
            await self._compute([self._last(b, missing) for b in range(self.batch)])

    @property
    def _missing(self) -> int:
        """Number of the first sequence's tokens that the model sees and that are not in the cache."""
        computed = self.cache.begin + int(self.cache.mask[0].sum())
        return len(self.sequences[0]) - self._dropped[0] - computed

    async def rewind(self, length: int) -> None:
        """Truncate the sequences to `length` tokens; continue with `append` or `next`.

        Raises:
            InvalidArgument: sequences of different lengths, or a state that cannot be rewound.
        """
        if len(set(map(len, self.sequences))) > 1:
            raise InvalidArgument("a batch of sequences of different lengths cannot be rewound")
        if not 0 <= length <= len(self.sequences[0]):
            raise InvalidArgument(f"cannot rewind to {length}: there are {len(self.sequences[0])} tokens")
        cut = [s[:length] for s in self.sequences]
        lost = self._lost(cut)
        self._ahead = None
        # The last token is computed again for its logits.
        if lost == self._dropped:
            kept = max(0, min(length - 1 - lost[0], self.cache.length))
            if self.model.local and not self.model.can_rewind(self.cache, kept):
                kept = 0
        else:
            kept = self._common_sinks(length - 1)
        self.cache = await self.model.rewound(self.cache, kept)
        self.sequences, self._dropped = cut, lost
        self.ended, self.logits, self.rows = [False] * self.batch, None, None
        self.chooser.forget()
        self._prompt, self._new, self._began = min(self._prompt, length), 0, length

    async def read(
        self, pending: Sequence[tuple[OrtValue, OrtValue]], ids: OrtValue | None = None
    ) -> list[tuple[list[int], Array]]:
        """Read ids and log-probabilities of steps that were submitted, in one readback.

        Args:
            ids: selected ids, whose logits are computed meanwhile.
        """
        values = [value for step in pending for value in step]
        read = iter(await _read(values, self.compute(ids) if ids is not None else None))
        return [(tokens[:, 0].tolist(), scores[:, 0]) for tokens, scores in zip(read, read, strict=True)]


async def _read(values: Sequence[OrtValue], meanwhile: Coroutine[Any, Any, None] | None) -> list[Array]:
    """Read values back. `meanwhile` is submitted after the readback has begun, so that the GPU has work while the host
    waits for it and goes on.
    """
    made = list[Array]()

    async def read() -> None:
        made.extend(await arrays_of(values))

    await all_of(read(), *([meanwhile] if meanwhile is not None else []))
    return made
