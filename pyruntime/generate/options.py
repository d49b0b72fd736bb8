"""Options of a generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyruntime.errors import InvalidArgument
from pyruntime.generate.sampling import EVERY
from pyruntime.generate.window import Window, default_sinks
from pyruntime.ir import Array
from pyruntime.ops.custom import CustomOp

__all__ = ["Constraint", "GenerationOptions", "Processor"]

Processor = Callable[[Array, Array], Array] | CustomOp
"""A logits processor; returns logits of the same shape.

A function of (ids int64 [batch, length], logits float32 [batch, vocab]); or an operator made with `custom_op`, in WGSL,
of logits float32 [batch, vocab], or of logits and counts int32 [batch, vocab]: how often each token was generated, -1
if only the prompt has it.
"""

_LARGEST_SORT = 1024


class Constraint(Protocol):
    """Decides which tokens may come next in one sequence."""

    def copy(self) -> Constraint:
        """Copy the constraint with its state."""
        ...

    def mask(self, remaining: int) -> Array:
        """Return bool [vocab]: the tokens allowed next, at least one, where `remaining` tokens are left."""
        ...

    def accept(self, token: int) -> None:
        """Advance by the selected token."""
        ...


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Options of one generation; `pyruntime.generate.sampling` has the sampler's formula.

    Attributes:
        max_new_tokens, max_length: limits of generated tokens, and of tokens with the prompt; the lower one applies.
        min_new_tokens: end tokens are masked until this many were generated.
        do_sample: sample; otherwise greedy.
        top_k, top_p: filters of the sampler; 0 and 1 disable them.
        seed: seed of the random generator; None: a new one each time.
        end_tokens: ids that end a sequence; they are its last token.
        num_sequences: sequences for each prompt.
        no_repeat_ngram_size: no n-gram of this size is repeated; 0: no such restriction.
        processors: custom logits processors, applied before penalties and filters. With functions, each step reads the
            logits back; operators run on the model's device, after functions.
        constraint: restricts the tokens. Each step then reads its token before the next is computed.
        prefill_chunk: prompt tokens computed at once.
        lookup: maximum number of tokens that each run predicts from the text itself (prompt lookup). Results do not
            change. Only for one sequence, greedy, without penalties, constraint and processors, and with caches that
            can be rewound; otherwise ignored.
        window, sinks: the model sees at most `window` tokens (0: unlimited), always including the first `sinks`; see
            `pyruntime.generate.window`. Texts may then be longer than the model's context. Penalties, n-grams,
            processors and constraints use the whole text. Default of `sinks`: 1 if texts start with `begin_token`, else
            0.
        begin_token: id that the model's texts start with; None: that of the generator's tokenizer.
        ahead: tokens submitted to a GPU before the first is read, unless a constraint or processors need each token.
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    end_tokens: Sequence[int] = ()
    num_sequences: int = 1
    no_repeat_ngram_size: int = 0
    processors: Sequence[Processor] = ()
    constraint: Constraint | None = None
    prefill_chunk: int = 512
    lookup: int = 0
    window: int = 0
    sinks: int | None = None
    begin_token: int | None = None
    ahead: int = 4

    def __post_init__(self) -> None:
        for processor in self.processors:
            if not callable(processor) and not isinstance(processor, CustomOp):
                raise InvalidArgument(
                    "GenerationOptions: expected processors that are functions of (ids, logits), or operators made "
                    f"with @custom_op, such as Rarer(by=2.0), got {processor!r}"
                )
        checks = {
            "temperature": self.temperature >= 0,
            "top_k": self.top_k >= 0,
            "top_p": 0 <= self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "repetition_penalty": self.repetition_penalty > 0,
            "num_sequences": self.num_sequences >= 1,
            "prefill_chunk": self.prefill_chunk >= 1,
            "ahead": self.ahead >= 1,
            "lookup": self.lookup >= 0,
            "sinks": (self.sinks or 0) >= 0,
            "window": self.window == 0 or self.window >= (self.sinks or 0) + 2,
        }
        for name, holds in checks.items():
            if not holds:
                of = f"; expected 0, or from sinks + 2 = {(self.sinks or 0) + 2}" if name == "window" else ""
                raise InvalidArgument(f"GenerationOptions: {name}={getattr(self, name)!r} is out of its range{of}")

    @property
    def bounds(self) -> Window | None:
        """The window of tokens that the model sees; None: unlimited."""
        return Window(self.window, self.sinks or 0) if self.window else None

    def begun(self, texts: Sequence[Sequence[int]]) -> GenerationOptions:
        """Return options with `sinks` set, for texts that start with these ids."""
        if not self.window or self.sinks is not None:
            return self
        return replace(self, sinks=min(self.window - 2, default_sinks(texts, self.begin_token)))

    @property
    def functions(self) -> tuple[Callable[[Array, Array], Array], ...]:
        """Processors that are functions on the host."""
        return tuple(p for p in self.processors if not isinstance(p, CustomOp))

    @property
    def operators(self) -> tuple[CustomOp, ...]:
        """Processors that are operators."""
        return tuple(p for p in self.processors if isinstance(p, CustomOp))

    @property
    def greedy(self) -> bool:
        """True if no token is sampled, also by a temperature of 0 or top_k = 1."""
        return not self.do_sample or self.temperature == 0 or self.top_k == 1

    @property
    def penalized(self) -> bool:
        """True if any penalty has an effect."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)

    @property
    def candidates(self) -> int:
        """Number of logits that top_k and top_p need sorted."""
        if not self.top_k and self.top_p >= 1:
            return 0
        if not self.top_k or self.top_k > _LARGEST_SORT:
            return EVERY
        return int(max(64, 1 << (self.top_k - 1).bit_length()))
