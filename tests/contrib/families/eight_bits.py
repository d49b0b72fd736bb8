"""Operators on tensors of 8 bits.

Scales are powers of two where onnxruntime multiplies by quotients of scales, so that roundings are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.oracle import ort_run


def one(rng: np.random.Generator, *choices: Any) -> Any:
    """One of these."""
    return choices[rng.integers(len(choices))]


def whole(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Random numbers of an integer type."""
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def shape(rng: np.random.Generator, most: int = 4) -> tuple[int, ...]:
    return tuple(int(d) for d in rng.integers(1, 7, rng.integers(1, most + 1)))


def power(rng: np.random.Generator) -> Array:
    return np.array(2.0 ** rng.integers(-7, 1), np.float32)


def scale_and_zero(rng: np.random.Generator, dtype: Any, optional: bool = True) -> list[Array | None]:
    """onnxruntime takes an absent zero point in some places only; elsewhere it refuses, or ends the process: see
    `with_zeros`."""
    return [power(rng), None if optional and rng.random() < 0.3 else whole(rng, dtype)]


def trimmed(inputs: list[Array | None]) -> list[Array | None]:
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def draw_binary(name: str) -> Draw:
    def draw(rng: np.random.Generator) -> Case:
        dtype = one(rng, np.uint8, np.int8)
        left = shape(rng)
        right = tuple(d if rng.random() < 0.7 else 1 for d in left)[rng.integers(0, len(left)) :]
        a, b = (whole(rng, dtype, *s) for s in (left, right))
        sides = [
            a,
            *scale_and_zero(rng, dtype),
            b,
            *scale_and_zero(rng, dtype),
            *scale_and_zero(rng, dtype),
        ]
        return Case(name, trimmed(sides), reference=with_zeros(name, dtype, (2, 5, 7)))

    return draw


def with_zeros(name: str, dtype: Any, places: Sequence[int], **attributes: Any) -> Callable[..., tuple[Array, ...]]:
    """onnxruntime's results, an absent zero point being a zero."""

    def reference(*inputs: Any) -> tuple[Array, ...]:
        given = [*inputs, *[None] * (max(places) + 1 - len(inputs))]
        given = [np.zeros((), dtype) if x is None and i in places else x for i, x in enumerate(given)]
        return tuple(ort_run(name, given, 21, 1, "com.microsoft", **attributes))

    return reference


def draw_unary(name: str, *alphas: float) -> Draw:
    def draw(rng: np.random.Generator) -> Case:
        dtype = one(rng, np.uint8, np.int8)
        inputs = [whole(rng, dtype, *shape(rng)), *scale_and_zero(rng, dtype), *scale_and_zero(rng, dtype)]
        attributes = {"alpha": one(rng, *alphas)} if alphas and rng.random() < 0.8 else {}
        return Case(name, trimmed(inputs), 1, attributes, reference=with_zeros(name, dtype, (2, 4), **attributes))

    return draw


def draw_softmax(rng: np.random.Generator) -> Case:
    """onnxruntime's CPU sums integers of a table: its results differ by one here and there."""
    dtype = one(rng, np.uint8, np.int8)
    x = whole(rng, dtype, *shape(rng, 3))
    axis, opset = int(rng.integers(-x.ndim, x.ndim)), one(rng, 12, 13)
    x_scale, x_zero = np.array(rng.uniform(0.005, 0.1), np.float32), scale_and_zero(rng, dtype)[1]
    y_scale, y_zero = np.array(1 / 256, np.float32), np.array(np.iinfo(dtype).min, dtype)

    def reference(*_: Array) -> tuple[Array, ...]:
        value = (x.astype(float) - (0 if x_zero is None else float(x_zero))) * float(x_scale)
        flat = value.reshape(int(np.prod(x.shape[: axis % x.ndim])), -1) if opset < 13 else np.moveaxis(value, axis, -1)
        powers = np.exp(flat - flat.max(-1, keepdims=True))
        y = powers / powers.sum(-1, keepdims=True)
        y = y.reshape(x.shape) if opset < 13 else np.moveaxis(y, -1, axis)
        limits = np.iinfo(dtype)
        return (np.clip(np.rint(y * 256) + float(y_zero), limits.min, limits.max).astype(dtype),)

    inputs: list[Array | None] = [x, x_scale, x_zero, y_scale, y_zero]
    return Case("QLinearSoftmax", inputs, attributes={"axis": axis, "opset": opset}, reference=reference)


