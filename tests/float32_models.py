"""Models of float32 that may compute in float16, with masks, positions, large and small constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from pyruntime.ir import Array
from tests.models import text_model
from tests.open_models import Writer

__all__ = ["WORDS", "bert", "bert_feeds", "blocks4", "branches", "heavy_loop", "llama", "llama_feeds", "overflowing"]

F, INT64 = TensorProto.FLOAT, TensorProto.INT64
WORDS, WIDTH, HEADS = 512, 128, 4


def _norm(w: Writer, x: str, name: str) -> str:
    """RMS norm, written out: its squares pass 65504 where x passes 256."""
    mean = w.add("ReduceMean", w.add("Pow", x, w.given(np.float32(2))), axes=[-1], keepdims=1)
    root = w.add("Sqrt", w.add("Add", mean, w.given(np.float32(1e-6))))
    return w.add("Mul", w.add("Div", x, root), w.weight(WIDTH, scale=1.0), out=name)


def _heads(w: Writer, x: str) -> str:
    return w.add("Transpose", w.add("Reshape", x, w.ints(0, 0, HEADS, WIDTH // HEADS)), perm=[0, 2, 1, 3])


def _linear(w: Writer, x: str, rows: int, columns: int) -> str:
    return w.add("Add", w.add("MatMul", x, w.weight(rows, columns, scale=rows**-0.5)), w.weight(columns, scale=0.1))


def _block(w: Writer, x: str, mask: str, turn: Any = None) -> str:
    """Attention and two products, each with what is added to it."""
    q, k, v = (_heads(w, _linear(w, x, WIDTH, WIDTH)) for _ in range(3))
    if turn:
        q, k = turn(q), turn(k)
    scores = w.add("MatMul", w.add("Mul", q, w.given(np.float32(0.17677669))), w.add("Transpose", k, perm=[0, 1, 3, 2]))
    mixed = w.add("MatMul", w.add("Softmax", w.add("Add", scores, mask), axis=-1), v)
    mixed = w.add("Reshape", w.add("Transpose", mixed, perm=[0, 2, 1, 3]), w.ints(0, 0, WIDTH))
    x = w.add("Add", x, _linear(w, mixed, WIDTH, WIDTH))
    hidden = _linear(w, x, WIDTH, 4 * WIDTH)
    erf = w.add("Add", w.add("Erf", w.add("Div", hidden, w.given(np.float32(2**0.5)))), w.given(np.float32(1)))
    return w.add("Add", x, _linear(w, w.add("Mul", hidden, erf), 4 * WIDTH, WIDTH))


def bert(layers: int = 2) -> bytes:
    """ids, mask: [batch, length] -> logits: [batch, length, WORDS]. What is masked gets the least float32 added."""
    w = Writer(11)
    given = w.add("Unsqueeze", w.add("Cast", "mask", to=F), w.ints(1, 2))
    mask = w.add("Mul", w.add("Sub", w.given(np.float32(1)), given), w.given(np.finfo(np.float32).min))
    x = w.add("Gather", w.weight(WORDS, WIDTH, scale=1.0), "ids")
    for _ in range(layers):
        normed = w.add("LayerNormalization", x, w.weight(WIDTH, scale=1.0), w.weight(WIDTH), axis=-1)
        x = _block(w, normed, mask)
    w.add("MatMul", x, w.weight(WIDTH, WORDS, scale=WIDTH**-0.5), out="logits")
    shape = ["batch", "length"]
    return w.model({"ids": (INT64, shape), "mask": (INT64, shape)}, ["logits"])


def bert_feeds(batch: int, length: int) -> dict[str, Array]:
    """Words, of which the last third of every other row is masked."""
    random = np.random.default_rng(batch * 1000 + length)
    mask = np.ones((batch, length), np.int64)
    mask[::2, 2 * length // 3 :] = 0
    return {"ids": random.integers(0, WORDS, (batch, length)), "mask": mask}


def llama(layers: int = 2) -> bytes:
    """ids, places: [batch, length] -> logits. Angles of the rotary embedding follow from places, which may be large."""
    w = Writer(12)
    rates = (10000.0 ** (-np.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS))).astype(np.float32)
    places = w.add("Unsqueeze", w.add("Cast", "places", to=F), w.ints(1))
    angles = w.add("MatMul", w.given(rates[None, :, None]), places)
    angles = w.add("Transpose", angles, perm=[0, 2, 1])
    both = w.add("Unsqueeze", w.add("Concat", angles, angles, axis=-1), w.ints(1))
    cos, sin = w.add("Cos", both), w.add("Sin", both)

    def turn(x: str) -> str:
        half = w.ints(WIDTH // HEADS // 2)
        first = w.add("Slice", x, w.ints(0), half, w.ints(3))
        second = w.add("Slice", x, half, w.ints(2**31), w.ints(3))
        turned = w.add("Concat", w.add("Neg", second), first, axis=-1)
        return w.add("Add", w.add("Mul", x, cos), w.add("Mul", turned, sin))

    x = w.add("Gather", w.weight(WORDS, WIDTH, scale=1.0), "ids")
    none = w.given(np.zeros((1, 1, 1, 1), np.float32))
    for i in range(layers):
        x = _block(w, _norm(w, x, f"norm{i}"), none, turn)
    w.add("MatMul", _norm(w, x, "last"), w.weight(WIDTH, WORDS, scale=WIDTH**-0.5), out="logits")
    shape = ["batch", "length"]
    return w.model({"ids": (INT64, shape), "places": (INT64, shape)}, ["logits"])


def llama_feeds(batch: int, length: int, first: int = 5000) -> dict[str, Array]:
    """Words at places from `first` on, which float16 would round to multiples of 4."""
    random = np.random.default_rng(batch * 1000 + length)
    places = np.broadcast_to(first + np.arange(length), (batch, length))
    return {"ids": random.integers(0, WORDS, (batch, length)), "places": places.astype(np.int64)}


def overflowing() -> bytes:
    """x: [1, WIDTH] -> y: 'large' passes 65504, then it is scaled down again."""
    w = Writer(13)
    x = w.add("MatMul", "x", w.given(np.full((WIDTH, WIDTH), 30.0, np.float32)))
    large = w.add("MatMul", x, w.given(np.full((WIDTH, WIDTH), 30.0, np.float32)), out="large")
    w.add("MatMul", large, w.given(np.full((WIDTH, WIDTH), 1e-3, np.float32)), out="y")
    for node, name in zip(w.nodes, ("first", "second", "third"), strict=True):
        node.name = name
    return w.model({"x": (F, ["n", WIDTH])}, ["y"])


def heavy_loop() -> bytes:
    """x: [length, WIDTH] -> y: a Scan whose body has a weight of 64 KiB and a bias that the graph has."""
    w = Writer(14)
    body = text_model(
        """
        g (float[1, 128] s, float[128] x) => (float[1, 128] next, float[128] y) {
            axes = Constant <value_ints = [0]> ()
            row = Unsqueeze (x, axes)
            product = MatMul (row, weight)
            sum = Add (product, bias)
            turned = MatMul (s, recurrent)
            both = Add (sum, turned)
            next = Tanh (both)
            y = Squeeze (next, axes)
        }
        """
    ).graph
    names = w.weight(WIDTH, WIDTH, scale=WIDTH**-0.5), w.weight(WIDTH), w.weight(WIDTH, WIDTH, scale=WIDTH**-0.5)
    for inner in body.node:
        inner.name = inner.output[0]
        for own, outer in zip(("weight", "bias", "recurrent"), names, strict=True):
            for i, name in enumerate(inner.input):
                if name == own:
                    inner.input[i] = outer
    start = w.given(np.zeros((1, WIDTH), np.float32))
    scan = onnx.helper.make_node("Scan", [start, "x"], ["state", "y"], "scan", body=body, num_scan_inputs=1)
    w.nodes.append(scan)
    return w.model({"x": (F, ["length", WIDTH])}, ["y"])


def branches() -> bytes:
    """c: bool, x: [n, WIDTH] -> y: one of two products, whichever a run says."""
    w = Writer(15)
    weight = w.weight(WIDTH, WIDTH, scale=WIDTH**-0.5)
    x = w.add("MatMul", "x", weight)
    parts = [
        text_model(f"g () => (float[n, 128] out) {{ out = {op} ({x}, {weight}) }}").graph for op in ("MatMul", "Gemm")
    ]
    made = onnx.helper.make_node("If", ["c"], ["y"], "choice", then_branch=parts[0], else_branch=parts[1])
    w.nodes.append(made)
    return w.model({"c": (TensorProto.BOOL, []), "x": (F, ["n", WIDTH])}, ["y"])


def blocks4(rows: int = 256, columns: int = 256, block: int = 32) -> bytes:
    """x: [n, rows] -> y: a product by weights of 4 bits with float32 scales."""
    random = np.random.default_rng(16)
    w = Writer(16)
    packed = w.given(random.integers(0, 256, (columns, rows // block, block // 2), np.uint8))
    scales = w.given(random.uniform(0.005, 0.02, columns * rows // block).astype(np.float32))
    made = onnx.helper.make_node(
        "MatMulNBits",
        ["x", packed, scales],
        ["p"],
        "product",
        domain="com.microsoft",
        K=rows,
        N=columns,
        bits=4,
        block_size=block,
    )
    w.nodes.append(made)
    w.add("Relu", "p", out="y")
    model = onnx.load_from_string(w.model({"x": (F, ["n", rows])}, ["y"]))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return bytes(model.SerializeToString())
