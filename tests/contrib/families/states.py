"""LinearAttention, GatedDeltaNet, CausalConvWithState and VarlenCausalConvWithState.

The CPU provider has no windows of states: those are states of prefixes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case
from tests.oracle import ort_run

__all__ = ["DRAWS"]


def _numbers(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape) / 2).astype(np.float32)


def _windowed(
    op_type: str, inputs: list[Any], attributes: dict[str, Any], cut: dict[int, int], window: int, times: int
) -> tuple[Array, ...]:
    """What the operator gives with a window, by runs without one over prefixes; `cut`: input to its axis of time."""
    given = [*inputs]
    given[3] = None if given[3] is None else given[3][-1]
    whole = ort_run(op_type, given, 21, 2, "com.microsoft", **attributes)
    states = np.zeros((window, *whole[1].shape), np.float32)
    for slot in range(window):
        end = times - window + slot + 1
        if end <= 0:
            continue
        part = [
            np.ascontiguousarray(np.take(x, range(end), cut[i])) if x is not None and i in cut else x
            for i, x in enumerate(given)
        ]
        states[slot] = ort_run(op_type, part, 21, 2, "com.microsoft", **attributes)[1]
    return whole[0], states


def draw_linear(rng: np.random.Generator) -> Case:
    """Every rule; more heads of queries than of states, as many, or fewer; decay of both shapes."""
    b, t, size_k, size_v = (int(n) for n in rng.integers(1, 6, 4))
    few, share = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    inverse = rng.random() < 0.4
    heads, queries = (few * share, few) if inverse else (few, few * share)
    keys = int(rng.choice([few, heads])) if inverse else heads
    rule = str(rng.choice(["linear", "gated", "delta", "gated_delta"]))
    decay = -np.abs(_numbers(rng, b, t, heads * int(rng.choice([1, size_k]))))
    beta = np.abs(_numbers(rng, b, t, int(rng.choice([1, heads]))))
    window = int(rng.integers(1, 9)) if rng.random() < 0.3 else 0
    state = (b, heads, size_k, size_v)
    past = _numbers(rng, *((window, *state) if window else state)) if rng.random() < 0.6 else None
    attributes: dict[str, Any] = {"kv_num_heads": heads, "q_num_heads": queries, "update_rule": rule}
    if rng.random() < 0.3:
        attributes["scale"] = 0.7
    if rng.random() < 0.3:
        attributes["chunk_size"] = int(rng.choice([1, 2, 64]))
    surplus = rng.random() < 0.3
    inputs = [
        _numbers(rng, b, t, queries * size_k),
        _numbers(rng, b, t, keys * size_k),
        _numbers(rng, b, t, heads * size_v),
        past,
        decay if "gated" in rule or surplus else None,
        beta if "delta" in rule or surplus else None,
    ]
    if not window:
        return Case("LinearAttention", inputs, 2, attributes)
    cut = dict.fromkeys((0, 1, 2, 4, 5), 1)
    plain = dict(attributes)

    def reference(*given: Any) -> tuple[Array, ...]:
        whole = [*given, *[None] * (6 - len(given))]
        return _windowed("LinearAttention", whole, plain, cut, window, t)

    return Case("LinearAttention", inputs, 2, {**attributes, "state_window": window}, reference=reference)


def draw_conv(rng: np.random.Generator) -> Case:
    """Both layouts, dilation, states."""
    b, channels, length, kernel = (int(n) for n in rng.integers(1, 6, 4))
    last = bool(rng.random() < 0.5)
    more = (2,) if last and rng.random() < 0.4 else ()
    attributes: dict[str, Any] = {"activation": str(rng.choice(["none", "silu", "swish"]))}
    if last:
        attributes["channels_last"] = 1
    dilation = int(rng.integers(1, 4))
    if dilation > 1 or rng.random() < 0.5:
        attributes["dilation"] = dilation
    before = (kernel - 1) * dilation
    width = channels * (2 if more else 1)
    shape = (b, length, channels, *more) if last else (b, channels, length)
    state = (b, before, channels, *more) if last else (b, channels, before)
    window = int(rng.integers(1, 9)) if rng.random() < 0.3 and before else 0
    past = _numbers(rng, *((window, *state) if window else state)) if rng.random() < 0.6 else None
    bias = _numbers(rng, width) if rng.random() < 0.5 else None
    inputs = [_numbers(rng, *shape), _numbers(rng, width, 1, kernel), bias, past]
    if not window:
        return Case("CausalConvWithState", inputs, 2, attributes)
    plain = dict(attributes)

    def reference(*given: Any) -> tuple[Array, ...]:
        whole = [*given, *[None] * (4 - len(given))]
        return _windowed("CausalConvWithState", whole, plain, {0: 1 if last else 2}, window, length)

    return Case("CausalConvWithState", inputs, 2, {**attributes, "state_window": window}, reference=reference)


def draw_delta_net(rng: np.random.Generator) -> Case:
    """Tokens of requests that are as long as one another, or as cu_seqlens says; inputs packed or not; every gate."""
    requests, tokens, groups, share, size_v, size_k = (int(n) for n in rng.integers(1, 4, 6))
    heads, total = groups * share, requests * tokens
    layout = str(rng.choice(["even", "ragged", "packed", "apart"]))
    lead = (requests, tokens) if layout == "apart" else (total,)
    ends = np.array([0, *np.sort(rng.integers(0, total + 1, requests - 1)), total], np.int32)
    rule = str(rng.choice(["linear", "gated", "delta", "gated_delta"]))
    attributes: dict[str, Any] = {"update_rule": rule, "qk_l2_norm": int(rng.integers(2))}
    by_key = (size_k,) if rng.random() < 0.4 else ()
    rate = bias = None
    if "gated" in rule and rng.random() < 0.6:
        attributes["gate_activation"] = str(rng.choice(["softplus", "qwen", "sigmoid", "kda"]))
        attributes["gate_lower_bound"] = float(rng.choice([-5, -2]))
        rate, bias = _numbers(rng, heads), _numbers(rng, heads * int(rng.choice([1, *by_key])))
    if "delta" in rule and rng.random() < 0.5:
        attributes["beta_activation"] = "sigmoid"
    if rng.random() < 0.3:
        attributes["scale"] = 0.7
    parts = [_numbers(rng, *lead, h, size) for h, size in ((groups, size_k), (groups, size_k), (heads, size_v))]
    state = _numbers(rng, requests, heads, size_v, size_k)
    inputs = [
        *([np.concatenate([x.reshape(total, -1) for x in parts], axis=1), None, None] if layout == "packed" else parts),
        ends if layout == "ragged" else None,
        -np.abs(_numbers(rng, *lead, heads, *by_key)) if "gated" in rule else None,
        np.abs(_numbers(rng, *lead, heads)) if "delta" in rule else None,
        None if layout in ("ragged", "apart") and rng.random() < 0.5 else state,
        rate,
        bias,
    ]
    return Case("GatedDeltaNet", inputs, 2, attributes)


def draw_varlen_conv(rng: np.random.Generator) -> Case:
    """Requests of any length, of none too where there are enough tokens for onnxruntime."""
    requests, more, channels, kernel, dilation = (int(n) for n in rng.integers(1, 6, 5))
    total = requests + more
    ends = np.array([0, *np.sort(rng.integers(0, total + 1, requests - 1)), total], np.int32)
    bias = _numbers(rng, channels) if rng.random() < 0.5 else None
    state = _numbers(rng, requests, channels, (kernel - 1) * dilation)
    inputs = [_numbers(rng, total, channels), _numbers(rng, channels, 1, kernel), ends, bias, state]
    attributes: dict[str, Any] = {"activation": str(rng.choice(["none", "silu", "swish"])), "dilation": dilation}
    return Case("VarlenCausalConvWithState", inputs, 2, attributes)


DRAWS = {
    "VarlenCausalConvWithState": draw_varlen_conv,
    "LinearAttention": draw_linear,
    "GatedDeltaNet": draw_delta_net,
    "CausalConvWithState": draw_conv,
}
