"""Text generation as iterators over pieces of text and token ids.

    generator = TextGenerator(DecoderModel(session), tokenizer)
    async for piece in generator.generate("Once", GenerationOptions(max_new_tokens=50)): print(piece.text, end="")

Tokens that a prompt has in common with the last text are not computed again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from pyruntime.errors import InvalidArgument
from pyruntime.generate.decoder import Cache, DecoderModel
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.options import GenerationOptions
from pyruntime.generate.speculation import looked_up
from pyruntime.generate.stopping import StopStrings
from pyruntime.session.environment import wait_for

__all__ = ["Piece", "TextGenerator", "TokenText"]


class TokenText(Protocol):
    """The methods of a tokenizer that a generator uses."""

    def encode(self, text: str) -> list[int]:
        """Encode a text to ids."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to a text."""
        ...

    def stream(self) -> DecodeStream:
        """Create an incremental decoder."""
        ...


class DecodeStream(Protocol):
    """Incremental decoder of ids."""

    def step(self, token: int) -> str:
        """Return the text that this id adds; empty while a character is incomplete."""
        ...


@dataclass(frozen=True)
class Piece:
    """One token of one sequence.

    Attributes:
        text: the text that it adds; empty without a tokenizer, and while a character is incomplete.
        id, log_probability: the token, and its log softmax in the model's logits.
        sequence: index in the batch.
        finish: '' if the sequence continues; else 'end' (an end token), 'stop' (a stop string) or 'length'.
    """

    text: str
    id: int
    log_probability: float
    sequence: int = 0
    finish: str = ""


class TextGenerator:
    """Generates text with one model. Keeps the cache of the last text for a prompt that continues it.

    Args:
        tokenizer: required for text; ids need none.
        pad: id that fills shorter sequences.
    """

    def __init__(self, model: DecoderModel, tokenizer: TokenText | None = None, pad: int = 0) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._pad = pad
        self._kept: tuple[list[int], Cache] | None = None
        self.reused = 0
        """Number of the last prompt's tokens that were in the cache."""

    async def generate(
        self,
        prompt: str | Sequence[int] | Sequence[Sequence[int]],
        options: GenerationOptions | None = None,
        stop: Sequence[str] = (),
    ) -> AsyncIterator[Piece]:
        """Yield pieces as they are generated, ordered by sequence within a step; closing it stops generation.

        Args:
            prompt: a text, its ids, or ids of several sequences.
            stop: strings that end a sequence; pieces contain neither them nor what follows.
        """
        options = options or GenerationOptions(max_new_tokens=128)
        prompts = [list(p) for p in self._prompts(prompt) for _ in range(options.num_sequences)]
        if options.begin_token is None:
            options = replace(options, begin_token=getattr(self.tokenizer, "begin_token", None))
        decoding = await self._begin(prompts, options.begun(prompts))
        streams = [self.tokenizer.stream() if self.tokenizer else None for _ in prompts]
        stops = [StopStrings(stop) for _ in prompts]
        finished = [""] * len(prompts)
        try:
            async with aclosing(_steps(decoding)) as steps:
                async for ids, scores in steps:
                    for b, token in enumerate(ids):
                        if finished[b]:
                            continue
                        stream = streams[b]
                        ended = decoding.ended[b]
                        text = stops[b].feed(stream.step(token) if stream and not ended else "")
                        finished[b] = "stop" if stops[b].met else "end" if ended else "length" if decoding.done else ""
                        if finished[b] != "stop" and finished[b]:
                            text += stops[b].rest()
                        yield Piece(text, token, float(scores[b]), b, finished[b])
                        decoding.ended[b] = bool(finished[b])
                    if all(finished):
                        return
        finally:
            self._keep(decoding)

    def generate_sync(
        self,
        prompt: str | Sequence[int] | Sequence[Sequence[int]],
        options: GenerationOptions | None = None,
        stop: Sequence[str] = (),
    ) -> Iterator[Piece]:
        """Generate as a synchronous iterator. Raises RuntimeException where blocking is not possible."""
        pieces = self.generate(prompt, options, stop)
        how = "async for piece in generator.generate(...)"
        try:
            while True:
                try:
                    yield wait_for(_following(pieces), how)
                except StopAsyncIteration:
                    return
        finally:
            wait_for(_closed(pieces), how)

    def _prompts(self, prompt: str | Sequence[int] | Sequence[Sequence[int]]) -> list[list[int]]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InvalidArgument("a text needs a tokenizer: give one to TextGenerator, or ids to generate")
            return [self.tokenizer.encode(prompt)]
        if len(prompt) and not isinstance(prompt[0], Sequence):
            return [[int(t) for t in prompt]]  # type: ignore[arg-type]
        return [list(p) for p in prompt]  # type: ignore[arg-type]

    async def _begin(self, prompts: list[list[int]], options: GenerationOptions) -> Decoding:
        """Start a decoding and compute the prompts, reusing the kept cache for a single prompt."""
        self.reused = 0
        if len(prompts) == 1 and self._kept is not None:
            (prompt,), (ids, cache) = prompts, self._kept
            self._kept = None
            window = options.bounds
            context = window.context(prompt) if window else prompt
            lost, sinks = len(prompt) - len(context), window.sinks if window else 0
            shared = min(_alike(context, ids), len(context) - 1, cache.length)
            starts = lost and shared <= sinks  # the window restarts with the sinks of the cache
            if shared > 0 and self.model.can_rewind(cache, shared) and (self.model.rewindable or not starts):
                cache = await self.model.rewound(cache, shared)
                dropped = lost if shared > sinks else 0
                begin = shared + dropped
                decoding = Decoding(self.model, options, 1, self._pad, cache, [prompt[:begin]], dropped)
                await decoding.append([prompt[begin:]])
                self.reused = shared
                return decoding
        decoding = Decoding(self.model, options, len(prompts), self._pad)
        await decoding.append(prompts)
        return decoding

    def _keep(self, decoding: Decoding) -> None:
        if decoding.batch == 1:
            self._kept = (decoding.seen(0), decoding.cache)

    def forget(self) -> None:
        """Release the kept cache."""
        self._kept = None


def _alike(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix of two id sequences."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


async def _steps(decoding: Decoding) -> AsyncGenerator[tuple[list[int], list[float]], None]:
    """Yield the tokens of each step; on a GPU, several steps are submitted before the first is read."""
    o = decoding.options
    alone = decoding.batch == 1 and decoding.model.rewindable and o.greedy and not o.penalized and not o.processors
    if o.lookup and alone and not decoding.chooser.needs_tokens and not o.min_new_tokens and not decoding.done:
        async with aclosing(looked_up(decoding, o.lookup)) as steps:
            async for step in steps:
                yield step
        return
    ahead = 1 if decoding.chooser.needs_tokens or not decoding.model.on_gpu else decoding.options.ahead
    while not decoding.done:
        await decoding.catch_up()
        left, window = decoding.remaining, decoding.window_remaining
        pending = [await decoding.choose()]
        while len(pending) < min(ahead, left, window + 1):
            await decoding.compute(pending[-1][0])
            pending.append(await decoding.choose())
        follows = decoding.model.on_gpu and len(pending) < left and len(pending) <= window
        if not follows:
            decoding.spend()
        for tokens, values in await decoding.read(pending, pending[-1][0] if follows else None):
            yield decoding.accept(tokens), values.tolist()
            if all(decoding.ended):
                return


async def _following(pieces: AsyncIterator[Piece]) -> Piece:
    return await anext(pieces)


async def _closed(pieces: AsyncIterator[Piece]) -> None:
    await pieces.aclose()  # type: ignore[attr-defined]
