"""Mixtures of experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.families.quantized import one, unpacked


def activated(kind: str, attributes: dict[str, Any], h: Array, third: Array | None) -> Array:
    """The activations, in float64, as onnxruntime's CPU has them."""

    def sigmoid(x: Array) -> Array:
        made: Array = 1 / (1 + np.exp(-x))
        return made

    made: Array
    if kind == "swiglu":
        gate, linear = (h[0::2], h[1::2]) if attributes["swiglu_fusion"] == 1 else np.split(h, [len(h) // 2])
        if third is not None:
            gate, linear = h, third
        limit = attributes.get("swiglu_limit", np.inf)
        after = attributes.get("swiglu_limit_after_activation", 0)
        gate = gate if after else np.minimum(gate, limit)
        gate = gate * sigmoid(attributes["activation_alpha"] * gate)
        gate = np.minimum(gate, limit) if after else gate
        made = gate * (np.clip(linear, -limit, limit) + attributes["activation_beta"])
        return made
    made = {
        "relu": np.maximum(h, 0),
        "silu": h * sigmoid(h),
        "gelu": h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))),
        "identity": h,
    }[kind]
    return made if third is None else np.asarray(made * third)


def mixture(
    x: Array, shares: Array, logits: Array, attributes: dict[str, Any], weights: list[Any], biases: list[Any]
) -> Array:
    """The output, a token and an expert at a time."""
    rows = x.reshape(-1, x.shape[-1]).astype(float)
    y = np.zeros_like(rows)
    for token, row in enumerate(rows):
        top = np.argsort(-logits[token], kind="stable")[: attributes["k"]]
        for e in top:
            products: list[Any] = [None, None, None]
            for i in (0, 2):
                if weights[i] is not None:
                    products[i] = weights[i][e] @ row + (0 if biases[i] is None else biases[i][e].astype(float))
            hidden = activated(attributes["activation_type"], attributes, products[0], products[2])
            second = weights[1][e] @ hidden + (0 if biases[1] is None else biases[1][e].astype(float))
            share = (
                shares[token] / shares[token][top].sum() if attributes["normalize_routing_weights"] else shares[token]
            )
            y[token] += share[e] * second
    return y.reshape(x.shape)


def sizes(rng: np.random.Generator, kind: str, gated: bool) -> tuple[tuple[int, ...], int, int, int, int, int]:
    """Of x, of the tokens, experts, x's columns, the rows of fc1, and the columns of fc2."""
    tokens, experts, wide, inner = (int(rng.integers(1, n)) for n in (6, 7, 4, 4))
    wide, inner = 32 * wide, 32 * inner
    shape = (tokens, wide) if rng.random() < 0.5 else (1, tokens, wide)
    return shape, tokens, experts, wide, inner * (2 if kind == "swiglu" and not gated else 1), inner


def drawn(rng: np.random.Generator) -> tuple[str, bool, dict[str, Any]]:
    """The kind of activation, whether there is fc3, and the attributes."""
    kind = one(rng, "relu", "gelu", "silu", "identity", "swiglu", "swiglu")
    gated = bool(rng.random() < 0.25)
    attributes: dict[str, Any] = {"activation_type": kind, "normalize_routing_weights": int(rng.integers(2))}
    if kind == "swiglu":
        attributes |= {
            "swiglu_fusion": 0 if gated else one(rng, 1, 1, 2),
            "activation_alpha": 1.7,
            "activation_beta": 0.5,
        }
        if rng.random() < 0.5:
            attributes["swiglu_limit"] = 1.25
            if rng.random() < 0.3:  # onnxruntime's CPU provider has it not
                attributes["swiglu_limit_after_activation"] = 1
    return kind, gated, attributes


def softmax(x: Array) -> Array:
    powers = np.exp(x.astype(float) - x.max(-1, keepdims=True))
    made: Array = powers / powers.sum(-1, keepdims=True)
    return made


def draw_moe(rng: np.random.Generator) -> Case:
    """onnxruntime's CPU has neither fc3 nor swiglu in halves, and float32 alone."""
    kind, gated, attributes = drawn(rng)
    shape, tokens, experts, wide, rows, inner = sizes(rng, kind, gated)
    attributes["k"] = int(rng.integers(1, experts + 1))
    dtype = one(rng, np.float32, np.float32, np.float16)
    x, logits = rng.standard_normal(shape).astype(dtype), rng.standard_normal((tokens, experts)).astype(dtype)
    dims = [(rows, wide), (wide, inner), (inner, wide)]
    weights = [(rng.standard_normal((experts, *d)) / 6).astype(dtype) for d in dims]
    biases = [rng.standard_normal((experts, d[0])).astype(dtype) if rng.random() < 0.7 else None for d in dims]
    third: list[Array | None] = [weights[2], biases[2]] if gated else [None, None]
    inputs: list[Array | None] = [x, logits, weights[0], biases[0], weights[1], biases[1], *third]
    while inputs[-1] is None:
        inputs.pop()

    def reference(*_: Array) -> tuple[Array, ...]:
        held = [w.astype(float) for w in weights]
        y = mixture(x, softmax(logits), logits, attributes, [*held[:2], held[2] if gated else None], biases)
        return (y.astype(dtype),)

    own = "swiglu_limit_after_activation" in attributes
    own |= gated or attributes.get("swiglu_fusion") == 2 or dtype == np.float16
    tolerance = (1e-4, 1e-4) if dtype == np.float32 else (4e-3, 4e-3)
    return Case("MoE", inputs, 1, attributes, reference=reference if own else None, tolerance=tolerance)


