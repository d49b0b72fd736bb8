"""Writes examples/log_mel.onnx, the graph of Whisper's input features: `python -m tools.log_mel`.

    log_mel = (max(y, max y - 8) + 4) / 4,   y = log10 max(F |STFT(samples)|², 1e-10)

The STFT has Hann windows of 400 samples with a hop of 160, centered by reflection; F has triangles of equal area
between neighbors of `edges`. Source: Radford et al. 2022 and the feature extractor of its published code; the triangles
are those of Slaney's auditory toolbox.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TARGET = Path(__file__).parent.parent / "examples" / "log_mel.onnx"
WINDOW, HOP, RATE = 400, 160, 16000
BINS = WINDOW // 2 + 1


def log_mel() -> onnx.ModelProto:
    """samples float32 [1, n], edges float32 [m + 2] in Hz -> log_mel float32 [1, m, n // 160]."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def constant(name: str, value: object, dtype: type = np.int64) -> str:
        weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(kind: str, *inputs: str, out: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attributes))
        return out

    zero, one, last = constant("zero", [0]), constant("one", [1]), constant("last", [-1])
    half = WINDOW // 2
    padded = op("Pad", "samples", constant("margins", [0, half, 0, half]), out="padded", mode="reflect")
    signal = op("Unsqueeze", padded, last, out="signal")
    hann = np.sin(np.pi * np.arange(WINDOW) / WINDOW) ** 2
    window = constant("window", hann, np.float32)
    spectrum = op("STFT", signal, constant("hop", HOP), window, out="spectrum", onesided=1)
    frames = op("Slice", spectrum, zero, last, one, out="frames")
    power = op("ReduceSumSquare", frames, out="power", axes=[3], keepdims=0)

    def edge(name: str, start: int, end: int) -> str:
        stop = constant(f"{name}_end", [end if end else np.iinfo(np.int64).max])
        part = op("Slice", "edges", constant(f"{name}_start", [start]), stop, out=f"{name}_edges")
        return op("Unsqueeze", part, zero, out=name)

    low, centre, high = edge("low", 0, -2), edge("centre", 1, -1), edge("high", 2, 0)
    bins = constant("bins", np.arange(BINS)[:, np.newaxis] * (RATE / WINDOW), np.float32)
    rise = op("Div", op("Sub", bins, low, out="above"), op("Sub", centre, low, out="rising"), out="rise")
    fall = op("Div", op("Sub", high, bins, out="below"), op("Sub", high, centre, out="falling"), out="fall")
    triangle = op("Relu", op("Min", rise, fall, out="sides"), out="triangle")
    width = op("Sub", high, low, out="width")
    filters = op("Mul", triangle, op("Div", constant("two", 2, np.float32), width, out="area"), out="filters")

    mel = op("Transpose", op("MatMul", power, filters, out="energies"), out="mel", perm=[0, 2, 1])
    heard = op("Log", op("Max", mel, constant("least", 1e-10, np.float32), out="heard"), out="logarithm")
    decades = op("Mul", heard, constant("decade", 1 / np.log(10), np.float32), out="decades")
    top = op("ReduceMax", decades, out="top")
    floor = op("Sub", top, constant("range", 8, np.float32), out="floor")
    raised = op("Add", op("Max", decades, floor, out="clipped"), constant("four", 4, np.float32), out="raised")
    op("Mul", raised, constant("quarter", 0.25, np.float32), out="log_mel")
    graph = helper.make_graph(
        nodes,
        "log_mel",
        [
            helper.make_tensor_value_info("samples", TensorProto.FLOAT, [1, "samples"]),
            helper.make_tensor_value_info("edges", TensorProto.FLOAT, ["edges"]),
        ],
        [helper.make_tensor_value_info("log_mel", TensorProto.FLOAT, [1, "mels", "frames"])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    TARGET.write_bytes(log_mel().SerializeToString())
