"""The tokens that a model sees of a text longer than its window of W tokens: the first S (sinks) and the last ones.

    dropped(L) = D · ceil(max(0, L - W) / D),  D = W + 1 - S - (W - S) // 2
    context(ids) = ids[:S] + ids[S + dropped(len(ids)):]

The token after a text of L ids is the one that the model predicts for context(ids) at positions 0, 1, ..., as in a new
run of these ids. It depends only on the ids, not on the prompt's length or on earlier computations, so the next turn of
a conversation can use the caches of the last one. The context of a long text has from S + (W - S) // 2 to W tokens.
When it is full it restarts with the first S and the last (W - S) // 2 tokens, which are computed again except for the
sinks, whose rows in a cache are unchanged: each token is computed at most twice, and caches never exceed W rows.

Source: Xiao et al. 2023 (sinks: the first tokens, which attract attention); there keys are rotated to new positions and
the window moves with each token. Here the first token of a context is computed at position 0, so attention has a sink
whichever token that is. Only the token that the model was trained to see there may matter: `default_sinks` keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Window", "default_sinks"]


def default_sinks(texts: Sequence[Sequence[int]], begin_token: int | None) -> int:
    """Return 1 if all texts start with the model's begin token, else 0."""
    return int(begin_token is not None and all(ids[0] == begin_token for ids in texts if ids) and any(map(len, texts)))


@dataclass(frozen=True)
class Window:
    """A limit of `size` tokens, which always include the first `sinks` <= size - 2 of the text."""

    size: int
    sinks: int

    @property
    def block(self) -> int:
        """Number of tokens that are dropped at once."""
        return self.size + 1 - self.sinks - (self.size - self.sinks) // 2

    def dropped(self, length: int) -> int:
        """Return the number of tokens after the sinks that a text of this length has lost."""
        return self.block * -(-max(0, length - self.size) // self.block)

    def remaining(self, length: int, dropped: int) -> int:
        """Return the number of tokens that can follow a text of this length before more than `dropped` are lost."""
        return self.size + dropped - length

    def context(self, ids: Sequence[int]) -> list[int]:
        """Return the ids of a text that the model sees."""
        return [*ids[: self.sinks], *ids[self.sinks + self.dropped(len(ids)) :]]
