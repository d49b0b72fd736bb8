"""Beam search: the most probable continuations of a prompt, several followed at once.

score = sum of log p / length^length_penalty of what was generated, for sequences that end; at the end also of the rest.
At each step the 2k best continuations of k beams are taken in order: those that end become results if they are among
the first k, the others are the next beams. Source: transformers' generation/beam_search.py (the order, early stopping).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.options import GenerationOptions
from pyruntime.ir import Array

__all__ = ["beam_search"]


async def beam_search(
    model: DecoderModel,
    prompt: Sequence[int],
    beams: int,
    options: GenerationOptions,
    length_penalty: float = 1.0,
    early_stopping: bool = True,
) -> list[tuple[list[int], float]]:
    """The best sequences, prompt and end token with them, and their scores: `num_sequences` of them, best first.

    Args:
        options: lengths, end tokens and num_sequences count; the choice itself has no settings.
        early_stopping: end when there are as many results as beams; else when none can become better.

    Raises:
        InvalidArgument: no prompt, no limit of the length, fewer beams than sequences.
    """
    o = options
    limits = [n for n in (o.max_length, None if o.max_new_tokens is None else len(prompt) + o.max_new_tokens) if n]
    if not prompt or not limits or beams < o.num_sequences:
        raise InvalidArgument(
            "beam search: expected a prompt, max_length or max_new_tokens, and beams >= num_sequences"
        )
    logits, cache = await model.step(np.array([list(prompt)] * beams, np.int64), model.cache(beams))
    running = [list(prompt)] * beams
    totals = np.array([0.0] + [-1e9] * (beams - 1))
    done: list[tuple[list[int], float]] = []

    def score(sequence: list[int], total: float) -> float:
        return float(total / (len(sequence) - len(prompt)) ** length_penalty)

    while True:
        x = (await logits.numpy_async())[:, -1].astype(np.float64)
        log_p = x - x.max(axis=1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
        if len(running[0]) - len(prompt) < o.min_new_tokens:
            log_p[:, list(o.end_tokens)] = -np.inf
        every = (totals[:, None] + log_p).reshape(-1)
        best = np.argsort(-every, kind="stable")[: 2 * beams]
        chosen: list[tuple[int, int, float]] = []
        for rank, at in enumerate(best.tolist()):
            row, token = divmod(at, log_p.shape[1])
            if token not in o.end_tokens:
                chosen.append((row, token, float(every[at])))
            elif rank < beams:
                ended = [*running[row], token]
                done.append((ended, score(ended, float(every[at]))))
            if len(chosen) == beams:
                break
        done = sorted(done, key=lambda r: -r[1])[:beams]
        rows = [row for row, _, _ in chosen]
        running = [[*running[row], token] for row, token, _ in chosen]
        totals = np.array([total for _, _, total in chosen])
        better = score(running[0], float(totals[0])) > (done[-1][1] if done else -np.inf)
        if len(running[0]) >= min(limits) or (len(done) == beams and (early_stopping or not better)):
            break
        cache = await model.reordered(cache, rows)
        ids: Array = np.array([[token] for _, token, _ in chosen], np.int64)
        logits, cache = await model.step(ids, cache)
    if len(done) < beams:
        done += [(s, score(s, float(t))) for s, t in zip(running, totals, strict=True)]
    return sorted(done, key=lambda r: -r[1])[: o.num_sequences]
