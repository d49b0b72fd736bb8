"""onnxruntime-genai's Generator, which generates step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.genai.errors import GenerationError
from pyruntime.genai.model import Model
from pyruntime.genai.params import GeneratorParams
from pyruntime.genai.tokenizer import Tensor
from pyruntime.generate.beams import beam_search
from pyruntime.generate.decoding import Decoding
from pyruntime.ir import Array
from pyruntime.session import OrtValue
from pyruntime.session.environment import wait_for

__all__ = ["Generator"]


class Generator:
    """Sequences that grow by `append_tokens` and `generate_next_token`.

    With num_beams > 1 the first `generate_next_token` runs the whole search. The sequences are then its
    num_return_sequences results, without end tokens.

    Asynchronous methods: `await append_tokens_async(ids)`, `await generate_next_token_async()`, and `async for tokens
    in generator`, which runs until all sequences have finished.
    """

    def __init__(self, arg0: Model, arg1: GeneratorParams, /) -> None:
        self._model = arg0
        self._params = arg1
        self._pad = arg0.config.pad_token
        options = arg1.options()
        if arg1.beams > 1 and not options.greedy:
            raise GenerationError("beam search does not sample: set do_sample=False, or num_beams=1")
        self._decoding = Decoding(arg0.decoder, options, arg1.batch * arg1.copies, self._pad)
        self._padding: list[list[int]] = [[] for _ in range(self._decoding.batch)]
        self._next: list[int] = []

    def append_tokens(self, arg0: Any, /) -> None:
        """Append tokens to the sequences and compute them: int32 [n], or [batch, n] padded with the pad token.

        Raises:
            GenerationError (a RuntimeError): the shape does not match the batch, or max_length is exceeded.
        """
        wait_for(self.append_tokens_async(arg0), "await generator.append_tokens_async(tokens)")

    async def append_tokens_async(self, tokens: Any) -> None:
        """Awaitable `append_tokens`."""
        array = np.asarray(tokens.as_numpy() if isinstance(tokens, Tensor) else tokens, np.int64)
        batch = self._params.batch
        if not array.size or array.size % batch:
            raise GenerationError(f"append_tokens: expected tokens for a batch of {batch}, got shape {array.shape}")
        rows = np.repeat(array.reshape(batch, -1), self._params.copies, axis=0)
        length, most = self.token_count(), self._decoding.options.max_length or 0
        if length + rows.shape[1] > most:
            raise GenerationError(
                f"input_ids size ({rows.shape[1]}) + current sequence length ({length}) exceeds max length ({most})"
            )
        if self._params.beams > 1:
            if batch > 1 or length:
                raise GenerationError("beam search: expected one prompt, appended once; use several generators")
            self._decoding.sequences = rows.tolist()
            return
        given = [self._unpadded(row) if batch > 1 else row.tolist() for row in rows]
        least = self._params.min_length - length - rows.shape[1]
        self._decoding.options = replace(self._decoding.options, min_new_tokens=max(0, least))
        self._decoding.chooser.options = self._decoding.options
        await self._decoding.catch_up()
        await self._decoding.append(given)
        for padding, row, own in zip(self._padding, rows, given, strict=True):
            padding += [self._pad] * (len(row) - len(own))

    def _unpadded(self, row: Array) -> list[int]:
        """Remove padding from both ends of a prompt."""
        kept = np.flatnonzero(row != self._pad)
        made: list[int] = row[kept[0] : kept[-1] + 1].tolist() if len(kept) else row[:1].tolist()
        return made

    def generate_next_token(self) -> None:
        """Select the next token of each sequence.

        Raises:
            GenerationError (a RuntimeError): nothing was appended yet, or max_length is reached.
        """
        wait_for(self.generate_next_token_async(), "await generator.generate_next_token_async()")

    async def generate_next_token_async(self) -> Array:
        """Awaitable `generate_next_token`, which returns the tokens."""
        if self._decoding.logits is None and not self._decoding.sequences[0]:
            raise GenerationError(
                "GenerateNextToken called with no prior state. Please call AppendTokens, SetLogits, or SetInputs "
                "before calling GenerateNextToken."
            )
        most = self._decoding.options.max_length or 0
        if self.token_count() >= most:
            raise GenerationError(f"GenerateNextToken called with sequence length already at max_length ({most})")
        if self._params.beams > 1:
            await self._search()
        elif all(self._decoding.ended):
            self._next = [self._pad] * self._decoding.batch
        else:
            self._next = await self._decoding.next()
            if all(self._decoding.ended):
                self._decoding.withdraw()
        return self.get_next_tokens()

    async def _search(self) -> None:
        """Run the whole beam search from the prompt."""
        search, decoding = self._params.get_search_options(), self._decoding
        prompt, options = decoding.sequences[0], decoding.options
        options = replace(
            options,
            num_sequences=self._params.copies,
            min_new_tokens=max(0, self._params.min_length - len(prompt)),
        )
        found = await beam_search(
            self._model.decoder,
            prompt,
            self._params.beams,
            options,
            float(search["length_penalty"]),
            bool(search["early_stopping"]),
            whole_length=True,
        )
        made = [ids[:-1] if ids[-1] in options.end_tokens else ids for ids, _ in found]
        decoding.sequences, decoding.ended = made, [True] * decoding.batch
        self._next = [ids[-1] for ids in made]

    async def __aiter__(self) -> AsyncIterator[Array]:
        while not self.is_done():
            yield await self.generate_next_token_async()

    def is_done(self) -> bool:
        """Return whether all sequences have finished, or max_length is reached."""
        most = self._decoding.options.max_length or 0
        started = bool(self._decoding.sequences[0])
        return started and (all(self._decoding.ended) or self.token_count() >= most)

    def get_next_tokens(self) -> Array:
        """Return the last selected tokens, int32 [batch]."""
        return np.array(self._next, np.int32)

    def get_sequence(self, arg0: int, /) -> Array:
        """Return the tokens of a sequence, int32: the prompt, its padding, and the generated tokens.

        The step in which the last sequence finishes is left out, so a single sequence has no end token.
        """
        own, padding = self._decoding.sequences[arg0], self._padding[arg0]
        if not padding:
            return np.array(own, np.int32)
        prompt = self._decoding.prompts[arg0]
        return np.array([*own[:prompt], *padding, *own[prompt:]], np.int32)

    def token_count(self) -> int:
        """Return the length of the longest sequence."""
        return max(len(s) + len(p) for s, p in zip(self._decoding.sequences, self._padding, strict=True))

    def rewind_to(self, arg0: int, /) -> None:
        """Truncate the sequences to `arg0` tokens.

        Raises:
            GenerationError (a RuntimeError): there are fewer tokens, sequences differ in length, or states are
                recurrent.
        """
        wait_for(self.rewind_to_async(arg0), "await generator.rewind_to_async(length)")

    async def rewind_to_async(self, length: int) -> None:
        """Awaitable `rewind_to`."""
        await self._decoding.rewind(int(length))

    def get_logits(self) -> Array:
        """Return the logits of the next token, float32 [batch, 1, vocab]."""
        return wait_for(self.get_logits_async(), "await generator.get_logits_async()")

    async def get_logits_async(self) -> Array:
        """Awaitable `get_logits`."""
        await self._decoding.catch_up()
        logits = np.asarray(await self._logits().numpy_async(), np.float32)
        rows = self._decoding.rows
        return logits[:, -1:] if rows is None else logits[np.arange(len(logits)), rows][:, None]

    def set_logits(self, arg0: Any, /) -> None:
        """Set the logits that the next token is selected from, float32 [batch, 1, vocab]."""
        dtype = np.dtype(self._model.decoder.logits_dtype)
        array = np.asarray(arg0, dtype).reshape(self._decoding.batch, 1, -1)
        self._decoding.set_logits(OrtValue.ortvalue_from_numpy(array))

    def get_output(self, arg0: str, /) -> Array:
        """Return an output of the last run by name; for a long prompt, that of its last chunk.

        Raises:
            GenerationError (a RuntimeError): the model has no such output.
        """
        return wait_for(self._output(arg0), "await generator.get_logits_async()")

    async def _output(self, name: str) -> Array:
        caches = {after: before for before, after in self._model.decoder.caches.items()}
        if name == self._model.decoder.logits_name:
            return np.asarray(await self._logits().numpy_async())
        if name not in caches:
            raise GenerationError(f"get_output: expected one of {['logits', *caches]}, got {name!r}")
        return np.asarray(await self._decoding.cache.values[caches[name]].numpy_async())

    def _logits(self) -> OrtValue:
        found = self._decoding.logits or self._decoding.last_logits
        if found is None:
            raise GenerationError("there are no logits yet: append tokens first")
        return found

    def set_runtime_option(self, arg0: str, arg1: str, /) -> None:
        """Set a runtime option: 'terminate_session' = '1' ends the generation; others are ignored."""
        if arg0 == "terminate_session" and arg1 == "1":
            self._decoding.ended = [True] * self._decoding.batch
