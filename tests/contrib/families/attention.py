"""Attention and QAttention. What the CPU provider lacks (rotary, masks of rank 4, shared buffers) has a reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, expected
from tests.contrib.families.multi_head_attention import mask_of
from tests.oracle import ort_run

__all__ = ["DRAWS"]


def _numbers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _mask(rng: np.random.Generator, batch: int, queries: int, total: int) -> Array | None:
    if rng.random() < 0.15:
        ends = rng.integers(1, total + 1, batch)
        return np.concatenate((ends, rng.integers(0, ends))).astype(np.int32)
    return mask_of(rng, batch, queries, total)


def _attributes(rng: np.random.Generator, heads: int) -> dict[str, Any]:
    made: dict[str, Any] = {"num_heads": heads}
    if rng.random() < 0.3:
        made["mask_filter_value"] = float(rng.choice([-2.0, -1e4]))
    if rng.random() < 0.4:
        made["unidirectional"] = 1
    return made


def draw(rng: np.random.Generator) -> Case:
    """The forms the CPU provider has."""
    batch, heads, size = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.choice([4, 8, 6]))
    queries, width = int(rng.choice([1, 3, 20])), int(rng.choice([4, 5, 16]))
    v_size = size
    attributes = _attributes(rng, heads)
    past = _numbers(rng, 2, batch, heads, int(rng.choice([0, 1, 6])), size) if rng.random() < 0.5 else None
    if past is None and rng.random() < 0.3:
        v_size = size * 2
        attributes["qkv_hidden_sizes"] = [heads * size, heads * size, heads * v_size]
    if rng.random() < 0.3:
        attributes["scale"] = 0.3
    total = queries + (past.shape[3] if past is not None else 0)
    mask = _mask(rng, batch, queries, total)
    whole = heads * (2 * size + v_size)
    added = None
    if past is None and rng.random() < 0.3:
        added = _numbers(rng, int(rng.choice([1, batch])), int(rng.choice([1, heads])), queries, total)
    inputs = [
        _numbers(rng, batch, queries, width),
        _numbers(rng, width, whole),
        _numbers(rng, whole),
        mask,
        past,
        added,
    ]
    outputs = 2 if past is not None or (v_size == size and rng.random() < 0.5) else 1
    tolerance = (2e-3, 2e-3) if mask is not None else None
    if rng.random() < 0.8:
        return Case("Attention", inputs, outputs, attributes, tolerance=tolerance)
    zeros = np.zeros(whole, np.float32)

    def without_bias(*given: Any) -> tuple[Array, ...]:
        return tuple(ort_run("Attention", [*given[:2], zeros, *given[3:]], 21, outputs, "com.microsoft", **attributes))

    inputs[2] = None
    return Case("Attention", inputs, outputs, attributes, reference=without_bias, tolerance=tolerance)


def _turned(x: Array, first: int, turning: int) -> Array:
    """x [B, H, S, D] turned pair by pair, as the definition says."""
    y = x.astype(np.float64).copy()
    for s in range(x.shape[2]):
        for j in range(turning // 2):
            angle = (first + s) / 10000 ** (2 * j / turning)
            one, two = x[:, :, s, j].astype(np.float64), x[:, :, s, j + turning // 2].astype(np.float64)
            y[:, :, s, j] = one * np.cos(angle) - two * np.sin(angle)
            y[:, :, s, j + turning // 2] = two * np.cos(angle) + one * np.sin(angle)
    return y.astype(np.float32)


def draw_more(rng: np.random.Generator) -> Case:
    """Rotary, a mask of rank 4, a buffer that past and present share: by MultiHeadAttention of the CPU provider."""
    batch, heads, size = int(rng.integers(1, 3)), int(rng.integers(1, 4)), 8
    queries, width, keys = int(rng.choice([1, 3, 9])), 5, int(rng.choice([0, 1, 6]))
    total, hidden = keys + queries, heads * size
    shared, rotary, square = (bool(b) for b in rng.random(3) < 0.5)
    attributes: dict[str, Any] = {"num_heads": heads}
    turning = int(rng.choice([4, 8]))
    if rotary:
        attributes |= {"do_rotary": 1, "rotary_embedding_dim": turning}
    rows = total + 2 if shared else keys
    past = _numbers(rng, 2, batch, heads, rows, size)
    if shared:
        attributes["past_present_share_buffer"] = 1
    mask = (rng.random((batch, 1, total + 1, total + 1)) < 0.7).astype(np.int32) if square else None
    length = np.array([keys], np.int32) if shared else None
    x, w, b = _numbers(rng, batch, queries, width), _numbers(rng, width, 3 * hidden), _numbers(rng, 3 * hidden)

    def reference(*_: Any) -> tuple[Array, ...]:
        parts = [p.reshape(batch, queries, heads, size).swapaxes(1, 2) for p in np.split(x @ w + b, 3, axis=2)]
        if rotary:
            parts[:2] = [_turned(p, keys, turning) for p in parts[:2]]
        flat = [p.swapaxes(1, 2).reshape(batch, queries, hidden) for p in parts]
        kept = None if mask is None else np.ascontiguousarray(mask[:, 0, keys:total, :total])
        inputs = [*flat, None, kept, None, past[0][:, :, :keys], past[1][:, :, :keys]]
        inputs = [None if v is None else np.ascontiguousarray(v) for v in inputs]
        y, k, v = ort_run("MultiHeadAttention", inputs, 21, 3, "com.microsoft", num_heads=heads)
        present = past.copy() if shared else np.stack((k, v))
        if shared:
            present[0, :, :, :total], present[1, :, :, :total] = k, v
        return y, present

    inputs = [x, w, b, mask, past, None, length]
    return Case("Attention", inputs, 2, attributes, reference=reference, tolerance=(2e-3, 2e-3))


def draw_quantised(rng: np.random.Generator) -> Case:
    """QAttention: one scale or one a column, zero points or none.

    onnxruntime's CPU has neither int8 inputs (uint8 ones, less 128) nor rotary (Attention of what was turned).
    """
    batch, heads, size = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.choice([4, 8]))
    queries, width = int(rng.choice([1, 3, 20])), int(rng.choice([4, 5, 16]))
    whole = 3 * heads * size
    signed = rng.random() < 0.5
    kind = np.int8 if signed else np.uint8
    low, high = (-128, 128) if signed else (0, 256)
    w = rng.integers(low, high, (width, whole)).astype(kind)
    by_column = rng.random() < 0.5
    w_scale = rng.uniform(0.005, 0.01, (whole,) if by_column else ()).astype(np.float32)
    past = _numbers(rng, 2, batch, heads, int(rng.choice([0, 1, 6])), size) if rng.random() < 0.4 else None
    zeros: list[Array | None] = [None, None]
    if rng.random() < 0.7:
        zeros[0] = np.array(rng.integers(100, 140), np.uint8)
        zeros[1] = np.asarray(rng.integers(low // 4, high // 4, w_scale.shape), kind)
    total = queries + (past.shape[3] if past is not None else 0)
    mask = _mask(rng, batch, queries, total)
    x = rng.integers(0, 256, (batch, queries, width)).astype(np.uint8)
    x_scale = np.array(0.01, np.float32)
    inputs = [x, w, _numbers(rng, whole), x_scale, w_scale, mask, *zeros, past]
    outputs = 2 if past is not None or rng.random() < 0.5 else 1
    tolerance = (2e-3, 2e-3) if mask is not None else (1e-3, 1e-4)
    attributes = _attributes(rng, heads)
    if rng.random() < 0.3:
        attributes["scale"] = 0.3
    if rng.random() < 0.3:
        attributes["past_present_share_buffer"] = 0
    rotary = rng.random() < 0.3
    if rotary:
        attributes["do_rotary"] = 1
    elif rng.random() < 0.3:
        attributes["do_rotary"] = 0
    case = Case("QAttention", inputs, outputs, attributes, tolerance=tolerance)
    if rotary:
        case = replace(case, reference=_dequantised(case, attributes))
    return _signed(case) if rng.random() < 0.3 else case


def _signed(case: Case) -> Case:
    """The same numbers as int8."""
    x, zero = case.inputs[0], case.inputs[6]
    assert x is not None
    plain = replace(case, inputs=[*case.inputs])
    plain.inputs[6] = np.array(128, np.uint8) if zero is None else zero
    inputs = [(x.astype(int) - 128).astype(np.int8), *case.inputs[1:]]
    inputs[6] = None if zero is None else np.asarray(int(zero) - 128, np.int8)

    def reference(_: Any, w: Any, *rest: Any) -> tuple[Array, ...]:
        return tuple(expected(replace(plain, inputs=[plain.inputs[0], w, *plain.inputs[2:]])))

    return replace(case, inputs=inputs, reference=reference)


def _dequantised(case: Case, attributes: dict[str, Any]) -> Callable[..., tuple[Array, ...]]:
    """QAttention with rotary by Attention of the CPU provider, whose projection is then the identity."""

    def reference(*given: Any) -> tuple[Array, ...]:
        every: list[Any] = [*given, *[None] * (9 - len(given))]
        x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = every
        left = (x.astype(np.float32) - (0 if x_zero is None else x_zero.astype(np.float32))) * x_scale
        right = (w.astype(np.float32) - (0 if w_zero is None else w_zero.astype(np.float32))) * w_scale
        heads, rows = attributes["num_heads"], 0 if past is None else past.shape[3]
        flat = left @ right + bias
        batch, queries, whole = flat.shape
        size = whole // 3 // heads
        parts = [p.reshape(batch, queries, heads, size).swapaxes(1, 2) for p in np.split(flat, 3, axis=2)]
        turned = [_turned(p, rows, size) for p in parts[:2]]
        joined = np.concatenate([p.swapaxes(1, 2).reshape(batch, queries, -1) for p in (*turned, parts[2])], axis=2)
        kept = {k: v for k, v in attributes.items() if k not in ("do_rotary", "past_present_share_buffer")}
        inputs = [joined.astype(np.float32), np.eye(whole, dtype=np.float32), np.zeros(whole, np.float32), mask, past]
        return tuple(ort_run("Attention", inputs, 21, case.outputs, "com.microsoft", **kept))

    return reference


DRAWS = {
    "Attention": lambda rng: draw_more(rng) if rng.random() < 0.3 else draw(rng),
    "QAttention": draw_quantised,
}
