"""Speculative greedy decoding by prompt lookup: tokens are predicted from the text and verified by the model.

The last tokens are searched for earlier in the text. What followed them there is computed with the next token in one
run; predictions that the model confirms are accepted, and the cache is rewound to the last of them. In repetitive text,
such as summaries and code, one run yields several tokens. Source: Saxena 2023 (prompt lookup), Leviathan et al. 2023.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import numpy as np

from pyruntime.generate.decoding import Decoding

__all__ = ["looked_up", "predicted_tokens"]

_LONGEST = 3


def predicted_tokens(sequence: Sequence[int], most: int) -> list[int]:
    """Return up to `most` tokens that followed the last earlier occurrence of the last three tokens or fewer."""
    for n in range(min(_LONGEST, len(sequence) - 1), 0, -1):
        tail = list(sequence[-n:])
        for at in range(len(sequence) - n - 1, -1, -1):
            if list(sequence[at : at + n]) == tail:
                return list(sequence[at + n : at + n + most])
    return []


async def looked_up(decoding: Decoding, most: int) -> AsyncGenerator[tuple[list[int], list[float]], None]:
    """Yield tokens one at a time with their log-probabilities, with up to `most` predicted tokens a run.

    Only for one sequence, greedy, without penalties, constraints and processors, and a model with logits for all rows
    and caches that can be rewound.
    """
    tokens, values = await _chosen(decoding)
    while True:
        for token, value in zip(tokens, values, strict=True):
            yield decoding.accept([token]), [value]
            if decoding.done:
                return
        (sequence,), remaining = decoding.sequences, decoding.window_remaining
        if remaining < 0:
            decoding.spend()
            await decoding.catch_up()
            tokens, values = await _chosen(decoding)
            continue
        predicted = predicted_tokens(sequence, min(most, decoding.remaining - 1, remaining))
        base = decoding.cache.length
        fed = np.array([[sequence[-1], *predicted]], np.int64)
        logits, cache = await decoding.model.step(fed, decoding.cache, keep_logits=fed.shape[1])
        best, log_probabilities = await decoding.model.best_of_rows(logits)
        kept = 0
        while kept < len(predicted) and predicted[kept] == best[kept]:
            kept += 1
        decoding.cache = await decoding.model.rewound(cache, base + kept + 1)
        tokens, values = best[: kept + 1], log_probabilities[: kept + 1]


async def _chosen(decoding: Decoding) -> tuple[list[int], list[float]]:
    """Select the next token from the current logits; return it and its log-probability."""
    ((ids, scores),) = await decoding.read([await decoding.choose()])
    return ids, scores.tolist()
