"""Models y = act(f(t) op t), t = tanh(x): an operator's own input is the residual that is fused behind it.

Every kind of operator that keeps a shape is an f here. A plan that lets y take t's memory is right only where the
kernel of f reads of t nothing but what it then overwrites.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["ACTS", "KINDS", "OPS", "SIZES", "Form", "forms"]

Shape = tuple[int, ...]
OPS = ("Add", "Mul", "Sub", "from", "Where")
"""'from' is Sub with t in front; 'Where' reads t three times: t > 0 ? f(t) t : t."""
ACTS = ("Relu", "", "Sigmoid", "HardSwish")
SIZES: tuple[Shape, ...] = (
    (1, 8, 13, 13),
    (1, 32, 28, 28),
    (1, 64, 56, 56),
    (2, 7, 33, 33),
    (3, 6, 5, 7),
    (1, 256, 7, 7),
    (1, 49, 65),
    (1, 196, 64),
    (64, 1024),
    (300, 301),
    (3, 67),
    (1, 128, 60, 60),
    (2, 4, 80, 131),
    (1, 2, 128, 81),
)
"""Last dimensions that are whole groups of four and such that are not, tiles that are cut and such that are not."""
MOST_WEIGHTS = 1 << 20
OPSETS = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]


@dataclass
class Form:
    """One model under construction.

    Attributes:
        shape: of t, of f(t) and of y.
        name: kind, shape, operator and activation.
        atol: by how much results may differ.
    """

    shape: Shape
    name: str = ""
    atol: float = 1e-4
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A node; its first output."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0]

    def const(self, value: Any) -> str:
        """An initializer of this value."""
        name = f"c{len(self.initializers)}"
        self.initializers[name] = np.asarray(value)
        return name

    def ints(self, *values: int) -> str:
        """An int64 vector."""
        return self.const(np.array(values, np.int64))

    def weight(self, *shape: int) -> str:
        """Numbers that keep a sum over all but the first dimension near 1."""
        rng = np.random.default_rng(len(self.initializers) + 17 * sum(shape))
        return self.const((rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))).astype(np.float32))

    def scale(self, *shape: int) -> str:
        """Numbers around 1."""
        return self.const((1 + np.random.default_rng(sum(shape)).standard_normal(shape) / 4).astype(np.float32))

    def finish(self, f: str, op: str, act: str) -> None:
        """y = act(f op t)."""
        if op == "Where":
            positive = self.op("Greater", "t", self.const(np.float32(0)))
            y = self.op("Where", positive, self.op("Mul", f, "t"), "t")
        else:
            y = self.op("Sub", "t", f) if op == "from" else self.op(op, f, "t")
        self.outputs = [self.op(act, y) if act else y]

    def model(self) -> bytes:
        """The model's bytes; its one input is x."""
        nodes = [helper.make_node("Tanh", ["x"], ["t"]), *self.nodes]
        graph = helper.make_graph(
            nodes,
            "form",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.shape)],
            [onnx.ValueInfoProto(name=name) for name in self.outputs],
            [numpy_helper.from_array(value, name) for name, value in self.initializers.items()],
        )
        model = helper.make_model(graph, opset_imports=OPSETS, ir_version=10)
        return bytes(model.SerializeToString())

    def feed(self) -> Any:
        """A value for x."""
        return np.random.default_rng(len(self.name)).standard_normal(self.shape).astype(np.float32)


Kind = Callable[[Form], str | None]
"""Adds f to a form and gives its result's name; None where the shape does not fit."""


def _maps(form: Form) -> Shape | None:
    """The shape of pictures."""
    return form.shape if len(form.shape) == 4 else None


