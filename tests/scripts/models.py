"""The models of the scripts: small, with weights drawn from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

__all__ = ["MODELS", "write_models"]

_F, _I = TensorProto.FLOAT, TensorProto.INT64
_node = helper.make_node


def _model(nodes: Sequence[Any], inputs: dict[str, Any], outputs: dict[str, Any], **weights: Any) -> ModelProto:
    given, made = [
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in values.items()]
        for values in (inputs, outputs)
    ]
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "script", given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _draw(seed: int) -> Callable[..., Any]:
    generator = np.random.default_rng(seed)
    return lambda *shape: (generator.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)


def classifier() -> ModelProto:
    """Logits [1, 10] of pictures [1, 3, 24, 24]."""
    draw = _draw(1)
    nodes = [
        _node("Conv", ["x", "w1", "b1"], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        _node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"]),
        _node("Relu", ["n1"], ["r1"]),
        _node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        _node("Conv", ["p1", "w2"], ["c2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=2),
        _node("HardSwish", ["c2"], ["r2"]),
        _node("GlobalAveragePool", ["r2"], ["g"]),
        _node("Flatten", ["g"], ["f"]),
        _node("Gemm", ["f", "w3", "b3"], ["logits"], transB=1),
    ]
    weights = {"w1": draw(8, 3, 3, 3), "b1": draw(8), "w2": draw(12, 4, 3, 3), "w3": draw(10, 12), "b3": draw(10)}
    norm = {"scale": 1 + draw(8) / 4, "shift": draw(8), "mean": draw(8), "var": np.ones(8, np.float32)}
    model = _model(nodes, {"x": (_F, [1, 3, 24, 24])}, {"logits": (_F, [1, 10])}, **weights, **norm)
    helper.set_model_props(model, {"labels": "ten of them"})
    return model


def embedder() -> ModelProto:
    """One attention layer over token embeddings; padding is masked out."""
    draw = _draw(2)
    nodes = [
        _node("Gather", ["words", "input_ids"], ["e"]),
        *(_node("MatMul", ["e", f"w{k}"], [k]) for k in "qkv"),
        _node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        _node("MatMul", ["q", "kt"], ["raw"]),
        _node("Mul", ["raw", "scale"], ["scaled"]),
        _node("Cast", ["attention_mask"], ["m"], to=_F),
        _node("Sub", ["one", "m"], ["inverse"]),
        _node("Mul", ["inverse", "low"], ["penalty"]),
        _node("Unsqueeze", ["penalty", "axis"], ["bias"]),
        _node("Add", ["scaled", "bias"], ["masked"]),
        _node("Softmax", ["masked"], ["p"], axis=-1),
        _node("MatMul", ["p", "v"], ["context"]),
        _node("Add", ["e", "context"], ["sum"]),
        _node("LayerNormalization", ["sum", "gain"], ["last_hidden_state"], axis=-1),
    ]
    weights = {f"w{k}": draw(16, 16) for k in "qkv"}
    scalars = {"scale": np.float32(0.25), "one": np.float32(1), "low": np.float32(-1e4), "axis": np.array([1])}
    return _model(
        nodes,
        {"input_ids": (_I, ["batch", "length"]), "attention_mask": (_I, ["batch", "length"])},
        {"last_hidden_state": (_F, ["batch", "length", 16])},
        words=draw(12, 16) * 4,
        gain=np.ones(16, np.float32),
        **weights,
        **scalars,
    )


def detector() -> ModelProto:
    """Mean brightness of a grid of boxes as scores of two classes, then NonMaxSuppression."""
    at = np.arange(0, 32, 4, dtype=np.float32)
    boxes = np.array([[y, x, y + 8, x + 8] for y in at for x in at], np.float32)[np.newaxis]
    nodes = [
        _node("AveragePool", ["image"], ["a"], kernel_shape=[8, 8], strides=[4, 4], pads=[0, 0, 4, 4]),
        _node("Reshape", ["a", "flat"], ["bright"]),
        _node("Mul", ["bright", "classes"], ["scores"]),
        _node("Identity", ["grid"], ["boxes"]),
        _node("NonMaxSuppression", ["grid", "scores", "most", "iou", "threshold"], ["selected"]),
    ]
    return _model(
        nodes,
        {"image": (_F, [1, 1, 32, 32]), "threshold": (_F, [1])},
        {"selected": (_I, ["found", 3]), "boxes": (_F, [1, 64, 4]), "scores": (_F, [1, 2, 64])},
        grid=boxes,
        flat=np.array([1, 1, 64]),
        classes=np.array([[[1.0], [0.5]]], np.float32),
        most=np.array([4]),
        iou=np.array([0.3], np.float32),
    )


def forecaster() -> ModelProto:
    """LSTM over [steps, 1, 1] and a linear head; the state goes in and comes out."""
    draw = _draw(4)
    nodes = [
        _node("LSTM", ["x", "w", "r", "b", "", "h0", "c0"], ["all", "h", "c"], hidden_size=8),
        _node("Squeeze", ["all", "axis"], ["s"]),
        _node("MatMul", ["s", "head"], ["y"]),
    ]
    state = (_F, [1, 1, 8])
    return _model(
        nodes,
        {"x": (_F, ["steps", 1, 1]), "h0": state, "c0": state},
        {"y": (_F, ["steps", 1, 1]), "h": state, "c": state},
        w=draw(1, 32, 1),
        r=draw(1, 32, 8),
        b=draw(1, 64),
        head=draw(8, 1) * 3,
        axis=np.array([1]),
    )


def iteration() -> ModelProto:
    """y = tanh(x W), norm = ||y||."""
    nodes = [
        _node("MatMul", ["x", "w"], ["h"]),
        _node("Tanh", ["h"], ["y"]),
        _node("ReduceL2", ["y"], ["norm"], keepdims=0),
    ]
    outputs = {"y": (_F, ["rows", 16]), "norm": (_F, [])}
    return _model(nodes, {"x": (_F, ["rows", 16])}, outputs, w=_draw(5)(16, 16) * 1.5)


MODELS = {f.__name__: f for f in (classifier, embedder, detector, forecaster, iteration)}


def write_models(folder: Path) -> None:
    """Write `models/NAME.onnx` below `folder`."""
    (folder / "models").mkdir()
    for name, make in MODELS.items():
        (folder / "models" / f"{name}.onnx").write_bytes(make().SerializeToString())
