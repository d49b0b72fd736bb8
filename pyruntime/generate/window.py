"""What a model sees of a text that is longer than its window of W tokens: the first S (sinks) and the last ones.

    dropped(L) = D · ceil(max(0, L - W) / D),  D = W + 1 - S - (W - S) // 2
    context(ids) = ids[:S] + ids[S + dropped(len(ids)):]

The token after a text of L ids is the one the model gives after context(ids) at positions 0, 1, ...: what a fresh run
of these ids gives. It depends on the ids alone, not on where the prompt ended or on what was computed before, so that
the next turn of a conversation finds in the caches what the last one left. A context of a long text has from
S + (W - S) // 2 to W tokens. Whenever it is full it starts over with the first S and the last (W - S) // 2, which are
computed anew, but for the sinks, whose rows in a cache are the same: a token costs at most one more, and caches never
have more than W rows.

Source: Xiao et al. 2023 (sinks: the first tokens, which attention leans on); there keys are turned to their new
positions and the window moves with each token. Here the first token of a context is computed at position 0, so that
attention has its sink whichever token that is. What a model may miss is the token that it was trained to see there:
`default_sinks` keeps it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Window", "default_sinks"]


def default_sinks(texts: Sequence[Sequence[int]], begin_token: int | None) -> int:
    """Return 1 where texts begin with the token that begins the model's texts, else 0."""
    return int(begin_token is not None and all(ids[0] == begin_token for ids in texts if ids) and any(map(len, texts)))


@dataclass(frozen=True)
class Window:
    """At most `size` tokens, of which the first `sinks` <= size - 2 of the text always stay."""

    size: int
    sinks: int

    @property
    def block(self) -> int:
        """How many tokens are dropped at once."""
        return self.size + 1 - self.sinks - (self.size - self.sinks) // 2

    def dropped(self, length: int) -> int:
        """Return how many tokens after the sinks a text of this length has lost."""
        return self.block * -(-max(0, length - self.size) // self.block)

    def remaining(self, length: int, dropped: int) -> int:
        """Return how many tokens may follow a text of this length until more than `dropped` are lost."""
        return self.size + dropped - length

    def context(self, ids: Sequence[int]) -> list[int]:
        """Return the ids that the model sees of a text."""
        return [*ids[: self.sinks], *ids[self.sinks + self.dropped(len(ids)) :]]