def _convolution(k: int, groups: Callable[[int], int], bias: bool = False, dilation: int = 1) -> Kind:
    def kind(form: Form) -> str | None:
        if (maps := _maps(form)) is None or maps[1] * maps[1] // groups(maps[1]) * k * k > MOST_WEIGHTS:
            return None
        c, group, pad = maps[1], groups(maps[1]), dilation * (k // 2)
        inputs = ["t", form.weight(c, c // group, k, k), *([form.scale(c)] if bias else [])]
        return form.op("Conv", *inputs, kernel_shape=[k, k], pads=[pad] * 4, group=group, dilations=[dilation] * 2)

    return kind


def _one(channels: int) -> int:
    return 1


def _each(channels: int) -> int:
    return channels


def _some(channels: int) -> int:
    """Groups of a few channels."""
    return next(g for g in (channels // 4, channels // 2, channels // 3, 1) if g and channels % g == 0)


def _few(channels: int) -> int:
    """Few groups of many channels."""
    return next(g for g in (2, 3, 7, 1) if channels % g == 0)


def _conv_1d(form: Form) -> str | None:
    if len(form.shape) != 3:
        return None
    c = form.shape[1]
    return form.op("Conv", "t", form.weight(c, c, 3), kernel_shape=[3], pads=[1, 1])


def _conv_1d_flat(form: Form) -> str | None:
    if (maps := _maps(form)) is None:
        return None
    n, c, h, w = maps
    flat = form.op("Reshape", "t", form.ints(n, c, h * w))
    y = form.op("Conv", flat, form.weight(c, 1, 5), kernel_shape=[5], pads=[2, 2], group=c)
    return form.op("Reshape", y, form.ints(*maps))


def _conv_3d(form: Form) -> str | None:
    if (maps := _maps(form)) is None or math.prod(maps) > 1 << 17:
        return None
    n, c, h, w = maps
    deep = form.op("Reshape", "t", form.ints(n, 1, c, h, w))
    y = form.op("Conv", deep, form.weight(1, 1, 3, 3, 3), kernel_shape=[3] * 3, pads=[1] * 6)
    return form.op("Reshape", y, form.ints(*maps))


def _conv_transpose(groups: Callable[[int], int]) -> Kind:
    def kind(form: Form) -> str | None:
        if (maps := _maps(form)) is None or maps[1] > 64:
            return None
        c, group = maps[1], groups(maps[1])
        w = form.weight(c, c // group, 3, 3)
        return form.op("ConvTranspose", "t", w, kernel_shape=[3, 3], pads=[1] * 4, group=group)

    return kind


def _matmul(form: Form) -> str | None:
    k = form.shape[-1]
    return form.op("MatMul", "t", form.weight(k, k)) if k * k <= MOST_WEIGHTS else None


def _matmul_left(form: Form) -> str | None:
    k = form.shape[-2]
    return form.op("MatMul", form.weight(k, k), "t") if k * k <= MOST_WEIGHTS else None


def _matmul_fed(form: Form) -> str | None:
    """By a product of t: no operand is constant."""
    squares = form.op("MatMul", form.op("Transpose", "t", perm=_swapped(form)), "t")
    scaled = form.op("Mul", squares, form.const(np.float32(1 / math.prod(form.shape[-2:]) ** 0.5)))
    return form.op("MatMul", "t", scaled)


def _swapped(form: Form) -> list[int]:
    rank = len(form.shape)
    return [*range(rank - 2), rank - 1, rank - 2]


def _self_attention_bare(form: Form) -> str | None:
    """(t tᵀ) t."""
    square = form.op("MatMul", "t", form.op("Transpose", "t", perm=_swapped(form)))
    return form.op("MatMul", form.op("Mul", square, form.const(np.float32(0.02))), "t")


def _matmul_norm(form: Form) -> str | None:
    """The norm of t W + t, as in transformers."""
    k = form.shape[-1]
    if k * k > MOST_WEIGHTS:
        return None
    h = form.op("Add", form.op("MatMul", "t", form.weight(k, k)), "t")
    return form.op("LayerNormalization", h, form.scale(k), form.scale(k), axis=-1)


def _square_by_itself(form: Form) -> str | None:
    if form.shape[-1] != form.shape[-2]:
        return None
    return form.op("Mul", form.op("MatMul", "t", "t"), form.const(np.float32(0.1)))


def _few_rows(form: Form) -> int:
    """The most rows, eight or less, that t can be cut into; 0 where they are too long."""
    count = math.prod(form.shape)
    return next((r for r in (8, 7, 6, 4, 3, 2, 1) if count % r == 0 and (count // r) ** 2 <= MOST_WEIGHTS), 0)


def _matmul_few_rows(form: Form) -> str | None:
    count, rows = math.prod(form.shape), _few_rows(form)
    if not rows:
        return None
    flat = form.op("Reshape", "t", form.ints(rows, count // rows))
    y = form.op("MatMul", flat, form.weight(count // rows, count // rows))
    return form.op("Reshape", y, form.ints(*form.shape))


def _packed(form: Form, value: str, k: int, bits: int, block: int) -> str:
    """value Wᵀ, the square W packed in `bits` bits."""
    rng, blocks = np.random.default_rng(k + bits), -(-k // block)
    data = rng.integers(0, 256, (k, blocks, block * bits // 8)).astype(np.uint8)
    scales = (rng.uniform(0.5, 1.5, (k, blocks)) * (2 / 2**bits / math.sqrt(k))).astype(np.float32)
    more: dict[str, Any] = {"K": k, "N": k, "bits": bits, "block_size": block, "domain": "com.microsoft"}
    return form.op("MatMulNBits", value, form.const(data), form.const(scales), **more)


def _matmul_packed(bits: int, block: int) -> Kind:
    def kind(form: Form) -> str | None:
        return _packed(form, "t", form.shape[-1], bits, block) if form.shape[-1] ** 2 <= MOST_WEIGHTS else None

    return kind


def _matmul_packed_few_rows(form: Form) -> str | None:
    count, rows = math.prod(form.shape), _few_rows(form)
    if not rows:
        return None
    flat = form.op("Reshape", "t", form.ints(rows, count // rows))
    return form.op("Reshape", _packed(form, flat, count // rows, 4, 32), form.ints(*form.shape))


def _gemm(form: Form) -> str | None:
    if len(form.shape) != 2 or form.shape[1] ** 2 > MOST_WEIGHTS:
        return None
    return form.op("Gemm", "t", form.weight(form.shape[1], form.shape[1]), form.scale(form.shape[1]), transB=1)


def _gemm_onto_itself(form: Form) -> str | None:
    """α t Wᵀ + β t."""
    if len(form.shape) != 2 or form.shape[1] ** 2 > MOST_WEIGHTS:
        return None
    return form.op("Gemm", "t", form.weight(form.shape[1], form.shape[1]), "t", transB=1, alpha=0.5, beta=0.75)


def _einsum(form: Form) -> str | None:
    k = form.shape[-1]
    return form.op("Einsum", "t", form.weight(k, k), equation="...i,ij->...j") if k * k <= MOST_WEIGHTS else None


def _channel_mix(form: Form) -> str | None:
    """Tokens and back: pictures as rows of channels, a product, pictures again."""
    if (maps := _maps(form)) is None:
        return None
    n, c, h, w = maps
    tokens = form.op("Transpose", form.op("Reshape", "t", form.ints(n, c, h * w)), perm=[0, 2, 1])
    y = form.op("MatMul", tokens, form.weight(c, c))
    return form.op("Reshape", form.op("Transpose", y, perm=[0, 2, 1]), form.ints(*maps))


def _picture_of_tokens(form: Form) -> str | None:
    """Tokens as a picture, a depthwise convolution, tokens again: CoaT's positions."""
    if len(form.shape) != 3 or math.isqrt(form.shape[1]) ** 2 != form.shape[1]:
        return None
    n, length, c = form.shape
    side = math.isqrt(length)
    picture = form.op("Reshape", form.op("Transpose", "t", perm=[0, 2, 1]), form.ints(n, c, side, side))
    y = form.op("Conv", picture, form.weight(c, 1, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, group=c)
    return form.op("Transpose", form.op("Reshape", y, form.ints(n, c, length)), perm=[0, 2, 1])


def _attention(form: Form) -> str | None:
    """Over tokens, with t as query, key and value."""
    if len(form.shape) == 4:
        q = form.op("Reshape", "t", form.ints(form.shape[0] * form.shape[1], *form.shape[2:]))
    elif len(form.shape) == 3:
        q = "t"
    else:
        return None
    scores = form.op("MatMul", q, form.op("Transpose", q, perm=[0, 2, 1]))
    weights = form.op("Softmax", form.op("Mul", scores, form.const(np.float32(form.shape[-1] ** -0.5))), axis=-1)
    return form.op("Reshape", form.op("MatMul", weights, q), form.ints(*form.shape))


def _attention_fused(form: Form) -> str | None:
    if len(form.shape) != 3 or form.shape[2] % 4:
        return None
    return form.op("Attention", "t", "t", "t", q_num_heads=4, kv_num_heads=4)


def _unary(op_type: str, ranks: tuple[int, ...] = (2, 3, 4), **attributes: Any) -> Kind:
    def kind(form: Form) -> str | None:
        return form.op(op_type, "t", **attributes) if len(form.shape) in ranks else None

    return kind


def _pool(op_type: str, k: int = 3, **attributes: Any) -> Kind:
    def kind(form: Form) -> str | None:
        if _maps(form) is None:
            return None
        return form.op(op_type, "t", kernel_shape=[k, k], pads=[k // 2] * 4, **attributes)

    return kind


def _transposed(form: Form) -> str | None:
    if form.shape[-1] != form.shape[-2]:
        return None
    return form.op("Transpose", "t", perm=_swapped(form))


def _mean_variance_norm(form: Form) -> str | None:
    """Of one element a channel, onnxruntime gives NaN."""
    if (maps := _maps(form)) is None or maps[0] * maps[2] * maps[3] == 1:
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
    if (maps := _maps(form)) is None:
        return None
    c, groups = maps[1], _few(maps[1])
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
    if (maps := _maps(form)) is None:
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
    if (maps := _maps(form)) is None:
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
    if (maps := _maps(form)) is None or maps[1] % 4:
        return None
    wide = form.op("DepthToSpace", "t", blocksize=2, mode="CRD")
    return form.op("SpaceToDepth", wide, blocksize=2)


def _resize(mode: str) -> Kind:
    def kind(form: Form) -> str | None:
        if (maps := _maps(form)) is None:
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


KINDS: Mapping[str, Kind] = {
    "conv depthwise 3x3": _convolution(3, _each),
    "conv depthwise 5x5 biased": _convolution(5, _each, bias=True),
    "conv depthwise 7x7": _convolution(7, _each),
    "conv depthwise dilated": _convolution(3, _each, dilation=2),
    "conv 3x3": _convolution(3, _one),
    "conv 3x3 biased": _convolution(3, _one, bias=True),
    "conv 5x5 dilated": _convolution(5, _one, dilation=2),
    "conv 1x1": _convolution(1, _one),
    "conv 1x1 biased": _convolution(1, _one, bias=True),
    "conv few groups": _convolution(3, _few),
    "conv many groups": _convolution(3, _some),
    "conv 1x1 groups": _convolution(1, _few),
    "conv 1-D": _conv_1d,
    "conv 1-D of a view": _conv_1d_flat,
    "conv 3-D of a view": _conv_3d,
    "conv transpose": _conv_transpose(_one),
    "conv transpose depthwise": _conv_transpose(_each),
    "matmul": _matmul,
    "matmul from the left": _matmul_left,
    "matmul by its own squares": _matmul_fed,
    "matmul normalised": _matmul_norm,
    "matmul by itself": _square_by_itself,
    "matmul by itself twice": _self_attention_bare,
    "matmul of few rows of a view": _matmul_few_rows,
    "matmul packed in 4 bits": _matmul_packed(4, 32),
    "matmul packed in 8 bits": _matmul_packed(8, 16),
    "matmul packed of few rows of a view": _matmul_packed_few_rows,
    "gemm": _gemm,
    "gemm onto itself": _gemm_onto_itself,
    "einsum": _einsum,
    "tokens and back": _channel_mix,
    "picture of tokens and back": _picture_of_tokens,
    "attention": _attention,
    "attention of heads": _attention_fused,
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


def forms(size: Shape, ops: tuple[str, ...] = OPS) -> Iterator[Form]:
    """Every kind that fits `size`, with each operator; activations alternate."""
    for number, (kind, add) in enumerate(KINDS.items()):
        for turn, op in enumerate(ops):
            act = ACTS[(number + turn) % len(ACTS)]
            form = Form(size, f"{act or 'linear'}({kind} {op} t) of {'x'.join(map(str, size))}")
            f = add(form)
            if f is None:
                break
            form.finish(f, op, act)
            yield form
