"""GroupQueryAttention. Where the CPU provider has no kernel, a reference written element by element is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case

__all__ = ["DRAWS", "reference"]


def _angles(rng: np.random.Generator, rows: int, half: int, kind: str) -> tuple[Array, Array]:
    angles = rng.uniform(-3, 3, (rows, half))
    return np.cos(angles).astype(kind), np.sin(angles).astype(kind)


def _numbers(rng: np.random.Generator, *shape: int, kind: str = "float32") -> Array:
    return rng.standard_normal(shape).astype(kind)


def _lengths(rng: np.random.Generator, batch: int, queries: int, past: int) -> tuple[Array, int]:
    """seqlens_k + 1 of every batch entry, and the longest of them."""
    if past == 0:
        ends = rng.integers(1, queries + 1, batch)
        ends[rng.integers(batch)] = queries
        return ends, queries
    ends = rng.integers(queries, past + queries + 1, batch)
    return ends, int(ends.max())


def _defined(ends: Array, queries: int, first_prompt: bool) -> Callable[[int, Array], Array]:
    """Select the defined rows of outputs: not those past the end of a shorter prompt, nor unused rows of caches."""

    def of(number: int, x: Array) -> Array:
        rows = [min(queries, int(e)) if first_prompt else queries for e in ends]
        if number == 0:
            return np.concatenate([x[b, : rows[b]].reshape(-1) for b in range(len(ends))])
        if number == 3:
            return np.concatenate([x[b, :, : rows[b], :e].reshape(-1) for b, e in enumerate(ends)])
        return np.concatenate([x[b, :, :e].reshape(-1) for b, e in enumerate(ends)])

    return of


def draw(rng: np.random.Generator) -> Case:
    """A first prompt, several tokens more, or one; with a growing or a static cache."""
    kind = "float16" if rng.random() < 0.2 else "float32"
    groups, share = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    heads = groups * share
    norm = rng.random() < 0.15
    size = int(rng.choice([16, 32, 48, 80])) if not norm else int(rng.choice([6, 10, 16, 20]))
    stage = rng.choice(["prompt", "more", "one", "one", "shared"])
    batch = int(rng.integers(1, 4)) if stage != "more" else 1
    queries = 1 if stage == "one" else int(rng.integers(2, 40))
    past = 0 if stage == "prompt" else int(rng.choice([1, 7, 70, 300]))
    ends, total = _lengths(rng, batch, queries, past)
    static = past > 0 and rng.random() < 0.4
    rows = past
    if stage == "shared":
        ends, total, rows = np.full(batch, past), past, past
        queries = 1 if batch > 1 else min(queries, past)
    elif past and not static:
        # A cache that grows has a batch entry that fills it.
        ends[0] = past + queries
        total = past + queries
    elif static:
        rows = total + int(rng.integers(0, 9))
    elif stage == "prompt" and rng.random() < 0.3:
        rows = queries + int(rng.integers(0, 5))
    x = _packed_or_not(rng, (batch, queries, 0 if stage == "shared" else queries), (heads, groups, size), kind)
    caches: list[Array | None] = [None, None]
    if rows or rng.random() < 0.5:
        caches = [_numbers(rng, batch, groups, rows, size, kind=kind) for _ in range(2)]
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    turn: list[Array | None] = [None, None, None]
    if rng.random() < 0.5:
        half = int(rng.choice([h for h in (8, size // 2) if h <= size // 2 and (norm or h % 8 == 0)]))
        turn[:2] = _angles(rng, past + 2 * queries + 3, half, kind)
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(rng.integers(2))}
        if rng.random() < 0.4 and stage != "shared":
            turn[2] = rng.integers(0, past + queries, (batch, queries))
            if total == queries:
                # Of a first prompt the CPU provider reads the first number alone and counts on from there.
                turn[2] = np.tile(np.arange(queries) + rng.integers(past + queries), (batch, 1))
    bias = None
    if rng.random() < 0.3:
        lead = (int(rng.choice([1, batch])), int(rng.choice([1, heads])))
        bias = _numbers(rng, *lead, queries, total, kind=kind)
    sink = _numbers(rng, heads, kind=kind) if rng.random() < 0.25 else None
    attributes |= _softmax_attributes(rng)
    if norm:
        attributes["qk_norm_epsilon"] = 0.01
        for name in ("q_norm_epsilon", "k_norm_epsilon"):
            if rng.random() < 0.4:
                attributes[name] = float(rng.choice([0.5, 0.02]))
    # With a past but without presents the CPU provider computes nothing of meaning.
    outputs = 4 if attributes.get("qk_output") else 3 if rows else int(rng.choice([1, 3]))
    weights = [_numbers(rng, size, kind=kind), _numbers(rng, size, kind=kind)] if norm else []
    scalar = np.array(total, np.int32) if rng.random() < 0.5 else np.array([total], np.int32)
    lengths = (ends - 1).astype(np.int32)
    inputs = [*x, *caches, lengths, scalar, *turn, bias, sink, *([None, None, *weights] if norm else [])]
    made: Callable[..., tuple[Array, ...]] | None = None
    if norm:
        made = _with(attributes)
    return Case(
        "GroupQueryAttention",
        inputs,
        outputs,
        attributes,
        reference=made,
        defined=_defined(ends, queries, total == queries),
        needed=(6,),
        # Half: the CPU provider rounds scores and turned keys to half.
        tolerance=(1e-2, 1e-2) if kind == "float16" else (2e-4, 5e-5),
    )


def _packed_or_not(
    rng: np.random.Generator, counts: tuple[int, int, int], sizes: tuple[int, int, int], kind: str
) -> list[Array | None]:
    (batch, queries, new), (heads, groups, size) = counts, sizes
    if new and rng.random() < 0.4:
        return [_numbers(rng, batch, queries, (heads + 2 * groups) * size, kind=kind), None, None]
    widths = ((queries, heads), (new, groups), (new, groups))
    return [_numbers(rng, batch, rows, n * size, kind=kind) for rows, n in widths]


def _softmax_attributes(rng: np.random.Generator) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if rng.random() < 0.3:
        made["scale"] = float(rng.uniform(0.1, 0.5))
    if rng.random() < 0.25:
        made["softcap"] = float(rng.uniform(0.5, 3))
    if rng.random() < 0.2:
        made["smooth_softmax"] = 1
    if rng.random() < 0.2:
        made["qk_output"] = int(rng.integers(1, 3))
    if rng.random() < 0.15:
        made["causal"] = 0
    elif rng.random() < 0.35:
        made["local_window_size"] = int(rng.choice([1, 2, 5, 50]))
    return made


def draw_quantised(rng: np.random.Generator) -> Case:
    """A cache of 8 or 4 bits, growing or static, and one token more."""
    groups, share = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    size, past, batch = int(rng.choice([16, 32])), int(rng.choice([1, 9, 60])), int(rng.integers(1, 3))
    queries = int(rng.integers(1, 5)) if batch == 1 else 1
    bits, heads = int(rng.choice([8, 4])), groups * share
    kinds = [str(rng.choice(["PER_TENSOR", "PER_CHANNEL"]))] * 2
    scales = [
        rng.uniform(0.02, 0.05, (1,) if k == "PER_TENSOR" else (groups * size,)).astype(np.float32) * (20 / bits**1.5)
        for k in kinds
    ]
    static = rng.random() < 0.5
    total = past + queries
    rows = total + 3 if static else past
    stored = (batch, groups, rows, size // (8 // bits))
    caches = [
        rng.integers(-128, 128, stored).astype(np.int8) if bits == 8 else rng.integers(0, 256, stored).astype(np.uint8)
        for _ in range(2)
    ]
    x = _packed_or_not(rng, (batch, queries, queries), (heads, groups, size), "float32")
    ends = np.full(batch, total)
    turn: list[Array | None] = [None, None]
    attributes: dict[str, Any] = {
        "num_heads": heads,
        "kv_num_heads": groups,
        "k_quant_type": kinds[0],
        "v_quant_type": kinds[1],
        "kv_cache_bit_width": bits,
    }
    if rng.random() < 0.5:
        turn[:2] = _angles(rng, total, size // 2, "float32")
        attributes["do_rotary"] = 1
    lengths = (ends - 1).astype(np.int32)
    inputs = [*x, *caches, lengths, np.array([total], np.int32), *turn, None, None, None, *scales]
    return Case(
        "GroupQueryAttention",
        inputs,
        3,
        attributes,
        defined=_defined(ends, queries, False),
        needed=(6,),
        tolerance=(1e-3, 1e-3),
    )


def draw_sliding(rng: np.random.Generator) -> Case:
    """A cache of the last rows alone."""
    groups, share, size = int(rng.integers(1, 3)), int(rng.integers(1, 4)), 16
    window = int(rng.integers(1, 9))
    rows = window + int(rng.integers(0, 5))
    batch = int(rng.integers(1, 3))
    queries = 1 if batch > 1 else int(rng.integers(1, 14))
    ends = rng.integers(queries + 1, 40, batch)
    heads = groups * share
    x = _packed_or_not(rng, (batch, queries, queries), (heads, groups, size), "float32")
    caches = [_numbers(rng, batch, groups, rows, size) for _ in range(2)]
    attributes = {
        "num_heads": heads,
        "kv_num_heads": groups,
        "local_window_size": window,
        "sliding_window_cache": 1,
    }
    turn: list[Array | None] = []
    if rng.random() < 0.5:
        turn[:] = _angles(rng, 45, size // 2, "float32")
        attributes["do_rotary"] = 1
    spare = rows - window + 1
    kept = np.array([e if e <= rows else e - spare * -(-(e - rows) // spare) for e in ends])

    def defined(number: int, y: Array) -> Array:
        if number == 0:
            return y
        return np.concatenate([y[b, :, :n].reshape(-1) for b, n in enumerate(kept)])

    lengths = (ends - 1).astype(np.int32)
    inputs = [*x, *caches, lengths, np.array([int(ends.max())], np.int32), *turn]
    return Case(
        "GroupQueryAttention", inputs, 3, attributes, defined=defined, host=True, needed=(6,), tolerance=(2e-4, 5e-5)
    )


def draw_padded(rng: np.random.Generator) -> Case:
    """Chunks that are padded on the right (query_seqlens), with a static cache or one of the last rows."""
    groups, share, size = int(rng.integers(1, 3)), int(rng.integers(1, 4)), 16
    heads, batch, queries = groups * share, int(rng.integers(1, 4)), int(rng.integers(1, 9))
    valid = rng.integers(1 if queries > 1 else 0, queries + 1, batch)
    before = rng.integers(1, 30, batch)
    ends = before + valid
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    rows = int(before.max()) + queries + int(rng.integers(0, 4))
    sliding = rng.random() < 0.3
    if sliding:
        window = int(rng.integers(1, 9))
        rows = window + int(rng.integers(0, 5))
        attributes |= {"local_window_size": window, "sliding_window_cache": 1}
    elif rng.random() < 0.3:
        attributes["local_window_size"] = int(rng.integers(1, 9))
    x = _packed_or_not(rng, (batch, queries, queries), (heads, groups, size), "float32")
    caches = [_numbers(rng, batch, groups, rows, size) for _ in range(2)]
    turn: list[Array | None] = [None, None, None]
    if rng.random() < 0.5:
        turn[:2] = _angles(rng, 60, size // 2, "float32")
        attributes["do_rotary"] = 1
    total = int(ends.max()) if sliding else int(rng.integers(max(ends.max(), queries), rows + 1))
    spare = rows - attributes.get("local_window_size", rows) + 1
    kept = [e if not sliding or e <= rows else e - spare * -(-(e - rows) // spare) for e in map(int, ends)]

    def defined(number: int, y: Array) -> Array:
        if number == 0:
            return np.concatenate([y[b, :n].reshape(-1) for b, n in enumerate(valid)])
        return np.concatenate([y[b, :, :n].reshape(-1) for b, n in enumerate(kept)])

    lengths = (ends - 1).astype(np.int32)
    inputs = [*x, *caches, lengths, np.array([total], np.int32), *turn, *[None] * 6, valid.astype(np.int32)]
    return Case(
        "GroupQueryAttention", inputs, 3, attributes, defined=defined, host=True, needed=(6,), tolerance=(2e-4, 5e-5)
    )


def _with(attributes: dict[str, Any]) -> Callable[..., tuple[Array, ...]]:
    return lambda *inputs: reference(attributes, *inputs)


def reference(attributes: dict[str, Any], *inputs: Any) -> tuple[Array, ...]:
    """The formula in float64, row by row: prompts and caches of every kind but quantised and sliding ones."""
    given = [*inputs, *[None] * (16 - len(inputs))]
    query, key, value, past_key, past_value, lengths, total = given[:7]
    heads, groups = attributes["num_heads"], attributes["kv_num_heads"]
    size = query.shape[2] // (heads if key is not None else heads + 2 * groups)
    if key is None:
        query, key, value = np.split(query, [heads * size, (heads + groups) * size], axis=2)
    batch, queries, new = query.shape[0], query.shape[1], key.shape[1]
    total = int(np.asarray(total).reshape(()) if np.asarray(total).ndim == 0 else total[0])
    past = past_key.shape[2] if past_key is not None else 0
    present = max(past, total) if new else past
    y = np.zeros((batch, queries, heads, size))
    caches = np.zeros((2, batch, groups, present, size))
    scores_out = np.zeros((batch, heads, queries, total))
    for b in range(batch):
        end = int(lengths[b]) + 1
        first = 0 if total == queries else end - queries
        for i, old in enumerate((past_key, past_value)):
            if old is not None:
                caches[i, b, :, :past] = old[b]
        for s in range(new):
            for g in range(groups):
                row = key[b, s].reshape(groups, size)[g].astype(np.float64)
                if first + s < present:
                    caches[0, b, g, first + s] = _ready(attributes, given, row, 15, b, s, first)
                    caches[1, b, g, first + s] = value[b, s].reshape(groups, size)[g]
        for s in range(queries):
            for h in range(heads):
                row = _ready(attributes, given, query[b, s].reshape(heads, size)[h].astype(np.float64), 14, b, s, first)
                y[b, s, h], scores_out[b, h, s] = _one(
                    attributes, given, row, caches[:, b], (b, h, s), first, end, total
                )
    kind = query.dtype
    made = (y.reshape(batch, queries, -1), *caches, scores_out)
    return tuple(x.astype(kind) for x in made)


def _ready(attributes: dict[str, Any], given: list[Any], row: Array, weight: int, b: int, s: int, first: int) -> Array:
    """A row of a head, normed and turned."""
    if given[weight] is not None:
        own = "q_norm_epsilon" if weight == 14 else "k_norm_epsilon"
        epsilon = attributes.get(own, attributes["qk_norm_epsilon"])
        row = row / np.sqrt((row**2).mean() + epsilon) * given[weight].astype(np.float64)
    if not attributes.get("do_rotary"):
        return row
    place = int(given[9][b, s]) if given[9] is not None else first + s
    turned = row.copy()
    half = given[7].shape[1]
    for j in range(half):
        one, two = (2 * j, 2 * j + 1) if attributes.get("rotary_interleaved") else (j, j + half)
        c, n = float(given[7][place, j]), float(given[8][place, j])
        turned[one], turned[two] = c * row[one] - n * row[two], n * row[one] + c * row[two]
    return turned


def _one(
    attributes: dict[str, Any],
    given: list[Any],
    row: Array,
    caches: Array,
    at: tuple[int, int, int],
    first: int,
    end: int,
    total: int,
) -> tuple[Array, Array]:
    """One query of one head: its result and its row of the scores' output."""
    b, h, s = at
    g = h // (attributes["num_heads"] // attributes["kv_num_heads"])
    window, cap = attributes.get("local_window_size", -1), attributes.get("softcap", 0)
    keys = [
        j
        for j in range(min(end, caches.shape[2]))
        if not attributes.get("causal", 1) or (j <= first + s and (window <= 0 or j > first + s - window))
    ]
    x = caches[0, g, keys] @ row * (attributes.get("scale") or 1 / np.sqrt(len(row)))
    x = cap * np.tanh(x / cap) if cap else x
    if given[10] is not None:
        bias = given[10]
        x = x + bias[min(b, len(bias) - 1), min(h, bias.shape[1] - 1), s, keys]
    extra = [] if given[11] is None else [float(given[11][h])]
    if attributes.get("smooth_softmax") == 1 and not extra:
        extra = [0.0]
    weights = np.exp(x) / (np.exp(x).sum() + np.exp(np.array(extra)).sum())
    shown = np.zeros(total)
    shown[keys] = weights if attributes.get("qk_output") == 2 else x
    return weights @ caches[1, g, keys], shown


def _any(rng: np.random.Generator) -> Case:
    choice = rng.random()
    kinds = ((0.15, draw_quantised), (0.25, draw_sliding), (0.35, draw_padded), (1.0, draw))
    return next(draw for below, draw in kinds if choice < below)(rng)


DRAWS = {"GroupQueryAttention": _any}