def draw_reduce_mean(rng: np.random.Generator) -> Case:
    """Axes of one, two or four elements, so that means are exact. onnxruntime's CPU has no kernel for it."""
    dtype, rank = one(rng, np.uint8, np.int8), int(rng.integers(1, 5))
    x = whole(rng, dtype, *(int(d) for d in 2 ** rng.integers(0, 3, rank)))
    axes = sorted(int(a) for a in rng.choice(rank, rng.integers(1, rank + 1), replace=False))
    keepdims, (x_scale, x_zero) = int(rng.integers(2)), scale_and_zero(rng, dtype)
    y_scale, y_zero = scale_and_zero(rng, dtype)

    def reference(*_: Array) -> tuple[Array, ...]:
        assert x_scale is not None and y_scale is not None
        value = (x.astype(float) - (0 if x_zero is None else float(x_zero))) * float(x_scale)
        mean = value.mean(tuple(axes), keepdims=bool(keepdims)) / float(y_scale)
        limits = np.iinfo(dtype)
        y = np.rint(mean) + (0 if y_zero is None else float(y_zero))
        return (np.clip(y, limits.min, limits.max).astype(dtype),)

    attributes = {"axes": [a - rank * int(rng.integers(2)) for a in axes], "keepdims": keepdims}
    inputs = trimmed([x, x_scale, x_zero, y_scale, y_zero])
    return Case("QLinearReduceMean", inputs, attributes=attributes, reference=reference)


def draw_concat(rng: np.random.Generator) -> Case:
    dtype, dims = one(rng, np.uint8, np.int8), shape(rng)
    axis = int(rng.integers(len(dims)))
    inputs = scale_and_zero(rng, dtype, False)
    for _ in range(rng.integers(1, 4)):
        part = (*dims[:axis], int(rng.integers(1, 6)), *dims[axis + 1 :])
        inputs += [whole(rng, dtype, *part), *scale_and_zero(rng, dtype, False)]
    return Case("QLinearConcat", inputs, attributes={"axis": axis})


def draw_where(rng: np.random.Generator) -> Case:
    dtype, dims = one(rng, np.uint8, np.int8), shape(rng)
    inputs: list[Array | None] = [rng.random(dims) < 0.5]
    for _ in range(2):
        inputs += [whole(rng, dtype, *dims), *scale_and_zero(rng, dtype, False)]
    return Case("QLinearWhere", [*inputs, *scale_and_zero(rng, dtype, False)])


