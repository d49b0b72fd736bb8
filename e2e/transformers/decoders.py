"""Decoders of two families, with caches, as exporters write them: what sets each apart from the others is there."""

from __future__ import annotations

import numpy as np
from onnx import ValueInfoProto

from e2e.transformers.architectures import GROUPS, HEADS, LAYERS, SIZE, WIDTH
from e2e.transformers.network import INT64, Network, value

__all__ = ["gpt2", "qwen2"]

PLACES = 256
"""Positions that GPT-2 knows."""


def qwen2(vocabulary: int) -> bytes:
    """logits [b, s, vocabulary]: RMS norms, rotary positions, grouped queries with biases, gated linear units.

    past_key_values.i.key [b, groups, past, size] -> present.i.key and so on; the head is the table of words.
    """
    net = Network(31)
    words = net.weight(vocabulary, WIDTH, scale=1)
    inputs = _inputs()
    x = net.op("Gather", words, "input_ids")
    bias = net.causal_bias("attention_mask", "input_ids")
    turned = _turns(net)
    for layer in range(LAYERS):
        y = _rms_norm(net, x)
        q, k, v = (net.heads(net.linear(y, WIDTH, n * SIZE), n, SIZE) for n in (HEADS, GROUPS, GROUPS))
        k, v = _cached(net, layer, _rotated(net, k, turned), v, GROUPS, inputs)
        k, v = (net.repeat(part, HEADS // GROUPS, GROUPS, SIZE) for part in (k, v))
        mixed = net.attend(_rotated(net, q, turned), k, v, SIZE, bias)
        x = net.op("Add", x, net.op("MatMul", mixed, net.weight(WIDTH, WIDTH)))
        y = _rms_norm(net, x)
        gate, up = (net.op("MatMul", y, net.weight(WIDTH, 2 * WIDTH)) for _ in range(2))
        gated = net.op("Mul", net.op("Mul", gate, net.op("Sigmoid", gate)), up)
        x = net.op("Add", x, net.op("MatMul", gated, net.weight(2 * WIDTH, WIDTH)))
    return _model(net, _rms_norm(net, x), words, vocabulary, GROUPS, inputs)


def gpt2(vocabulary: int) -> bytes:
    """logits [b, s, vocabulary]: learned positions, one Gemm for queries, keys and values, GELU by a tanh.

    past_key_values.i.key [b, heads, past, size] -> present.i.key and so on; the head is the table of words.
    """
    net = Network(32)
    words = net.weight(vocabulary, WIDTH, scale=1)
    inputs = _inputs()
    places = net.op("Gather", net.weight(PLACES, WIDTH, scale=0.5), "position_ids")
    x = net.op("Add", net.op("Gather", words, "input_ids"), places)
    bias = net.causal_bias("attention_mask", "input_ids")
    for layer in range(LAYERS):
        three = _gemm(net, net.norm(x, WIDTH), WIDTH, 3 * WIDTH)
        net.op("Split", three, net.constant([WIDTH] * 3), outputs=3, axis=2)
        q, k, v = (net.heads(part, HEADS, SIZE) for part in net.nodes[-1].output)
        k, v = _cached(net, layer, k, v, HEADS, inputs)
        x = net.op("Add", x, _gemm(net, net.attend(q, k, v, SIZE, bias), WIDTH, WIDTH))
        inner = _tanh_gelu(net, _gemm(net, net.norm(x, WIDTH), WIDTH, 4 * WIDTH))
        x = net.op("Add", x, _gemm(net, inner, 4 * WIDTH, WIDTH))
    return _model(net, net.norm(x, WIDTH), words, vocabulary, HEADS, inputs)


def _inputs() -> list[ValueInfoProto]:
    names = {"input_ids": "length", "attention_mask": "total", "position_ids": "length"}
    return [value(name, ["batch_size", rows], INT64) for name, rows in names.items()]


def _cached(net: Network, layer: int, k: str, v: str, heads: int, inputs: list[ValueInfoProto]) -> list[str]:
    """New keys and values after those of the cache: the presents of a layer."""
    found = []
    for part, new in (("key", k), ("value", v)):
        past = f"past_key_values.{layer}.{part}"
        inputs.append(value(past, ["batch_size", heads, "past", SIZE]))
        found.append(net.op("Concat", past, new, axis=2, name=f"present.{layer}.{part}"))
    return found


def _model(net: Network, x: str, words: str, vocabulary: int, heads: int, inputs: list[ValueInfoProto]) -> bytes:
    net.op("MatMul", x, net.op("Transpose", words, perm=[1, 0]), name="logits")
    presents = [f"present.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    outputs = [value("logits", ["batch_size", "length", vocabulary])]
    return net.model(inputs, outputs + [value(name, ["batch_size", heads, "total", SIZE]) for name in presents])


def _rms_norm(net: Network, x: str) -> str:
    """x / sqrt(mean x² + 1e-6), scaled."""
    two, least = net.constant(2, np.float32), net.constant(1e-6, np.float32)
    mean = net.op("ReduceMean", net.op("Pow", x, two), axes=[-1], keepdims=1)
    root = net.op("Sqrt", net.op("Add", mean, least))
    inverse = net.op("Div", net.constant(1, np.float32), root)
    return net.op("Mul", net.constant(np.ones(WIDTH), np.float32), net.op("Mul", x, inverse))


def _turns(net: Network) -> tuple[str, str]:
    """Cosine and sine of each position's angles, [b, 1, s, size]."""
    frequencies = net.constant(10_000.0 ** (-np.arange(0, SIZE, 2) / SIZE), np.float32)
    places = net.op("Cast", net.op("Unsqueeze", "position_ids", net.constant([1, 3])), to=1)
    half = net.op("Mul", places, frequencies)
    angles = net.op("Concat", half, half, axis=-1)
    return net.op("Cos", angles), net.op("Sin", angles)


def _rotated(net: Network, x: str, turns: tuple[str, str]) -> str:
    """x cos + (-x₂, x₁) sin of the halves x₁ and x₂ of [b, heads, s, size]."""
    middle, axis = net.constant([SIZE // 2]), net.constant([3])
    first = net.op("Slice", x, net.constant([0]), middle, axis)
    second = net.op("Slice", x, middle, net.constant([SIZE]), axis)
    turned = net.op("Concat", net.op("Neg", second), first, axis=-1)
    return net.op("Add", net.op("Mul", x, turns[0]), net.op("Mul", turned, turns[1]))


def _gemm(net: Network, x: str, width: int, out: int) -> str:
    """x W + b of [b, s, width] by a Gemm of rows, as PyTorch's Conv1D is exported."""
    rows = net.op("Reshape", x, net.constant([-1, width]))
    made = net.op("Gemm", rows, net.weight(width, out), net.weight(out, scale=0.1))
    sizes = [net.op("Unsqueeze", net.size(x, axis), net.constant([0])) for axis in (0, 1)]
    return net.op("Reshape", made, net.op("Concat", *sizes, net.constant([out]), axis=0))


def _tanh_gelu(net: Network, x: str) -> str:
    """x/2 (1 + tanh(sqrt(2/π) (x + 0.044715 x³)))."""
    cube = net.op("Pow", x, net.constant(3, np.float32))
    inner = net.op("Add", x, net.op("Mul", cube, net.constant(0.044715, np.float32)))
    wave = net.op("Tanh", net.op("Mul", inner, net.constant((2 / np.pi) ** 0.5, np.float32)))
    half = net.op("Mul", x, net.constant(0.5, np.float32))
    return net.op("Mul", half, net.op("Add", wave, net.constant(1, np.float32)))
