"""Whole models of quantised operators, with random weights: made by onnxruntime's own quantisers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quant_pre_process,
    quantize_dynamic,
    quantize_static,
)

from pyruntime.ir import Array
from tests.open_models import Writer
from tests.oracle import saturates

__all__ = ["dynamic", "encoder", "listener", "packed", "residual_net", "static"]

F, INT64 = TensorProto.FLOAT, TensorProto.INT64


def encoder(layers: int, width: int, heads: int, vocabulary: int = 50, seed: int = 0) -> onnx.ModelProto:
    """A sentence encoder as MiniLM: ids [batch, sequence] to hidden states; layer norm after every residual."""
    w = Writer(seed)
    x = w.add("Gather", w.weight(vocabulary, width, scale=1.0), "ids", axis=0)

    def linear(x: str, inner: int, outer: int) -> str:
        return w.add("Add", w.weight(outer, scale=0.1), w.add("MatMul", x, w.weight(inner, outer, scale=inner**-0.5)))

    def normal(x: str) -> str:
        scale, shift = w.given(np.ones(width, np.float32)), w.weight(width, scale=0.1)
        return w.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)

    for _ in range(layers):
        split = w.ints(0, 0, heads, width // heads)
        q, k, v = (w.add("Reshape", linear(x, width, width), split) for _ in range(3))
        q, k, v = (w.add("Transpose", t, perm=p) for t, p in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])))
        scores = w.add("Div", w.add("MatMul", q, k), w.given(np.float32((width / heads) ** 0.5)))
        mixed = w.add("MatMul", w.add("Softmax", scores, axis=-1), v)
        joined = w.add("Reshape", w.add("Transpose", mixed, perm=[0, 2, 1, 3]), w.ints(0, 0, width))
        x = normal(w.add("Add", linear(joined, width, width), x))
        h = w.add("Gelu", linear(x, width, 4 * width))
        x = normal(w.add("Add", linear(h, 4 * width, width), x))
    inputs = [helper.make_tensor_value_info("ids", INT64, ["batch", "sequence"])]
    outputs = [helper.make_tensor_value_info(x, F, ["batch", "sequence", width])]
    return _model(w, inputs, outputs)


def listener(bands: int, width: int, seed: int = 0) -> onnx.ModelProto:
    """The beginning of a Whisper encoder: two convolutions over time with Gelu, and a projection of every step."""
    w = Writer(seed)

    def conv(x: str, inner: int, stride: int) -> str:
        weight, bias = w.weight(width, inner, 3, scale=(3 * inner) ** -0.5), w.weight(width, scale=0.1)
        return w.add("Gelu", w.add("Conv", x, weight, bias, kernel_shape=[3], pads=[1, 1], strides=[stride]))

    x = w.add("Transpose", conv(conv("x", bands, 1), width, 2), perm=[0, 2, 1])
    y = w.add("Add", w.add("MatMul", x, w.weight(width, width, scale=width**-0.5)), w.weight(width))
    inputs = [helper.make_tensor_value_info("x", F, ["batch", bands, "time"])]
    return _model(w, inputs, [helper.make_tensor_value_info(y, F, ["batch", "steps", width])])


def residual_net(side: int, channels: int, classes: int = 10, seed: int = 0) -> onnx.ModelProto:
    """A small ResNet: stem, max pooling, two residual blocks (one with stride and projection), mean, classes."""
    w = Writer(seed)

    def conv(x: str, inner: int, outer: int, kernel: int, stride: int = 1) -> str:
        scale = (inner * kernel * kernel) ** -0.5
        weight, bias = w.weight(outer, inner, kernel, kernel, scale=scale), w.weight(outer, scale=0.1)
        return w.add("Conv", x, weight, bias, pads=[kernel // 2] * 4, strides=[stride] * 2, kernel_shape=[kernel] * 2)

    x = w.add("Relu", conv("x", 3, channels, 7, 2))
    x = w.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = conv(w.add("Relu", conv(x, channels, channels, 3)), channels, channels, 3)
    x = w.add("Relu", w.add("Add", y, x))
    y = conv(w.add("Relu", conv(x, channels, 2 * channels, 3, 2)), 2 * channels, 2 * channels, 3)
    x = w.add("Relu", w.add("Add", y, conv(x, channels, 2 * channels, 1, 2)))
    x = w.add("Flatten", w.add("GlobalAveragePool", x))
    y = w.add("Gemm", x, w.weight(classes, 2 * channels), w.weight(classes, scale=0.1), transB=1)
    inputs = [helper.make_tensor_value_info("x", F, ["batch", 3, side, side])]
    return _model(w, inputs, [helper.make_tensor_value_info(y, F, ["batch", classes])])


def packed(width: int, seed: int = 0) -> onnx.ModelProto:
    """Products of floats with weights in 4 bits, [n, k], as they are packed, and in 8 bits, [k, n]: x [rows, width]."""
    w, rng = Writer(seed), np.random.default_rng(seed)
    four = w.given(rng.integers(0, 16, (width, width)).astype(ml_dtypes.uint4))
    scales = w.given(rng.uniform(0.5, 1.5, (width, width // 32)).astype(np.float32) / width)
    zeros = w.given(rng.integers(0, 16, (width, width // 32)).astype(ml_dtypes.uint4))
    first = w.add("DequantizeLinear", four, scales, zeros, axis=1, block_size=32)
    h = w.add("Relu", w.add("MatMul", "x", w.add("Transpose", first, perm=[1, 0])))
    eight = w.given(rng.integers(-128, 128, (width, width)).astype(np.int8))
    second = w.add("DequantizeLinear", eight, w.given(np.full(width, 0.01 / width, np.float32)), axis=1)
    y = w.add("Add", w.add("MatMul", h, second), "x")
    inputs = [helper.make_tensor_value_info("x", F, ["rows", width])]
    graph = helper.make_graph(
        w.nodes, "packed", inputs, [helper.make_tensor_value_info(y, F, ["rows", width])], w.weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def dynamic(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """The model as `quantize_dynamic` writes it: activations are quantised over their own range when they are there.

    Weights have 7 bits where onnxruntime does not add up the products of 8 exactly.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "float.onnx"), Path(folder, "q8.onnx")
        onnx.save(model, source)
        quantize_dynamic(source, made, **({"reduce_range": saturates()} | options))
        return onnx.load(made)


class _Batches(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, batches: list[Array]) -> None:
        self._rest = iter([{name: batch} for batch in batches])

    def get_next(self) -> Any:
        return next(self._rest, None)


def static(model: onnx.ModelProto, batches: list[Array], **options: Any) -> onnx.ModelProto:
    """The model as `quantize_static` writes it, calibrated on `batches` of its one input; weights as in `dynamic`."""
    given: dict[str, Any] = {
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
        "per_channel": True,
        "reduce_range": saturates(),
    }
    with tempfile.TemporaryDirectory() as folder:
        source, ready, made = (Path(folder, f"{name}.onnx") for name in ("float", "ready", "quantized"))
        onnx.save(model, source)
        quant_pre_process(source, ready, skip_symbolic_shape=True)
        quantize_static(ready, made, _Batches(model.graph.input[0].name, batches), **(given | options))
        return onnx.load(made)


def _model(w: Writer, inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(w.nodes, "quantized", inputs, outputs, w.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
