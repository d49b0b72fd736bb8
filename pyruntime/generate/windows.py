"""What a model sees of a text that is longer than its window: the first tokens (sinks) and the last ones.

    dropped(L) = D · ceil(max(0, L - size) / D),  D = max(1, (size - sinks) // 2)
    context(ids) = ids[:sinks] + ids[sinks + dropped(len(ids)):]

The token after a text of L ids is the one the model gives behind context(ids) at positions 0, 1, ...: what a fresh run
of these ids gives. It depends on the ids alone, not on where the prompt ended or on what was computed before. A context
has more than size - D and at most size tokens. Every D tokens the block in front of it is dropped and what stays is
computed anew, but for the sinks, whose rows in a cache are the same. Each token is computed about twice, in runs of
many, and no run has more than `size` rows behind it.

Source: Xiao et al. 2023 (StreamingLLM: attention sinks), who keep the rows of what was computed; these are not what the
model makes of the tokens that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Window"]


@dataclass(frozen=True)
class Window:
    """At most `size` tokens, of which the first `sinks` < size of the text always stay."""

    size: int
    sinks: int

    @property
    def block(self) -> int:
        """How many tokens are dropped at once."""
        return max(1, (self.size - self.sinks) // 2)

    def dropped(self, length: int) -> int:
        """How many tokens behind the sinks a text of this length has lost."""
        return self.block * -(-max(0, length - self.size) // self.block)

    def room(self, length: int, dropped: int) -> int:
        """How many tokens may come behind a text of this length before more than `dropped` are lost."""
        return self.size + dropped - length

    def context(self, ids: Sequence[int]) -> list[int]:
        """The ids that the model sees of a text."""
        return [*ids[: self.sinks], *ids[self.sinks + self.dropped(len(ids)) :]]