def draw_qmoe(rng: np.random.Generator) -> Case:
    """onnxruntime's CPU has neither fc3 nor swiglu in halves, nor weights of several widths."""
    kind, gated, attributes = drawn(rng)
    shape, tokens, experts, wide, rows, inner = sizes(rng, kind, gated)
    bits, block = one(rng, 2, 4, 4, 8), one(rng, None, 16, 32)
    attributes |= {"k": int(rng.integers(1, experts + 1)), "expert_weight_bits": bits}
    if block:
        attributes["block_size"] = block
    if rng.random() < 0.3:
        attributes |= {"accuracy_level": int(rng.choice([0, 4])), "quant_type": "int", "weights_prepacked": -1}
    own_bits = [one(rng, 2, 4, 8) if rng.random() < 0.2 else None for _ in range(3)]
    attributes |= {f"fc{i + 1}_expert_weight_bits": b for i, b in enumerate(own_bits) if b}
    mixed = any(b is not None and b != bits for b in own_bits)
    x, logits = rng.standard_normal(shape).astype(np.float32), rng.standard_normal((tokens, experts)).astype(np.float32)
    zeroed = bool(rng.random() < 0.5)
    weights: list[Any] = []
    inputs: list[Array | None] = [x, logits]
    zeros: list[Array | None] = []
    biases: list[Array | None] = []
    for (n, k), more in zip(((rows, wide), (wide, inner), (inner, wide)), own_bits, strict=True):
        bits = more or attributes["expert_weight_bits"]
        data = rng.integers(0, 256, (experts, n, k * bits // 8)).astype(np.uint8)
        blocks = k // block if block else 1
        dims = (experts, n, blocks) if block else (experts, n)
        scales = (rng.uniform(0.5, 1.5, dims) / 2**bits / 3).astype(np.float32)
        spare = -(-blocks * bits // 8)
        held = rng.integers(0, 256, (experts, n, spare) if block else (experts, n * bits // 8)).astype(np.uint8)
        level = unpacked(held, bits)[..., :blocks] if block else unpacked(held, bits)[..., None]
        zero = level.astype(float) if zeroed else np.full((experts, n, blocks), 2.0 ** (bits - 1))
        q = unpacked(data, bits).astype(float).reshape(experts, n, blocks, -1)
        whole = ((q - zero[..., None]) * scales.astype(float).reshape(experts, n, blocks, 1)).reshape(experts, n, k)
        bias = rng.standard_normal((experts, n)).astype(np.float32) if rng.random() < 0.7 else None
        used = len(weights) < 2 or gated
        weights.append(whole if used else None)
        biases.append(bias)
        inputs += [data, scales, bias] if used else [None] * 3
        zeros.append(held if zeroed and used else None)
    router = rng.uniform(0.1, 1, (tokens, experts)).astype(np.float32) if rng.random() < 0.3 else None
    inputs += [*zeros, router]
    while inputs[-1] is None:
        inputs.pop()

    def reference(*_: Array) -> tuple[Array, ...]:
        shares = softmax(logits) if router is None else router.astype(float)
        whole = attributes if router is not None else attributes | {"normalize_routing_weights": 1}
        return (mixture(x, shares, logits, whole, weights, biases).astype(np.float32),)

    # With 2 bits, and with accuracy_level 4, onnxruntime quantises also what it multiplies the weights by.
    own = "swiglu_limit_after_activation" in attributes
    own |= gated or mixed or attributes.get("swiglu_fusion") == 2
    own = own or 2 in (attributes["expert_weight_bits"], *own_bits) or attributes.get("accuracy_level") == 4
    return Case("QMoE", inputs, 1, attributes, reference=reference if own else None, tolerance=(1e-4, 1e-4))


def draw_group_router(rng: np.random.Generator) -> Case:
    """Groups of experts of which some count; equal scores; more experts wanted than the groups have."""
    groups, size = (int(n) for n in rng.integers(1, 5, 2))
    logits = (rng.standard_normal((2, int(rng.integers(1, 4)), groups * size)) * int(rng.integers(0, 4))).astype("f4")
    attributes: dict[str, Any] = {"top_k": int(rng.integers(1, groups * size + 1)), "n_group": groups}
    attributes |= {"topk_group": int(rng.integers(1, groups + 1)), "group_topk": int(rng.integers(1, 4))}
    if rng.random() < 0.3:
        attributes["router_sentinel"] = -7.0
    bias = (rng.standard_normal(groups * size) / 4).astype(np.float32)
    return Case("MoEGroupRouter", [logits, bias], 1, attributes)


DRAWS: dict[str, Draw] = {"MoE": draw_moe, "QMoE": draw_qmoe, "MoEGroupRouter": draw_group_router}
