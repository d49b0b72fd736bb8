"""Reductions, sorting, softmax and normalisations: what runs along axes."""

from __future__ import annotations

import math
from typing import Any

from tests.fuzz.build import Build

__all__ = ["normalizations", "reductions", "softmaxes", "sorting"]

REDUCTIONS = {
    "ReduceSum": ("normal", ("float32", "int32", "int64", "float64", "float16")),
    "ReduceMean": ("normal", ("float32", "int32", "float64")),
    "ReduceMax": ("normal", ("float32", "int32", "int64", "int8", "uint8", "float64")),
    "ReduceMin": ("normal", ("float32", "int32", "int64", "int8", "uint8", "float64")),
    "ReduceProd": ("positive", ("float32", "int32")),
    "ReduceL1": ("normal", ("float32", "int32")),
    "ReduceL2": ("normal", ("float32",)),
    "ReduceLogSum": ("positive", ("float32",)),
    "ReduceLogSumExp": ("normal", ("float32", "float64")),
    "ReduceSumSquare": ("normal", ("float32", "int32", "float64")),
}


def reductions(b: Build) -> None:
    """The Reduce family with axes as attribute or input, ArgMax, ArgMin."""
    name = b.pick(*REDUCTIONS, "ArgMax", "ArgMin")
    if name.startswith("Arg"):
        b.opset = b.pick(13, 12)
        shape = b.shape(1, 4, 1)
        attributes = {"axis": b.integer(-len(shape), len(shape) - 1), "keepdims": int(b.flag())}
        dtype = b.pick("float32", "int32", "int8", "uint8", "float64")
        b.node(name, [b.tensor(dtype, shape, "ties")], select_last_index=int(b.flag()), **attributes)
        return
    kind, dtypes = REDUCTIONS[name]
    b.opset = b.pick(18, 20, 11, 13)
    shape = b.shape(0, 4, 1)
    dtype = b.pick(*dtypes)
    if name == "ReduceProd" and (math.prod(shape) > 8 if dtype == "int32" else math.prod(shape) > 60):
        shape = (b.integer(1, 8),)
    b.rtol, b.atol = (2e-2, 2e-2) if dtype == "float16" else (2e-3, 2e-3 * max(1.0, math.prod(shape) / 1000))
    axes = [a - (len(shape) if b.flag() else 0) for a in b.some(range(len(shape)))]
    attributes = {"keepdims": int(b.flag())}
    as_input = b.opset >= 18 or (name == "ReduceSum" and b.opset >= 13)
    if as_input and (axes or b.flag()):
        attributes["noop_with_empty_axes"] = int(b.flag())
    x = b.tensor(dtype, shape, kind)
    if as_input:
        b.node(name, [x, b.ints(axes)] if axes else [x], **attributes)
    else:
        b.node(name, [x], axes=axes or None, **attributes)


def sorting(b: Build) -> None:
    """TopK of different numbers, so that the order is one."""
    b.opset = b.pick(11, 21, 10)
    shape = b.shape(1, 3, 1)
    axis = b.integer(-len(shape), len(shape) - 1)
    k = b.integer(0, shape[axis])
    dtype = b.pick("float32", "int64", "int32", "float64") if b.opset > 10 else "float32"
    flags = {"largest": int(b.flag()), "sorted": 1} if b.opset > 10 else {}
    b.node("TopK", [b.tensor(dtype, shape, "distinct"), b.ints([k])], 2, axis=axis, **flags)


def softmaxes(b: Build) -> None:
    """Softmax, LogSoftmax, Hardmax in both forms; CumSum is with the selections."""
    name = b.pick("Softmax", "LogSoftmax", "Hardmax")
    b.opset = b.pick(13, 11, 21)
    shape = b.shape(1, 4, 1)
    dtype = b.pick("float32", "float64", "float16") if name != "Hardmax" else "float32"
    if dtype == "float16":
        b.rtol, b.atol = 1e-2, 5e-3
    b.node(name, [b.tensor(dtype, shape)], axis=b.integer(-len(shape), len(shape) - 1))


def normalizations(b: Build) -> None:
    """Layer, instance, group, batch, Lp and local response normalisation."""
    name = b.pick(
        "LayerNormalization",
        "RMSNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "BatchNormalization",
        "LpNormalization",
        "LRN",
        "MeanVarianceNormalization",
    )
    b.rtol, b.atol = 2e-3, 1e-3
    if name in ("LayerNormalization", "RMSNormalization"):
        b.opset = 23 if name[0] == "R" else b.pick(17, 21)
        shape = b.shape(1, 4, 2)
        axis = b.integer(-len(shape), len(shape) - 1)
        inner = shape[axis:]
        inputs = [b.tensor("float32", shape), b.tensor("float32", inner)]
        if name[0] == "L" and b.flag():
            inputs.append(b.tensor("float32", inner))
        b.node(name, inputs, axis=axis, epsilon=b.pick(1e-5, 1e-2))
        return
    shape = (b.integer(1, 2), b.pick(1, 2, 4, 6, 12), *b.shape(1, 3, 2))
    x, channels = b.tensor("float32", shape), shape[1:2]
    if name == "InstanceNormalization":
        b.node(name, [x, b.tensor("float32", channels), b.tensor("float32", channels)], epsilon=b.pick(1e-5, 1e-2))
    elif name == "GroupNormalization":
        b.opset = 21
        groups = b.pick(*(g for g in range(1, 13) if shape[1] % g == 0))
        b.node(name, [x, b.tensor("float32", channels), b.tensor("float32", channels)], num_groups=groups)
    elif name == "BatchNormalization":
        b.opset = b.pick(15, 9, 7)
        kinds: tuple[str, ...] = ("normal", "normal", "normal", "positive")
        b.node(name, [x, *(b.tensor("float32", channels, k) for k in kinds)], epsilon=b.pick(1e-5, 1e-2))
    elif name == "LpNormalization":
        b.node(name, [x], axis=b.integer(-len(shape), len(shape) - 1), p=b.pick(2, 1))
    elif name == "LRN":
        b.notes.append("an odd size")
        _lrn(b, x, shape)
    else:
        # Over one element the variance is 0, and onnxruntime takes the root of E[x²] - E[x]², which may be negative.
        axes = b.some(range(len(shape)), 1)
        b.node(name, [x], axes=axes if math.prod(shape[a] for a in axes) > 1 else [2, *axes])


def _lrn(b: Build, x: str, shape: tuple[int, ...]) -> None:
    attributes: dict[str, Any] = {"size": b.pick(3, 1, 5)}
    if b.flag():
        attributes |= {"alpha": 0.5, "beta": 0.6, "bias": 2.0}
    if len(shape) == 4:
        b.node("LRN", [x], **attributes)
    else:
        b.node("Abs", [x])
