"""Models whose inputs come in any size, as exporters write them: shapes are computed by Shape, Gather, Concat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.model_writer import ModelNodes

__all__ = [
    "VOCABULARY",
    "by_float",
    "convolutions",
    "decoder",
    "decoder_feeds",
    "encoder",
    "encoder_feeds",
    "fourier",
    "listener",
    "listener_feeds",
    "mixed_layouts",
    "needs_number",
    "picture_feeds",
    "positions",
    "unet",
]

F, INT64 = TensorProto.FLOAT, TensorProto.INT64
VOCABULARY, HEADS, WIDTH, LAYERS, LONGEST = 50, 2, 16, 2, 2048
"""WIDTH: of all heads together. LONGEST: rows of the table of positions."""


class Writer(ModelNodes):
    """Values of any size."""

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        return self.given((self.rng.normal(size=shape) * scale).astype(np.float32))

    def size(self, x: str, axis: int) -> str:
        """int64 [1]: one dimension of x, with the detour over a scalar that exporters take."""
        scalar = self.add("Gather", self.add("Shape", x), self.given(np.int64(axis)), axis=0)
        return self.add("Unsqueeze", scalar, self.ints(0))

    def shape(self, *parts: str | int) -> str:
        """int64 [n] of sizes and numbers."""
        return self.add("Concat", *(p if isinstance(p, str) else self.ints(p) for p in parts), axis=0)

    def norm(self, x: str, width: int = WIDTH) -> str:
        return self.add("LayerNormalization", x, self.weight(width), self.weight(width), axis=-1)

    def linear(self, x: str, n: int, k: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(n, k)), self.weight(k))

    def heads(self, x: str) -> str:
        """[batch, length, WIDTH] -> [batch, heads, length, width of one]."""
        split = self.shape(self.size(x, 0), self.size(x, 1), HEADS, WIDTH // HEADS)
        return self.add("Transpose", self.add("Reshape", x, split), perm=[0, 2, 1, 3])

    def attention(self, x: str, q: str, k: str, v: str, mask: str) -> str:
        """softmax(q kᵀ / sqrt(d) + mask) v, projected; q, k, v by heads."""
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.add("Div", scores, self.given(np.float32((WIDTH // HEADS) ** 0.5)))
        weights = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        joined = self.add("Transpose", self.add("MatMul", weights, v), perm=[0, 2, 1, 3])
        flat = self.add("Reshape", joined, self.shape(self.size(x, 0), self.size(x, 1), WIDTH))
        return self.linear(flat, WIDTH, WIDTH)

    def feed_forward(self, x: str) -> str:
        wide = self.linear(x, WIDTH, 2 * WIDTH)
        erf = self.add("Erf", self.add("Div", wide, self.given(np.float32(2**0.5))))
        half = self.add("Mul", wide, self.add("Add", erf, self.given(np.float32(1))))
        return self.linear(self.add("Mul", half, self.given(np.float32(0.5))), 2 * WIDTH, WIDTH)

    def model(self, inputs: dict[str, tuple[int, Sequence[Any]]], outputs: Sequence[str]) -> bytes:
        """The model's bytes; outputs are of type float."""
        graph = helper.make_graph(
            self.nodes,
            "open",
            [helper.make_tensor_value_info(n, t, list(s)) for n, (t, s) in inputs.items()],
            [helper.make_tensor_value_info(n, F, None) for n in outputs],
            self.weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(made.SerializeToString())


def encoder() -> bytes:
    """ids, mask: int64 [batch, length] -> hidden: [batch, length, 16]. Two layers; positions by a slice of a table."""
    w = Writer(1)
    first, length = w.ints(0), w.size("ids", 1)
    places = w.add("Slice", w.given(np.arange(LONGEST)[None]), first, length, w.ints(1))
    x = w.add("Gather", w.weight(VOCABULARY, WIDTH), "ids")
    x = w.norm(w.add("Add", x, w.add("Gather", w.weight(LONGEST, WIDTH), places)))
    mask = w.add("Unsqueeze", w.add("Cast", "mask", to=F), w.ints(1, 2))
    mask = w.add("Mul", w.add("Sub", w.given(np.float32(1)), mask), w.given(np.float32(-1e4)))
    for _ in range(LAYERS):
        q, k, v = (w.heads(w.linear(x, WIDTH, WIDTH)) for _ in range(3))
        x = w.norm(w.add("Add", x, w.attention(x, q, k, v, mask)))
        x = w.norm(w.add("Add", x, w.feed_forward(x)))
    w.add("Identity", x, out="hidden")
    return w.model({"ids": (INT64, ["batch", "length"]), "mask": (INT64, ["batch", "length"])}, ["hidden"])


def encoder_feeds(batch: int, length: int) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(1000 * batch + length)
    mask = (random.random((batch, length)) > 0.2).astype(np.int64)
    mask[:, 0] = 1
    return {"ids": random.integers(0, VOCABULARY, (batch, length)), "mask": mask}


def listener() -> bytes:
    """sound: [batch, 8, frames] -> hidden: [batch, ceil(frames / 2), 16], as an encoder of speech: two convolutions,
    of which the second halves the frames, positions by a slice of a table, two layers."""
    w = Writer(6)

    def conv(x: str, n: int, stride: int) -> str:
        made = w.add("Conv", x, w.weight(WIDTH, n, 3), w.weight(WIDTH), pads=[1, 1], strides=[stride])
        erf = w.add("Erf", w.add("Div", made, w.given(np.float32(2**0.5))))
        return w.add("Mul", made, w.add("Mul", w.add("Add", erf, w.given(np.float32(1))), w.given(np.float32(0.5))))

    x = w.add("Transpose", conv(conv("sound", 8, 1), WIDTH, 2), perm=[0, 2, 1])
    x = w.add("Add", x, w.add("Slice", w.weight(LONGEST, WIDTH), w.ints(0), w.size(x, 1), w.ints(0)))
    for _ in range(LAYERS):
        y = w.norm(x)
        q, k, v = (w.heads(w.linear(y, WIDTH, WIDTH)) for _ in range(3))
        x = w.add("Add", x, w.attention(y, q, k, v, w.given(np.float32(0))))
        x = w.add("Add", x, w.feed_forward(w.norm(x)))
    w.add("Identity", w.norm(x), out="hidden")
    return w.model({"sound": (F, ["batch", 8, "frames"])}, ["hidden"])


def listener_feeds(batch: int, frames: int) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(1000 * batch + frames)
    return {"sound": random.normal(size=(batch, 8, frames)).astype(np.float32)}


def decoder() -> bytes:
    """ids: int64 [batch, new], mask: int64 [batch, past + new], past_<layer>_<key or value>: [batch, 2, past, 8]
    -> logits: [batch, new, 50], present_...: the pasts with the new rows appended.

    Positions are counted from the length of the past; the causal mask is made by comparing them.
    """
    w = Writer(2)
    past = w.add("Gather", w.add("Shape", "past_0_key"), w.given(np.int64(2)), axis=0)
    new = w.add("Gather", w.add("Shape", "ids"), w.given(np.int64(1)), axis=0)
    total = w.add("Add", past, new)
    rows = w.add("Range", past, total, w.given(np.int64(1)))
    columns = w.add("Range", w.given(np.int64(0)), total, w.given(np.int64(1)))
    seen = w.add("LessOrEqual", columns, w.add("Unsqueeze", rows, w.ints(1)))
    seen = w.add("And", seen, w.add("Unsqueeze", w.add("Cast", "mask", to=TensorProto.BOOL), w.ints(1, 2)))
    mask = w.add("Where", seen, w.given(np.float32(0)), w.given(np.float32(-1e4)))
    x = w.add("Gather", w.weight(VOCABULARY, WIDTH), "ids")
    x = w.add("Add", x, w.add("Gather", w.weight(LONGEST, WIDTH), rows))
    inputs: dict[str, tuple[int, Sequence[Any]]] = {
        "ids": (INT64, ["batch", "new"]),
        "mask": (INT64, ["batch", "total"]),
    }
    outputs = ["logits"]
    for layer in range(LAYERS):
        y = w.norm(x)
        q, k, v = (w.heads(w.linear(y, WIDTH, WIDTH)) for _ in range(3))
        caches = []
        for kind, fresh in (("key", k), ("value", v)):
            inputs[f"past_{layer}_{kind}"] = (F, ["batch", HEADS, "past", WIDTH // HEADS])
            outputs.append(f"present_{layer}_{kind}")
            caches.append(w.add("Concat", f"past_{layer}_{kind}", fresh, out=outputs[-1], axis=2))
        x = w.add("Add", x, w.attention(y, q, caches[0], caches[1], mask))
        x = w.add("Add", x, w.feed_forward(w.norm(x)))
    w.add("MatMul", w.norm(x), w.weight(WIDTH, VOCABULARY), out="logits")
    return w.model(inputs, outputs)


def decoder_feeds(batch: int, new: int, past: int, caches: bool = True) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(10000 * batch + 100 * new + past)
    feeds = {
        "ids": random.integers(0, VOCABULARY, (batch, new)),
        "mask": np.ones((batch, past + new), np.int64),
    }
    shape = batch, HEADS, past, WIDTH // HEADS
    names = [f"past_{layer}_{kind}" for layer in range(LAYERS) for kind in ("key", "value")] if caches else []
    return feeds | {n: random.normal(size=shape).astype(np.float32) for n in names}


def convolutions() -> bytes:
    """x: [batch, 3, height, width] -> y: a map of it. Strides, both poolings, a depthwise and a transposed one."""
    w = Writer(3)
    x = w.add("Relu", w.add("Conv", "x", w.weight(8, 3, 3, 3), w.weight(8), strides=[2, 2], pads=[1, 1, 1, 1]))
    x = w.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = w.add("Conv", x, w.weight(8, 1, 3, 3), pads=[1, 1, 1, 1], group=8)
    x = w.add("Sigmoid", w.add("Conv", x, w.weight(12, 8, 1, 1), w.weight(12)))
    x = w.add("AveragePool", x, kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1], count_include_pad=0)
    x = w.add("ConvTranspose", x, w.weight(12, 4, 2, 2), strides=[2, 2])
    scale = w.add("GlobalAveragePool", x)
    w.add("Mul", x, w.add("HardSigmoid", scale), out="y")
    return w.model({"x": (F, ["batch", 3, "height", "width"])}, ["y"])


def mixed_layouts() -> bytes:
    """x: [batch, 3, height, width] -> y: of alternating convolutions and layers over the last dimension, as ConvNeXt,
    SegFormer (pixels in one dimension) and PVT have them."""
    w, c = Writer(5), 8
    x = w.add("Conv", "x", w.weight(c, 3, 4, 4), w.weight(c), strides=[4, 4])
    pixels = w.add("Conv", x, w.weight(c, 1, 7, 7), w.weight(c), pads=[3, 3, 3, 3], group=c)
    pixels = w.norm(w.add("Transpose", pixels, perm=[0, 2, 3, 1]), c)
    pixels = w.linear(w.add("Relu", w.linear(pixels, c, 2 * c)), 2 * c, c)
    x = w.add("Add", x, w.add("Transpose", pixels, perm=[0, 3, 1, 2]))
    row = w.add("Transpose", w.add("Reshape", x, w.shape(w.size(x, 0), c, -1)), perm=[0, 2, 1])
    wide = w.linear(w.norm(row, c), c, 2 * c)
    shape = w.shape(w.size(x, 0), 2 * c, w.size(x, 2), w.size(x, 3))
    map_ = w.add("Reshape", w.add("Transpose", wide, perm=[0, 2, 1]), shape)
    map_ = w.add("Conv", map_, w.weight(2 * c, 1, 3, 3), w.weight(2 * c), pads=[1, 1, 1, 1], group=2 * c)
    map_ = w.add("Reshape", map_, w.shape(w.size(x, 0), 2 * c, -1))
    narrow = w.linear(w.add("Sigmoid", w.add("Transpose", map_, perm=[0, 2, 1])), 2 * c, c)
    row = w.norm(w.add("Add", row, narrow), c)
    x = w.add("Reshape", w.add("Transpose", row, perm=[0, 2, 1]), w.shape(w.size(x, 0), c, w.size(x, 2), w.size(x, 3)))
    x = w.add("Conv", x, w.weight(12, c, 2, 2), w.weight(12), strides=[2, 2])
    w.add("Transpose", w.norm(w.add("Transpose", x, perm=[0, 2, 3, 1]), 12), perm=[0, 3, 1, 2], out="y")
    return w.model({"x": (F, ["batch", 3, "height", "width"])}, ["y"])


def unet(mode: str = "nearest", by_sizes: bool = False) -> bytes:
    """x: [batch, 3, height, width] -> y of that size: down twice, up twice by Resize, joined with what was before."""
    w = Writer(4)
    coordinates = {"nearest": "asymmetric", "linear": "half_pixel", "cubic": "half_pixel"}[mode]

    def conv(x: str, n: int, k: int, stride: int = 1) -> str:
        made = w.add("Conv", x, w.weight(k, n, 3, 3), w.weight(k), pads=[1, 1, 1, 1], strides=[stride, stride])
        return w.add("Relu", made)

    def up(x: str, like: str) -> str:
        how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
        if not by_sizes:
            return w.add("Resize", x, "", w.given(np.array([1, 1, 2, 2], np.float32)), **how)
        return w.add("Resize", x, "", "", w.shape(w.size(x, 0), w.size(x, 1), w.size(like, 2), w.size(like, 3)), **how)

    first = conv("x", 3, 4)
    second = conv(first, 4, 8, 2)
    third = conv(second, 8, 8, 2)
    x = conv(w.add("Concat", up(third, second), second, axis=1), 16, 8)
    x = conv(w.add("Concat", up(x, first), first, axis=1), 12, 4)
    w.add("Conv", x, w.weight(3, 4, 1, 1), out="y")
    return w.model({"x": (F, ["batch", 3, "height", "width"])}, ["y"])


def by_float(*kernels: int) -> bytes:
    """x: [batch, 3, height, width] -> y: sizes of pads and of the result by float arithmetic, as exporters write them.

    A convolution of (size - 3) // 2 + 1 outputs; "same" padding of ceil(size / 2) outputs for convolutions of these
    kernels, their sum; Resize to floor(1.5 size), to the size it has, and a size that is data.
    """
    w = Writer(7)

    def whole(x: str) -> str:
        return w.add("Cast", x, to=INT64)

    def number(value: float) -> str:
        return w.given(np.float32(value))

    inner = w.add("Conv", "x", w.weight(3, 3, 3, 3), w.weight(3), strides=[2, 2])
    sizes = [w.add("Cast", w.add("Gather", w.add("Shape", inner), w.given(np.int64(axis))), to=F) for axis in (2, 3)]
    zero = w.ints(0)

    def same(kernel: int) -> str:
        pads: list[tuple[str, str]] = []
        for size in sizes:
            steps = w.add("Mul", w.add("Sub", w.add("Ceil", w.add("Div", size, number(2))), number(1)), number(2))
            pad = w.add("Clip", w.add("Sub", w.add("Add", steps, number(kernel)), size), number(0))
            first = w.add("Floor", w.add("Div", pad, number(2)))
            pads.append((first, w.add("Sub", pad, first)))
        ends = [w.add("Unsqueeze", whole(pads[axis][end]), zero) for end in (0, 1) for axis in (0, 1)]
        every = w.add("Concat", zero, zero, ends[0], ends[1], zero, zero, ends[2], ends[3], axis=0)
        weight = w.weight(4, 3, kernel, kernel)
        return w.add("Conv", w.add("Pad", inner, every), weight, w.weight(4), strides=[2, 2])

    x = same(kernels[0])
    for kernel in kernels[1:]:
        x = w.add("Add", x, same(kernel))
    x = w.add("Relu", x)
    linear: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    x = w.add("Resize", x, "", "", w.add("Shape", x), **linear)
    wide = [w.add("Unsqueeze", whole(w.add("Floor", w.add("Mul", s, number(1.5)))), zero) for s in sizes]
    x = w.add("Resize", x, "", "", w.shape(w.size(x, 0), w.size(x, 1), *wide), **linear)
    w.add("Add", w.add("Conv", x, w.weight(3, 4, 1, 1)), w.add("Div", number(1), sizes[0]), out="y")
    return w.model({"x": (F, ["batch", 3, "height", "width"])}, ["y"])


def picture_feeds(batch: int, height: int, width: int) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(batch + 10 * height + 10000 * width)
    return {"x": random.normal(size=(batch, 3, height, width)).astype(np.float32)}


def positions() -> bytes:
    """x: [length, 4] -> y = x + cos(position · frequency), positions counted by Range and ConstantOfShape."""
    w = Writer(5)
    length = w.add("Squeeze", w.size("x", 0), w.ints(0))
    places = w.add("Range", w.given(np.int64(0)), length, w.given(np.int64(1)))
    angles = w.add("Mul", w.add("Unsqueeze", w.add("Cast", places, to=F), w.ints(1)), w.weight(4))
    ones = w.add("ConstantOfShape", w.shape(w.size("x", 0), 4), value=helper.make_tensor("one", F, [1], [1.0]))
    x = w.add("Add", "x", w.add("Cos", angles))
    w.add("Sub", w.add("Expand", x, w.add("Shape", ones)), ones, out="y")
    return w.model({"x": (F, ["length", 4])}, ["y"])


def fourier() -> bytes:
    """x: [rows, length] -> y: the real parts of the transforms of its rows, whose length is needed as a number."""
    w = Writer(8)
    pairs = w.add("DFT", w.add("Unsqueeze", "x", w.ints(2)), axis=1)
    w.add("Relu", w.add("Gather", pairs, w.given(np.int64(0)), axis=2), out="y")
    return w.model({"x": (F, ["rows", "length"])}, ["y"])


def needs_number() -> bytes:
    """x: [length, 4] -> y = relu(v), v: [length, 4 * 2^t], x repeated in t = length modulo 3 trips: its shape grows."""
    body = helper.make_graph(
        [helper.make_node("Concat", ["v", "v"], ["w"], axis=1), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", F, None),
        ],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("w", F, None)],
    )
    w = Writer(6)
    trips = w.add("Mod", w.add("Squeeze", w.size("x", 0), w.ints(0)), w.given(np.int64(3)))
    w.add("Relu", w.add("Loop", trips, "", "x", body=body), out="y")
    return w.model({"x": (F, ["length", 4])}, ["y"])
