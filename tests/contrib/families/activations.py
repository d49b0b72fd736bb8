"""Gelu and its kin, BiasAdd, BiasSoftmax. Sources: the operators' descriptions in onnxruntime's schemas."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import BFLOAT16, F16, F32, chance, floats, of, pick, shape_of


def gelu(x: Array) -> Array:
    result: Array = x * 0.5 * (1 + special.erf(x / np.sqrt(2)))
    return result


def gelu_tanh(x: Array) -> Array:
    result: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


def draw_gelu(rng: np.random.Generator) -> Case:
    return Case("Gelu", [floats(rng, shape_of(rng, 0, 4), pick(rng, F32, F16), 3)])


def draw_bias_gelu(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    x = floats(rng, shape_of(rng, 1, 4), dtype, 3)
    return Case("BiasGelu", [x, floats(rng, x.shape[-1:], dtype)])


def draw_fast_gelu(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16, BFLOAT16)
    x = floats(rng, shape_of(rng, 1, 4), dtype, 3)
    bias = floats(rng, x.shape[-1:], dtype) if chance(rng) else None

    def reference(x: Any, bias: Any = None) -> tuple[Array, ...]:
        total: Any = of(x) if bias is None else of(x) + of(bias)  # type: ignore[operator]
        return (gelu_tanh(total).astype(x.dtype),)

    return Case("FastGelu", [x, bias][: 1 + (bias is not None)], reference=reference if dtype == BFLOAT16 else None)


def draw_sigmoid_gelu(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16, BFLOAT16)
    alpha = float(pick(rng, 1.702, 1.0, 0.5, 3.0))
    x = floats(rng, shape_of(rng, 0, 4), dtype, 3)

    def reference(x: Any) -> tuple[Array, ...]:
        return ((of(x) / (1 + np.exp(-alpha * of(x)))).astype(x.dtype),)  # type: ignore[operator]

    attributes = {"alpha": alpha} if chance(rng) or alpha != 1.702 else {}
    return Case("QuickGelu", [x], attributes=attributes, reference=reference if dtype == BFLOAT16 else None)


def draw_bias_split_gelu(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    x = floats(rng, shape_of(rng, 3, 3, int(pick(rng, 2, 6, 8, 34, 64))), dtype, 2)

    def reference(x: Array, bias: Array) -> tuple[Array, ...]:
        total = (x + bias).astype(np.float64)
        half = total.shape[-1] // 2
        return ((total[..., :half] * gelu(total[..., half:])).astype(x.dtype),)

    tolerance = (4e-3, 4e-3) if dtype == F16 else None  # three roundings to float16
    return Case("BiasSplitGelu", [x, floats(rng, x.shape[-1:], dtype)], reference=reference, tolerance=tolerance)


def draw_scaled_silu(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    x = floats(rng, shape_of(rng, 1, 4), dtype, 2)
    scale = floats(rng, (), pick(rng, dtype, F32)) if chance(rng) else None
    return Case("ScaledSiLU", [x, scale][: 1 + (scale is not None)], attributes={"alpha": float(pick(rng, 1.0, 0.3))})


def draw_bias_add(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    x = floats(rng, shape_of(rng, 3, 3), dtype)

    def reference(x: Array, bias: Array, skip: Array) -> tuple[Array, ...]:
        return ((of(x) + of(bias) + of(skip)).astype(x.dtype),)  # type: ignore[operator]

    tolerance = (2e-3, 4e-3) if dtype == F16 else None
    inputs = [x, floats(rng, x.shape[-1:], dtype), floats(rng, x.shape, dtype)]
    return Case("BiasAdd", list(inputs), reference=reference, tolerance=tolerance)


def draw_bias_softmax(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    data = floats(rng, shape_of(rng, 2, 4), dtype)
    rank = data.ndim
    axis = int(rng.integers(1, rank))
    start = int(rng.integers(0, axis + 1))
    inner = chance(rng)
    if inner:  # dimensions start .. axis - 1 are repeated
        shape = (*data.shape[:start], *(1,) * (axis - start), *data.shape[axis:])
    else:  # dimensions 0 .. start - 1 are
        shape = (*(1,) * start, *data.shape[start:])
        shape = shape[start:] if chance(rng) else shape

    def reference(data: Array, bias: Array) -> tuple[Array, ...]:
        total = (data + bias).astype(np.float64)
        rows = total.reshape(*total.shape[:axis], -1)
        return (special.softmax(rows, axis=-1).reshape(total.shape).astype(data.dtype),)

    attributes = {"axis": axis - rank if chance(rng) else axis, "is_inner_broadcast": int(inner)}
    return Case("BiasSoftmax", [data, floats(rng, shape, dtype)], attributes=attributes, reference=reference)


DRAWS: dict[str, Draw] = {
    "Gelu": draw_gelu,
    "BiasGelu": draw_bias_gelu,
    "FastGelu": draw_fast_gelu,
    "QuickGelu": draw_sigmoid_gelu,
    "BiasSplitGelu": draw_bias_split_gelu,
    "ScaledSiLU": draw_scaled_silu,
    "BiasAdd": draw_bias_add,
    "BiasSoftmax": draw_bias_softmax,
}
