"""QuantizeLinear and DequantizeLinear by tensor, axis and block; products and convolutions of quantised tensors."""

from __future__ import annotations

import math

from tests.fuzz.build import Build

__all__ = ["quantized", "recurrent"]


def quantized(b: Build) -> None:
    """One quantising operator."""
    name = b.pick("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv")
    if name == "DynamicQuantizeLinear":
        b.opset = 11
        b.node(name, [b.tensor("float32", b.shape(1, 3, 1))], 3)
    elif name == "QLinearMatMul":
        m, k, n = (b.size(1) for _ in range(3))
        left, right, y = (b.pick("uint8", "int8") for _ in range(3))
        b.opset = b.pick(10, 21)
        scales = [b.scalar(v, "float32") for v in (0.05, 0.04, 0.3)]
        zeros = [b.scalar(v, t) for v, t in ((3, left), (0, right), (5, y))]
        x, w = b.tensor(left, (m, k), "full"), b.tensor(right, (k, n), "factor")
        b.node(name, [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2]])
    elif name == "QLinearConv":
        b.opset = 10
        x, w = b.tensor("uint8", (1, 3, 7, 6), "full"), b.tensor("uint8", (4, 3, 3, 2), "full")
        scales = [b.scalar(v, "float32") for v in (0.05, 0.04, 0.9)]
        zeros = [b.scalar(v, "uint8") for v in (3, 120, 128)]
        extra = [b.tensor("int32", (4,), "normal")] if b.flag() else []
        b.node(name, [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2], *extra])
    else:
        _linear(b, name)


def _linear(b: Build, name: str) -> None:
    b.opset = b.pick(21, 13, 10)
    shape = b.shape(1, 4, 1)
    axis = b.integer(0, len(shape) - 1)
    by = b.pick("tensor", "axis", "block")
    attributes = {}
    scale: tuple[int, ...] = ()
    if by == "axis" and b.opset > 10:
        scale, attributes = (shape[axis],), {"axis": axis}
    elif by == "block" and b.opset == 21:
        block = b.pick(*(n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0))
        blocks = (*shape[:axis], shape[axis] // block, *shape[axis + 1 :])
        if math.prod(blocks) != 1:  # onnxruntime takes one scale for one of the tensor, and refuses the blocks
            scale, attributes = blocks, {"axis": axis, "block_size": block}
    dtype = b.pick("uint8", "int8", *(("int16", "uint16", "int4", "uint4") if b.opset == 21 else ()))
    if name == "QuantizeLinear":
        inputs = [b.tensor("float32", shape, b.pick("normal", "ties")), b.tensor("float32", scale, "positive")]
        inputs.append(b.tensor(dtype, scale))
    else:
        inputs = [b.tensor(dtype, shape, "full"), b.tensor("float32", scale, "positive")]
        if b.flag():
            inputs.append(b.tensor(dtype, scale))
    b.node(name, inputs, **attributes)


def recurrent(b: Build) -> None:
    """RNN, GRU, LSTM in every direction, with initial states."""
    name, gates = b.pick(("RNN", 1), ("GRU", 3), ("LSTM", 4))
    b.opset = b.pick(14, 7)
    steps, batch, features, hidden = b.integer(1, 5), b.integer(1, 3), b.integer(1, 5), b.pick(1, 3, 4, 17)
    direction = b.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    inputs = [
        b.tensor("float32", (steps, batch, features)),
        b.tensor("float32", (ways, gates * hidden, features), "unit"),
        b.tensor("float32", (ways, gates * hidden, hidden), "unit"),
        b.tensor("float32", (ways, 2 * gates * hidden)) if b.flag() else "",
        b.ints([b.integer(1, steps) for _ in range(batch)], "int32") if b.flag() else "",
        b.tensor("float32", (ways, batch, hidden)) if b.flag() else "",
    ]
    attributes = {"linear_before_reset": int(b.flag())} if name == "GRU" else {}
    outputs = 3 if name == "LSTM" else 2
    b.rtol, b.atol = 2e-3, 1e-3
    b.node(name, inputs, outputs, hidden_size=hidden, direction=direction, **attributes)
