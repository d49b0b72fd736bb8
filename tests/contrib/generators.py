"""Models with an operator that generates text: small decoders, written by hand, as its subgraphs.

Weights are drawn so that the largest scores are far apart, and that end tokens come early, late and never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pyruntime.ir import Array

__all__ = ["EOS", "PAD", "START", "VOCAB", "WIDTH", "encoder_decoder", "gpt", "model_of", "whisper"]

VOCAB, HEADS, SIZE, POSITIONS = 23, 2, 4, 40
WIDTH = HEADS * SIZE
PAD, EOS, START = 1, 2, 3
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


class Writer:
    """The nodes and weights of one graph."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def op(self, op_type: str, *inputs: str, into: str = "", **attributes: Any) -> str:
        """A node of one output, and the name of that."""
        name = into or f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """An initializer."""
        name = f"constant_{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        """A drawn initializer."""
        return self.constant(self.rng.standard_normal(shape) * scale, np.float32)

    def normed(self, x: str) -> str:
        """x with mean 0 and deviation 1 along its last axis."""
        return self.op("LayerNormalization", x, self.constant(np.ones(WIDTH), np.float32), axis=-1)

    def heads(self, x: str) -> str:
        """x [B, T, WIDTH], normalised, times a matrix, as [B, HEADS, T, SIZE]."""
        y = self.op("MatMul", self.normed(x), self.weight(WIDTH, WIDTH, scale=0.6))
        return self.op("Transpose", self.op("Reshape", y, self.constant([0, 0, HEADS, SIZE])), perm=[0, 2, 1, 3])

    def attention(self, q: str, k: str, v: str, bias: str) -> str:
        """softmax(q kᵀ / √SIZE + bias) v, with heads concatenated, times a matrix."""
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Add", self.op("Mul", scores, self.constant(SIZE**-0.5, np.float32)), bias)
        y = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.op("MatMul", self.op("Reshape", y, self.constant([0, 0, WIDTH])), self.weight(WIDTH, WIDTH))

    def causal(self, ids: str, keys: str) -> str:
        """[T, T'] 0 where position T' - T + i of the T' keys may be seen by query i, else -1e4."""
        steps = self.op("Squeeze", self.op("Shape", ids, start=1, end=2))
        total = self.op("Squeeze", self.op("Shape", keys, start=2, end=3))
        zero, one = self.constant(0), self.constant(1)
        rows = self.op("Range", self.op("Sub", total, steps), total, one)
        later = self.op("Less", self.op("Unsqueeze", rows, one), self.op("Range", zero, total, one))
        return self.op("Mul", self.op("Cast", later, to=FLOAT), self.constant(-1e4, np.float32))

    def hidden(self, mask: str) -> str:
        """[B, 1, 1, T] from a mask [B, T] of int32: 0 where it is 1, else -1e4."""
        off = self.op("Sub", self.constant(1, np.float32), self.op("Cast", mask, to=FLOAT))
        return self.op("Unsqueeze", self.op("Mul", off, self.constant(-1e4, np.float32)), self.constant([1, 2]))

    def logits(self, x: str, vocab: int, spread: float, lift: Mapping[int, float], into: str = "logits") -> str:
        """x [B, T, WIDTH] as scores of the vocabulary, some of which are lifted."""
        bias = np.zeros(vocab, np.float32)
        for token, by in lift.items():
            bias[token] = by
        y = self.op("MatMul", self.normed(x), self.weight(WIDTH, vocab, scale=spread))
        return self.op("Add", y, self.constant(bias, np.float32), into=into)

    def graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.GraphProto:
        """The graph; inputs and outputs are (name, type, shape)."""
        weights = [numpy_helper.from_array(w, n) for n, w in self.weights.items()]
        given, made = ([helper.make_tensor_value_info(*v) for v in side] for side in (inputs, outputs))
        return helper.make_graph(self.nodes, name, given, made, initializer=weights)


def gpt(rng: np.random.Generator, layers: int = 2, spread: float = 1.5, lift: float = 0.0) -> onnx.GraphProto:
    """As GPT-2's: logits, present_i = f(input_ids, position_ids, attention_mask, past_i); past [2, B, H, P, D]."""
    w = Writer(rng)
    x = w.op("Gather", w.weight(VOCAB, WIDTH), "input_ids")
    x = w.op("Add", x, w.op("Gather", w.weight(POSITIONS, WIDTH), "position_ids"))
    zero, one, first = w.constant(0), w.constant(1), w.constant([0])
    for i in range(layers):
        q, k, v = (w.heads(x) for _ in range(3))
        k, v = (
            w.op("Concat", w.op("Gather", f"past_{i}", at, axis=0), new, axis=2) for at, new in ((zero, k), (one, v))
        )
        w.op("Concat", w.op("Unsqueeze", k, first), w.op("Unsqueeze", v, first), axis=0, into=f"present_{i}")
        bias = w.op("Add", w.causal("input_ids", k), w.hidden("attention_mask"))
        x = w.op("Add", x, w.attention(q, k, v, bias))
    w.logits(x, VOCAB, spread, {EOS: lift})
    states = [2, "batch", HEADS, "past", SIZE]
    return w.graph(
        "gpt",
        [
            ("input_ids", INT32, ["batch", "length"]),
            ("position_ids", INT32, ["batch", "length"]),
            ("attention_mask", INT32, ["batch", "total"]),
            *((f"past_{i}", FLOAT, states) for i in range(layers)),
        ],
        [
            ("logits", FLOAT, ["batch", "length", VOCAB]),
            *((f"present_{i}", FLOAT, [2, "batch", HEADS, "total", SIZE]) for i in range(layers)),
        ],
    )


class _Pair:
    """An encoder and a decoder that begin with the same weights."""

    def __init__(self, rng: np.random.Generator, vocab: int, layers: int, spread: float, lift: Mapping[int, float]):
        self._seed = int(rng.integers(1 << 30))
        self.vocab, self.layers, self._spread, self._lift = vocab, layers, spread, lift

    def decode(
        self, w: Writer, ids: str, states: Sequence[tuple[str, str]], seen: Sequence[tuple[str, str]], bias: str
    ) -> None:
        """The decoder, of the same weights each time; `states`: its past or nothing, `seen`: the encoder's."""
        w.rng = np.random.default_rng(self._seed)
        x = w.op("Gather", w.weight(self.vocab, WIDTH), ids)
        before = w.op("Squeeze", w.op("Shape", states[0][0], start=2, end=3)) if states else w.constant(0)
        after = w.op("Add", before, w.op("Squeeze", w.op("Shape", ids, start=1, end=2)))
        x = w.op("Add", x, w.op("Gather", w.weight(POSITIONS, WIDTH), w.op("Range", before, after, w.constant(1))))
        for i in range(self.layers):
            q, k, v = (w.heads(x) for _ in range(3))
            if states:
                k, v = (w.op("Concat", old, new, axis=2) for old, new in zip(states[i], (k, v), strict=True))
            x = w.op("Add", x, w.attention(q, k, v, w.causal(ids, k)))
            w.op("Identity", k, into=f"present_key_self_{i}")
            w.op("Identity", v, into=f"present_value_self_{i}")
            x = w.op("Add", x, w.attention(w.heads(x), seen[i][0], seen[i][1], bias))
        w.logits(x, self.vocab, self._spread, self._lift)

    def states(self, kind: str, side: str) -> list[tuple[str, int, list[Any]]]:
        length = {"self": "past" if side == "past" else "total", "cross": "frames"}[kind]
        return [
            (f"{side}_{part}_{kind}_{i}", FLOAT, ["batch", HEADS, length, SIZE])
            for i in range(self.layers)
            for part in ("key", "value")
        ]

    def pairs(self, kind: str, side: str) -> list[tuple[str, str]]:
        return [(f"{side}_key_{kind}_{i}", f"{side}_value_{kind}_{i}") for i in range(self.layers)]

    def encoded(self, w: Writer, x: str, bias: str) -> None:
        """A layer of the encoder, and the keys and values that the decoder sees of it."""
        q, k, v = (w.heads(x) for _ in range(3))
        x = w.op("Add", x, w.attention(q, k, v, bias))
        w.op("Identity", x, into="encoder_hidden_states")
        for pair in self.pairs("cross", "present"):
            for name in pair:
                w.op("Identity", w.heads(x), into=name)


def encoder_decoder(
    rng: np.random.Generator,
    started: bool = True,
    hidden: bool = True,
    whole: bool = False,
    layers: int = 2,
    spread: float = 1.5,
    lift: float = 0.0,
) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """As T5's: the encoder, which also runs the decoder's first step where `started`, and the decoder.

    hidden: the decoder has an input for the encoder's states. whole: it is fed whole sequences.
    """
    pair = _Pair(rng, VOCAB, layers, spread, {EOS: lift})
    w = Writer(rng)
    bias = w.hidden("encoder_attention_mask")
    pair.encoded(w, w.op("Gather", w.weight(VOCAB, WIDTH), "encoder_input_ids"), bias)
    inputs: list[Any] = [(n, INT32, ["batch", "frames"]) for n in ("encoder_input_ids", "encoder_attention_mask")]
    outputs = pair.states("cross", "present")
    if started:
        pair.decode(w, "decoder_input_ids", [], pair.pairs("cross", "present"), bias)
        inputs.append(("decoder_input_ids", INT32, ["batch", 1]))
        made: list[Any] = [
            ("logits", FLOAT, ["batch", 1, VOCAB]),
            ("encoder_hidden_states", FLOAT, ["batch", "frames", WIDTH]),
        ]
        outputs = [*made, *pair.states("self", "present"), *outputs]
    encoder = w.graph("encoder", inputs, outputs)
    d = Writer(rng)
    bias = d.hidden("encoder_attention_mask")
    ids = "input_ids"
    if whole:
        ids = d.op("Slice", "input_ids", d.constant([-1]), d.constant([1 << 30]), d.constant([1]))
    pair.decode(d, ids, pair.pairs("self", "past"), pair.pairs("cross", "past"), bias)
    given: list[Any] = [("input_ids", INT32, ["batch", "length" if whole else 1])]
    given.append(("encoder_attention_mask", INT32, ["batch", "frames"]))
    if hidden:
        given.append(("encoder_hidden_states", FLOAT, ["batch", "frames", WIDTH]))
    made = [("logits", FLOAT, ["batch", 1, VOCAB]), *pair.states("self", "present")]
    return encoder, d.graph("decoder", [*given, *pair.states("self", "past"), *pair.states("cross", "past")], made)


def whisper(
    rng: np.random.Generator,
    hidden: bool = True,
    layers: int = 1,
    spread: float = 1.5,
    lift: Mapping[int, float] | None = None,
    vocab: int = VOCAB,
) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """As Whisper's: an encoder of features [B, WIDTH, frames] that runs the prompt too, and the decoder."""
    pair = _Pair(rng, vocab, layers, spread, lift or {})
    w = Writer(rng)
    none = w.constant(np.zeros((1, 1, 1, 1)), np.float32)
    pair.encoded(w, w.op("Transpose", "encoder_input_ids", perm=[0, 2, 1]), none)
    pair.decode(w, "decoder_input_ids", [], pair.pairs("cross", "present"), none)
    encoder = w.graph(
        "encoder",
        [
            ("encoder_input_ids", FLOAT, ["batch", WIDTH, "frames"]),
            ("decoder_input_ids", INT32, ["batch", "prompt"]),
        ],
        [
            ("logits", FLOAT, ["batch", "prompt", vocab]),
            ("encoder_hidden_states", FLOAT, ["batch", "frames", WIDTH]),
            *pair.states("self", "present"),
            *pair.states("cross", "present"),
        ],
    )
    d = Writer(rng)
    none = d.constant(np.zeros((1, 1, 1, 1)), np.float32)
    pair.decode(d, "input_ids", pair.pairs("self", "past"), pair.pairs("cross", "past"), none)
    given: list[Any] = [("input_ids", INT32, ["batch", 1])]
    if hidden:
        given.append(("encoder_hidden_states", FLOAT, ["batch", "frames", WIDTH]))
    made = [("logits", FLOAT, ["batch", 1, vocab]), *pair.states("self", "present")]
    return encoder, d.graph("decoder", [*given, *pair.states("self", "past"), *pair.states("cross", "past")], made)


def model_of(
    op_type: str, feeds: Mapping[str, Array], slots: Sequence[str], outputs: Sequence[str], **attributes: Any
) -> onnx.ModelProto:
    """A model of one node, whose inputs are `slots`: those that `feeds` has."""
    inputs = [n if n in feeds else "" for n in slots]
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node(op_type, inputs, list(outputs), name="search", domain="com.microsoft", **attributes)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim)
        for n, x in feeds.items()
    ]
    kinds = {n: INT32 if n == "sequences" else FLOAT for n in outputs if n}
    made = [helper.make_tensor_value_info(n, kind, None) for n, kind in kinds.items()]
    graph = helper.make_graph([node], "generation", given, made)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
