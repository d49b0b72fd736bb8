"""Kinds of f: norms, pooling, softmax, reductions, movement and the like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from tests.forms.form import Form, Kind, few, maps_of, swapped

__all__ = ["OTHERS"]


def _unary(op_type: str, ranks: tuple[int, ...] = (2, 3, 4), **attributes: Any) -> Kind:
    def kind(form: Form) -> str | None:
        return form.op(op_type, "t", **attributes) if len(form.shape) in ranks else None

    return kind


def _pool(op_type: str, k: int = 3, **attributes: Any) -> Kind:
    def kind(form: Form) -> str | None:
        if maps_of(form) is None:
            return None
        return form.op(op_type, "t", kernel_shape=[k, k], pads=[k // 2] * 4, **attributes)

    return kind


def _transposed(form: Form) -> str | None:
    if form.shape[-1] != form.shape[-2]:
        return None
    return form.op("Transpose", "t", perm=swapped(form))


def _mean_variance_norm(form: Form) -> str | None:
    """Of one element a channel, onnxruntime gives NaN."""
    if (maps := maps_of(form)) is None or maps[0] * maps[2] * maps[3] == 1:
        return None
    return form.op("MeanVarianceNormalization", "t", axes=[0, 2, 3])


def _layer_norm(form: Form) -> str | None:
    count = form.shape[-1]
    return form.op("LayerNormalization", "t", form.scale(count), form.scale(count), axis=-1)


def _rms_norm(form: Form) -> str | None:
    """As exporters write it out."""
    mean = form.op("ReduceMean", form.op("Mul", "t", "t"), form.ints(-1))
    root = form.op("Sqrt", form.op("Add", mean, form.const(np.float32(1e-5))))
    return form.op("Mul", form.op("Div", "t", root), form.scale(form.shape[-1]))


def _channel_norm(op_type: str, **attributes: Any) -> Kind:
    def kind(form: Form) -> str | None:
        if len(form.shape) < 3:
            return None
        c = form.shape[1]
        return form.op(op_type, "t", form.scale(c), form.scale(c), **attributes)

    return kind


def _group_norm(form: Form) -> str | None:
    """As torch exports it."""
    if (maps := maps_of(form)) is None:
        return None
    c, groups = maps[1], few(maps[1])
    rows = form.op("Reshape", "t", form.ints(maps[0], groups, -1))
    ones, zeros = form.const(np.ones(groups, np.float32)), form.const(np.zeros(groups, np.float32))
    normal = form.op("Reshape", form.op("InstanceNormalization", rows, ones, zeros), form.ints(*maps))
    scale, bias = (form.scale(c, 1, 1) for _ in range(2))
    return form.op("Add", form.op("Mul", normal, scale), bias)


def _batch_norm(form: Form) -> str | None:
    if len(form.shape) < 3:
        return None
    c = form.shape[1]
    return form.op("BatchNormalization", "t", *(form.scale(c) for _ in range(3)), form.const(np.ones(c, np.float32)))


def _batch_norm_fed(form: Form) -> str | None:
    """Statistics that the GPU computes."""
    if (maps := maps_of(form)) is None:
        return None
    mean = form.op("ReduceMean", "t", form.ints(0, 2, 3), keepdims=0)
    scale, bias, variance = (form.scale(maps[1]) for _ in range(3))
    return form.op("BatchNormalization", "t", scale, bias, mean, variance)


def _cumulative(axis: int, **attributes: int) -> Kind:
    def kind(form: Form) -> str | None:
        scaled = 1 / form.shape[axis]
        y = form.op("CumSum", "t", form.const(np.int64(axis)), **attributes)
        return form.op("Mul", y, form.const(np.float32(scaled)))

    return kind


def _flip(axis: int) -> Kind:
    def kind(form: Form) -> str | None:
        return form.op("Slice", "t", form.ints(-1), form.ints(-(1 << 31)), form.ints(axis), form.ints(-1))

    return kind


def _roll(axis: int) -> Kind:
    def kind(form: Form) -> str | None:
        ends, axes = form.ints(1 << 31), form.ints(axis)
        back = form.op("Slice", "t", form.ints(1), ends, axes)
        front = form.op("Slice", "t", form.ints(0), form.ints(1), axes)
        return form.op("Concat", back, front, axis=axis)

    return kind


def _halves(form: Form) -> str | None:
    """Split in two along the last axis, exchanged, one of them negated: rotary positions."""
    last = form.shape[-1]
    if last < 2:
        return None
    first = form.op("Split", "t", form.ints(last // 2, last - last // 2), axis=-1, outputs=2)
    return form.op("Concat", form.op("Neg", first.replace("_0", "_1")), first, axis=-1)


def _reduced(op_type: str, *axes: int) -> Kind:
    """A reduction, broadcast back by an expansion."""

    def kind(form: Form) -> str | None:
        if any(not -len(form.shape) <= axis < len(form.shape) for axis in axes):
            return None
        y = form.op(op_type, "t", form.ints(*axes), keepdims=1)
        return form.op("Expand", y, form.ints(*form.shape))

    return kind


def _centred(form: Form) -> str | None:
    """The reduction broadcasts by itself."""
    return form.op("Sub", "t", form.op("ReduceMean", "t", form.ints(-1), keepdims=1))


def _squeeze_excite(form: Form) -> str | None:
    if (maps := maps_of(form)) is None:
        return None
    w = form.weight(maps[1], maps[1], 1, 1)
    gate = form.op("Sigmoid", form.op("Conv", form.op("GlobalAveragePool", "t"), w))
    return form.op("Mul", gate, "t")


def _gather(axis: int) -> Kind:
    def kind(form: Form) -> str | None:
        order = np.random.default_rng(5).permutation(form.shape[axis]).astype(np.int64)
        return form.op("Gather", "t", form.const(order), axis=axis)

    return kind


def _gather_elements(form: Form) -> str | None:
    order = np.random.default_rng(6).integers(0, form.shape[-1], form.shape)
    return form.op("GatherElements", "t", form.const(order), axis=-1)


def _scatter(form: Form) -> str | None:
    """The last two rows of the first dimension but one are replaced by its first two."""
    rank, rows = len(form.shape), form.shape[-2]
    if rows < 2:
        return None
    to_front = [rank - 2, *range(rank - 2), rank - 1]
    moved = form.op("Transpose", "t", perm=to_front)
    first = form.op("Slice", "t", form.ints(0), form.ints(2), form.ints(-2))
    updates = form.op("Transpose", first, perm=to_front)
    made = form.op("ScatterND", moved, form.const(np.array([[rows - 1], [rows - 2]], np.int64)), updates)
    return form.op("Transpose", made, perm=[*range(1, rank - 1), 0, rank - 1])


def _pad_slice(form: Form) -> str | None:
    rank = len(form.shape)
    if form.shape[-1] < 3:
        return None
    padded = form.op("Pad", "t", form.ints(*[0] * (rank - 1), 2, *[0] * rank), mode="reflect")
    return form.op("Slice", padded, form.ints(0), form.ints(form.shape[-1]), form.ints(-1))


def _tile_slice(form: Form) -> str | None:
    tiled = form.op("Tile", "t", form.ints(*[1] * (len(form.shape) - 1), 2))
    return form.op("Slice", tiled, form.ints(1), form.ints(form.shape[-1] + 1), form.ints(-1))


def _depth_space(form: Form) -> str | None:
    if (maps := maps_of(form)) is None or maps[1] % 4:
        return None
    wide = form.op("DepthToSpace", "t", blocksize=2, mode="CRD")
    return form.op("SpaceToDepth", wide, blocksize=2)


def _resize(mode: str) -> Kind:
    def kind(form: Form) -> str | None:
        if (maps := maps_of(form)) is None:
            return None
        n, c, h, w = maps
        half = form.op("Resize", "t", "", "", form.ints(n, c, (h + 1) // 2, (w + 1) // 2), mode=mode)
        return form.op("Resize", half, "", "", form.ints(*maps), mode=mode)

    return kind


def _sorted(form: Form) -> str | None:
    return form.op("TopK", "t", form.ints(form.shape[-1]), axis=-1, outputs=2) if form.shape[-1] <= 512 else None


def _where(form: Form) -> str | None:
    flipped = form.op("Slice", "t", form.ints(-1), form.ints(-(1 << 31)), form.ints(-1), form.ints(-1))
    return form.op("Where", form.op("Greater", "t", flipped), "t", flipped)


def _cast_back(form: Form) -> str | None:
    form.atol = 1e-3  # a float16 below 1 is rounded by up to a quarter of this
    return form.op("Cast", form.op("Cast", "t", to=onnx.TensorProto.FLOAT16), to=onnx.TensorProto.FLOAT)


def _recurrent(op_type: str, gates: int) -> Kind:
    def kind(form: Form) -> str | None:
        if len(form.shape) != 3 or form.shape[2] > 80:
            return None
        length, batch, c = form.shape
        w, r = form.weight(1, gates * c, c), form.weight(1, gates * c, c)
        y = form.op(op_type, "t", w, r, hidden_size=c)
        return form.op("Reshape", y, form.ints(length, batch, c))

    return kind


def _dft(form: Form) -> str | None:
    """Real parts of a discrete Fourier transform."""
    if len(form.shape) != 3 or form.shape[1] > 64:
        return None
    n, length, c = form.shape
    y = form.op("DFT", form.op("Reshape", "t", form.ints(n, length, c, 1)), "", form.const(np.int64(1)))
    real = form.op("Slice", y, form.ints(0), form.ints(1), form.ints(3))
    return form.op("Mul", form.op("Reshape", real, form.ints(*form.shape)), form.const(np.float32(0.1)))


OTHERS: Mapping[str, Kind] = {
    "transpose": _transposed,
    "max pool": _pool("MaxPool"),
    "average pool": _pool("AveragePool", count_include_pad=1),
    "lp pool": _pool("LpPool", p=2),
    "lrn": _unary("LRN", (4,), size=5),
    "softmax last": _unary("Softmax", axis=-1),
    "softmax first": _unary("Softmax", axis=0),
    "softmax middle": _unary("Softmax", axis=1),
    "log softmax": _unary("LogSoftmax", axis=-1),
    "log softmax middle": _unary("LogSoftmax", axis=-2),
    "hardmax": _unary("Hardmax", axis=-1),
    "lp norm": _unary("LpNormalization", axis=-1, p=2),
    "lp norm middle": _unary("LpNormalization", axis=1, p=1),
    "mean variance norm": _mean_variance_norm,
    "layer norm": _layer_norm,
    "rms norm": _rms_norm,
    "instance norm": _channel_norm("InstanceNormalization"),
    "group norm": _group_norm,
    "batch norm": _batch_norm,
    "batch norm fed": _batch_norm_fed,
    "cumulative sum last": _cumulative(-1),
    "cumulative sum first": _cumulative(0, reverse=1),
    "cumulative sum middle": _cumulative(-2, exclusive=1),
    "flip last": _flip(-1),
    "flip middle": _flip(-2),
    "roll last": _roll(-1),
    "roll middle": _roll(1),
    "halves exchanged": _halves,
    "mean expanded": _reduced("ReduceMean", -1),
    "sum of squares expanded": _reduced("ReduceSumSquare", -2, -1),
    "max expanded": _reduced("ReduceMax", 0),
    "centred": _centred,
    "squeeze and excite": _squeeze_excite,
    "gather last": _gather(-1),
    "gather middle": _gather(1),
    "gather elements": _gather_elements,
    "scatter rows": _scatter,
    "pad and slice": _pad_slice,
    "tile and slice": _tile_slice,
    "depth to space and back": _depth_space,
    "resize nearest": _resize("nearest"),
    "resize linear": _resize("linear"),
    "sorted": _sorted,
    "where": _where,
    "cast and back": _cast_back,
    "lstm": _recurrent("LSTM", 4),
    "gru": _recurrent("GRU", 3),
    "fourier": _dft,
}