def draw_average_pool(rng: np.random.Generator) -> Case:
    """Windows of a power of two elements, also at edges, so that means are exact."""
    last, dtype = int(rng.random() < 0.4), one(rng, np.uint8, np.int8)
    x = whole(rng, dtype, 2, *((9, 8, 3) if last else (3, 9, 8)))
    kernel = one(rng, [2, 2], [1, 2], [2, 1], [1, 1])
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [int(s) for s in rng.integers(1, 3, 2)]}
    if rng.random() < 0.3:
        attributes["auto_pad"] = one(rng, "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    else:
        attributes["pads"] = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
        attributes["ceil_mode"] = int(rng.random() < 0.4)
    more = {"channels_last": last, "count_include_pad": int(rng.random() < 0.5)}
    inputs = trimmed([x, *scale_and_zero(rng, dtype), *scale_and_zero(rng, dtype)])
    reference = with_zeros("QLinearAveragePool", dtype, (2, 4), **attributes, **more)
    return Case("QLinearAveragePool", inputs, attributes={**attributes, **more}, reference=reference)


def draw_global_pool(rng: np.random.Generator) -> Case:
    dtype, last = one(rng, np.uint8, np.int8), int(rng.random() < 0.4)
    x = whole(rng, dtype, 2, *((4, 8, 3) if last else (3, 4, 8)))
    inputs = [x, *scale_and_zero(rng, dtype, False), *scale_and_zero(rng, dtype, False)]
    return Case("QLinearGlobalAveragePool", inputs, attributes={"channels_last": last})


def columns(rng: np.random.Generator, n: int) -> tuple[Array, tuple[int, ...]]:
    """Scales of a right matrix, and the shape of its zero points."""
    dims: tuple[int, ...] = (n,) if rng.random() < 0.5 else ()
    return rng.uniform(0.01, 0.1, dims).astype(np.float32), dims


def draw_dynamic(rng: np.random.Generator) -> Case:
    m, k, n = (int(d) for d in rng.integers(1, 40, 3))
    dtype = one(rng, np.uint8, np.int8)
    scales, dims = columns(rng, n)
    # Eighths up to a range of 255 / 8 make the scale of a exact, and its quantisation with it.
    a = rng.integers(-128, 128, (*shape(rng, 1), m, k)) / 8
    a.reshape(-1)[[0, -1]] = (-16, 15.875) if a.size > 1 else 0
    zero = whole(rng, dtype, *dims) if rng.random() < 0.6 else None
    bias = rng.standard_normal(n).astype(np.float32) if rng.random() < 0.5 else None
    inputs = [a.astype(np.float32), whole(rng, dtype, k, n), scales, zero, bias]
    return Case("DynamicQuantizeMatMul", trimmed(inputs), tolerance=(1e-4, 1e-3))


def draw_to_float(rng: np.random.Generator) -> Case:
    m, k, n = (int(d) for d in rng.integers(1, 40, 3))
    left, right = one(rng, (np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8))
    scales, dims = columns(rng, n)
    a_zero = whole(rng, left) if rng.random() < 0.6 else None
    zero = whole(rng, right, *dims) if rng.random() < 0.6 else None
    bias = rng.standard_normal(n).astype(np.float32) if rng.random() < 0.5 else None
    scale = np.array(rng.uniform(0.01, 0.1), np.float32)
    inputs = [whole(rng, left, m, k), whole(rng, right, k, n), scale, scales, a_zero, zero, bias]
    return Case("MatMulIntegerToFloat", trimmed(inputs), tolerance=(1e-4, 1e-3))


def draw_gemm(rng: np.random.Generator) -> Case:
    m, k, n = (int(d) for d in rng.integers(1, 30, 3))
    dtype = one(rng, np.uint8, np.int8)
    turned_a, turned_b = int(rng.random() < 0.5), int(rng.random() < 0.5)
    dims: tuple[int, ...] = (n,) if rng.random() < 0.5 else ()
    b_scale = np.broadcast_to(power(rng), dims).copy()
    c = rng.integers(-5000, 5000, one(rng, (n,), (m, n), (1, n), (m, 1), (1,))).astype(np.int32)
    a, b = whole(rng, dtype, *((k, m) if turned_a else (m, k))), whole(rng, dtype, *((n, k) if turned_b else (k, n)))
    inputs = [a, power(rng), whole(rng, dtype), b, b_scale, whole(rng, dtype, *dims), c if rng.random() < 0.7 else None]
    if rng.random() < 0.6:
        inputs += [np.array(64.0, np.float32), whole(rng, dtype)]
    attributes = {"alpha": one(rng, 1.0, 0.5), "transA": turned_a, "transB": turned_b}
    return Case("QGemm", trimmed(inputs), attributes=attributes)


def draw_mul_integer(rng: np.random.Generator) -> Case:
    dtype, dims = one(rng, np.uint8, np.int8), shape(rng)
    a, b = whole(rng, dtype, *dims), whole(rng, dtype, *dims[-1:])
    zeros = [whole(rng, dtype) if rng.random() < 0.7 else None for _ in range(2)]

    def reference(*_: Array) -> tuple[Array, ...]:
        sides = [x.astype(np.int32) - (0 if z is None else int(z)) for x, z in zip((a, b), zeros, strict=True)]
        return ((sides[0] * sides[1]).astype(np.int32),)

    return Case("MulInteger", trimmed([a, zeros[0], b, zeros[1]]), reference=reference)


def draw_quantize(rng: np.random.Generator) -> Case:
    """onnxruntime's Python takes and gives no tensors of 4 bits."""
    dtype = one(rng, np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.int4, ml_dtypes.uint4)
    x = (rng.standard_normal((3, 4, 5)) * 20).astype(np.float32)
    axis = int(rng.integers(-3, 3))
    dims: tuple[int, ...] = (x.shape[axis],) if rng.random() < 0.5 else ()
    narrow = np.dtype(dtype).itemsize == 1 and dtype not in (np.uint8, np.int8)
    limits: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    zero = rng.integers(int(limits.min), int(limits.max) + 1, dims).astype(dtype)
    given = None if dtype is np.uint8 and rng.random() < 0.6 else zero
    scale = rng.uniform(0.1, 1, dims).astype(np.float32)

    def reference(*_: Array) -> tuple[Array, ...]:
        along = [-1 if i == axis % 3 else 1 for i in range(3)] if dims else []
        y = np.rint(x / scale.reshape(along)) + zero.astype(np.float32).reshape(along)
        return (np.clip(y, int(limits.min), int(limits.max)).astype(dtype),)

    own = reference if narrow else None
    return Case("QuantizeLinear", trimmed([x, scale, given]), attributes={"axis": axis}, reference=own)


def draw_dequantize(rng: np.random.Generator) -> Case:
    """onnxruntime's CPU has float32 alone, zero points of int32 must be zeros, its Python takes nothing of 4 bits."""
    dtype = one(rng, np.uint8, np.int8, np.uint16, np.int16, np.int32, ml_dtypes.int4, ml_dtypes.uint4)
    axis = int(rng.integers(-3, 3))
    limits: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    low, high = max(int(limits.min), -100000), min(int(limits.max), 100000)
    x = rng.integers(low, high + 1, (3, 4, 5)).astype(dtype)
    dims: tuple[int, ...] = (x.shape[axis],) if rng.random() < 0.5 else ()
    zero = rng.integers(low, high + 1, dims).astype(dtype) if dtype != np.int32 else np.zeros(dims, dtype)
    given = zero if rng.random() < 0.6 else None
    scale = rng.uniform(0.1, 1, dims).astype(np.float32)

    def reference(*_: Array) -> tuple[Array, ...]:
        along = [-1 if i == axis % 3 else 1 for i in range(3)] if dims else []
        y = x.astype(np.float32) - (0 if given is None else zero.astype(np.float32).reshape(along))
        return ((y * scale.reshape(along)).astype(np.float32),)

    own = reference if dtype in (ml_dtypes.int4, ml_dtypes.uint4) else None
    return Case("DequantizeLinear", trimmed([x, scale, given]), attributes={"axis": axis}, reference=own)


def draw_conv(rng: np.random.Generator) -> Case:
    last, dtype = int(rng.random() < 0.6), one(rng, np.uint8, np.int8)
    kind = np.int8 if dtype == np.int8 else one(rng, np.uint8, np.int8)
    group = one(rng, 1, 1, 2, 4)
    rank = int(rng.integers(1, 4))
    channels, maps = 4, 4 * int(rng.integers(1, 4))
    spatial = [int(d) for d in rng.integers(5, 9, rank)]
    kernel = [int(d) for d in rng.integers(1, 4, rank)]
    x = whole(rng, dtype, 2, *((*spatial, channels) if last else (channels, *spatial)))
    w = whole(rng, kind, maps, channels // group, *kernel)
    dims: tuple[int, ...] = (maps,) if rng.random() < 0.5 else ()
    w_zero = np.zeros(dims, kind) if kind == np.int8 else np.broadcast_to(whole(rng, kind), dims).copy()
    w_scale = np.asarray(2.0 ** rng.integers(-7, 1, dims), np.float32)
    bias = rng.integers(-9999, 9999, maps).astype(np.int32) if rng.random() < 0.6 else None
    inputs = [x, power(rng), whole(rng, dtype), w, w_scale, w_zero, np.array(64.0, np.float32), whole(rng, dtype), bias]
    attributes: dict[str, Any] = {"channels_last": last, "group": group, "strides": [int(rng.integers(1, 3))] * rank}
    attributes |= {"kernel_shape": kernel} if rng.random() < 0.5 else {}
    if rng.random() < 0.3:
        attributes["auto_pad"] = one(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        attributes["pads"] = [int(n) for n in rng.integers(0, 2, 2 * rank)]
        attributes["dilations"] = [int(rng.integers(1, 3))] * rank
    return Case("QLinearConv", trimmed(inputs), attributes=attributes)


def draw_lstm(rng: np.random.Generator) -> Case:
    """A zero point a direction, 0 for columns of int8: onnxruntime refuses others."""
    time, batch, width, units = (int(d) for d in rng.integers(1, 9, 4))
    direction = one(rng, "forward", "reverse", "bidirectional")
    d, dtype = 1 + (direction == "bidirectional"), one(rng, np.uint8, np.int8)
    dims = (d, 4 * units) if rng.random() < 0.5 else (d,)
    sides: list[Any] = []
    for rows in (width, units):
        zero = np.full(dims, whole(rng, dtype) if dtype == np.uint8 else 0, dtype)
        sides.append((whole(rng, dtype, d, rows, 4 * units), rng.uniform(0.001, 0.01, dims).astype(np.float32), zero))

    def normal(*dims: int) -> Array | None:
        return rng.standard_normal(dims).astype(np.float32) if rng.random() < 0.6 else None

    b, h, c = normal(d, 8 * units), normal(d, batch, units), normal(d, batch, units)
    p = normal(d, 3 * units)
    lens = rng.integers(1, time + 1, batch).astype(np.int32) if rng.random() < 0.4 else None
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": units}
    attributes |= {"clip": 2.0} if rng.random() < 0.3 else {}
    attributes |= {"input_forget": 1} if rng.random() < 0.2 else {}
    if rng.random() < 0.4:
        attributes["activations"] = ["HardSigmoid", "Tanh", "LeakyRelu"] * d
        attributes |= {"activation_alpha": [0.3, 0.1] * d, "activation_beta": [0.4] * d}
    x = rng.standard_normal((time, batch, width)).astype(np.float32)

    (w, w_scale, w_zero), (r, r_scale, r_zero) = sides
    inputs = [x, w, r, b, lens, h, c, p, w_scale, w_zero, r_scale, r_zero]
    return Case("DynamicQuantizeLSTM", inputs, 3, attributes)


def draw_embedding(rng: np.random.Generator) -> Case:
    batch, length, width = (int(d) for d in rng.integers(1, 7, 3))
    width, dtype = 8 * width, one(rng, np.uint8, np.int8)
    ids = rng.integers(0, 11, (batch, length)).astype(np.int32)
    kinds = rng.integers(0, 2, (batch, length)).astype(np.int32) if rng.random() < 0.6 else None
    dims = ((11, width), (length + 2, width), (2, width), (width,), (width,))
    present = [True, True, kinds is not None, True, True]
    tables = [whole(rng, dtype, *d) if there else None for d, there in zip(dims, present, strict=True)]
    scales = [np.array(rng.uniform(0.01, 0.1), np.float32) if there else None for there in present]
    zeros = [whole(rng, dtype) if there else None for there in present]
    mask = None
    if rng.random() < 0.5:  # ones, then zeros
        mask = (np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype(np.int32)
    inputs = [ids, kinds, *tables, mask, *scales, *zeros]
    return Case("QEmbedLayerNormalization", inputs, 2, {"epsilon": one(rng, 1e-12, 1e-5, 0.1)}, tolerance=(1e-4, 1e-4))


DRAWS: dict[str, Draw] = {
    "QLinearAdd": draw_binary("QLinearAdd"),
    "QLinearMul": draw_binary("QLinearMul"),
    "QLinearSigmoid": draw_unary("QLinearSigmoid"),
    "QLinearLeakyRelu": draw_unary("QLinearLeakyRelu", 0.25, 0.5, -0.125),
    "QLinearSoftmax": draw_softmax,
    "QLinearReduceMean": draw_reduce_mean,
    "QLinearConcat": draw_concat,
    "QLinearWhere": draw_where,
    "QLinearAveragePool": draw_average_pool,
    "QLinearGlobalAveragePool": draw_global_pool,
    "QLinearConv": draw_conv,
    "DynamicQuantizeMatMul": draw_dynamic,
    "DynamicQuantizeLSTM": draw_lstm,
    "QEmbedLayerNormalization": draw_embedding,
    "MatMulIntegerToFloat": draw_to_float,
    "QGemm": draw_gemm,
    "MulInteger": draw_mul_integer,
    "QuantizeLinear": draw_quantize,
    "DequantizeLinear": draw_dequantize,
}
