"""Beam search: the most probable continuations of a prompt, several followed at once.

score = sum of log p / length^length_penalty of what was generated, for sequences that end; at the end also of the rest.
At each step the 2k best continuations of k beams are taken in order: those that end become results if they are among
the first k, the others are the next beams. Penalties, n-grams, processors and constraints change the logits before
their softmax. Source: transformers' generation/beam_search.py (the order, early stopping).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.generate.choosing import no_repeated_ngrams
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.options import Constraint, GenerationOptions
from pyruntime.ir import Array

__all__ = ["beam_search"]

_NEVER = -1e9
"""The score of a beam that is there to fill the batch."""


async def beam_search(
    model: DecoderModel,
    prompt: Sequence[int],
    beams: int,
    options: GenerationOptions,
    length_penalty: float = 1.0,
    early_stopping: bool = True,
    whole_length: bool = False,
) -> list[tuple[list[int], float]]:
    """The best sequences, prompt and end token with them, and their scores: `num_sequences` of them, best first.

    Args:
        options: nothing is drawn, so do_sample and what goes with it must be off.
        whole_length: a score's length is that of the sequence with its prompt and without its end token, as
            onnxruntime-genai has it; else that of what was generated, as transformers does.
        early_stopping: end when there are as many results as beams; else when none can become better.

    Raises:
        InvalidArgument: no prompt, no limit of the length, fewer beams than sequences, do_sample, operators as
            processors.
    """
    o = options
    if not o.greedy:
        raise InvalidArgument(
            "beam search draws nothing: expected do_sample=False; or sample num_sequences, without beams"
        )
    if o.operators:
        raise InvalidArgument("beam search runs processors on the host: expected functions, or no beams")
    positions = None if model.local else model.limit(o.bounds)
    limits = [n for n in (o.max_length, None if o.max_new_tokens is None else len(prompt) + o.max_new_tokens) if n]
    if not prompt or not limits or beams < o.num_sequences:
        raise InvalidArgument(
            "beam search: expected a prompt, max_length or max_new_tokens, and beams >= num_sequences"
        )
    if positions is not None:
        limits.append(positions)
    if positions is not None and len(prompt) > positions:
        raise InvalidArgument(
            f"a prompt of {len(prompt)} tokens: the model knows {positions} positions; with "
            f"GenerationOptions(window={positions}) it sees the first and the last ones"
        )
    window, dropped = o.bounds, o.bounds.dropped(len(prompt)) if o.bounds else 0
    seen = window.context(prompt) if window else list(prompt)
    logits, cache = await model.step(np.array([seen] * beams, np.int64), model.cache(beams))
    running = [list(prompt)] * beams
    totals = np.array([0.0] + [_NEVER] * (beams - 1))
    done: list[tuple[list[int], float]] = []
    constraints = [o.constraint.copy() for _ in range(beams)] if o.constraint else []

    def score(sequence: list[int], total: float) -> float:
        ended = sequence[-1] in o.end_tokens
        length = len(sequence) - ended if whole_length else len(sequence) - len(prompt)
        return float(total / length**length_penalty)

    while True:
        x = (await logits.numpy_async())[:, -1].astype(np.float64)
        x = _changed(x, running, len(prompt), min(limits) - len(running[0]), o, constraints)
        log_p = x - x.max(axis=1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
        every = (totals[:, None] + log_p).reshape(-1)
        best = np.argsort(-every, kind="stable")[: 2 * beams]
        chosen: list[tuple[int, int, float]] = []
        for rank, at in enumerate(best[np.isfinite(every[best])].tolist()):
            row, token = divmod(at, log_p.shape[1])
            if token not in o.end_tokens:
                chosen.append((row, token, float(every[at])))
            elif rank < beams:
                ended = [*running[row], token]
                done.append((ended, score(ended, float(every[at]))))
            if len(chosen) == beams:
                break
        done = sorted(done, key=lambda r: -r[1])[:beams]
        if not chosen:  # a constraint lets nothing but the end come
            return done[: o.num_sequences]
        chosen += [(*chosen[0][:2], _NEVER)] * (beams - len(chosen))
        rows = [row for row, _, _ in chosen]
        running = [[*running[row], token] for row, token, _ in chosen]
        totals = np.array([total for _, _, total in chosen])
        constraints = [constraints[row].copy() for row in rows] if constraints else []
        for constraint, (_, token, _) in zip(constraints, chosen, strict=False):
            constraint.accept(token)
        better = score(running[0], float(totals[0])) > (done[-1][1] if done else -np.inf)
        if len(running[0]) >= min(limits) or (len(done) == beams and (early_stopping or not better)):
            break
        ids: Array = np.array([[token] for _, token, _ in chosen], np.int64)
        if window and window.dropped(len(running[0])) != dropped:
            dropped = window.dropped(len(running[0]))
            cache, ids = model.cache(beams), np.array([window.context(ids) for ids in running], np.int64)
        else:
            cache = await model.reordered(cache, rows)
        logits, cache = await model.step(ids, cache)
    if len(done) < beams:
        done += [(s, score(s, float(t))) for s, t in zip(running, totals, strict=True)]
    return sorted(done, key=lambda r: -r[1])[: o.num_sequences]


def _changed(
    x: Array,
    running: Sequence[Sequence[int]],
    prompt: int,
    room: int,
    o: GenerationOptions,
    constraints: Sequence[Constraint],
) -> Array:
    """Logits [beams, vocab] after penalties, n-grams, the caller's processors and what may come."""
    ids = np.array(running, np.int64)
    if o.penalized:
        rows = np.arange(len(ids))[:, None]
        seen = x[rows, ids]
        penalized = x.copy()
        penalized[rows, ids] = np.where(seen < 0, seen * o.repetition_penalty, seen / o.repetition_penalty)
        counts = np.zeros(x.shape)
        np.add.at(counts, (rows, ids[:, prompt:]), 1)
        x = penalized - o.frequency_penalty * counts - o.presence_penalty * (counts > 0)
    if o.no_repeat_ngram_size:
        x = no_repeated_ngrams(ids, x, o.no_repeat_ngram_size)
    for processor in o.functions:
        x = np.asarray(processor(ids, x.astype(np.float32)), np.float64)
    if ids.shape[1] - prompt < o.min_new_tokens:
        x[:, list(o.end_tokens)] = -np.inf
    for row, constraint in zip(x, constraints, strict=False):
        allowed = constraint.mask(room)
        row[: len(allowed)][~allowed[: len(row)]] = -np.inf
        row[len(allowed) :] = -np.inf
    return x
