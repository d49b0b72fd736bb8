"""A window over a text that is longer than what the model looks back at.

A decoder of a window of W tokens with S sinks computes the text from its beginning until W tokens are in its caches.
Then it starts over: with the first S tokens and the last (W - S) // 2, at positions from 0. So each token is what the
model says behind at least S + (W - S) // 2 and at most W tokens, exactly as if these alone had been its prompt, and the
caches never have more than W rows. Each start computes at most half a window, so a token costs at most one more.
Source: Xiao et al. 2023 (sinks: the first tokens, which attention leans on); there keys are turned to their new
positions and the window moves with each token.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["in_window"]


def in_window(ids: Sequence[int], window: int, sinks: int) -> list[int]:
    """What a decoder starts over with: all ids where they fit or `window` is 0, else sinks and the last of the rest."""
    if not window or len(ids) <= window:
        return list(ids)
    return [*ids[:sinks], *ids[len(ids) - (window - sinks) // 2 :]]
