"""FusedConv, NhwcConv, NhwcFusedConv, NhwcMaxPool; FusedMatMul and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import F16, F32, chance, floats, of, pick
from tests.contrib.families.activations import gelu_tanh
from tests.oracle import ort_run

HALF = (4e-3, 8e-3)
"""Sums of products in float16: onnxruntime rounds them in other places."""

ACTIVATIONS: list[tuple[str, list[float]]] = [
    ("Relu", []),
    ("Tanh", []),
    ("Sigmoid", []),
    ("LeakyRelu", [0.2]),
    ("Clip", [-0.5, 0.7]),
    ("HardSigmoid", [0.3, 0.4]),
]
"""What onnxruntime's convolutions take."""


def _window(rng: np.random.Generator, rank: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if chance(rng):
        attributes["strides"] = [int(rng.integers(1, 3)) for _ in range(rank)]
    if chance(rng, 0.3):
        attributes["dilations"] = [int(rng.integers(1, 3)) for _ in range(rank)]
    padding = pick(rng, "pads", "auto_pad", "none")
    if padding == "pads":
        attributes["pads"] = [int(rng.integers(0, 3)) for _ in range(2 * rank)]
    elif padding == "auto_pad" and "dilations" not in attributes:
        attributes["auto_pad"] = pick(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    return attributes


def _convolved(rng: np.random.Generator, rank: int, dtype: Any) -> tuple[list[Array | None], dict[str, Any]]:
    """x [N, C, D..], w, b or None, and attributes."""
    group = int(pick(rng, 1, 1, 2, 3))
    per_in, per_out = (int(rng.integers(1, 4)) for _ in range(2))
    kernel = [int(rng.integers(1, 4)) for _ in range(rank)]
    x = floats(rng, (int(rng.integers(1, 3)), group * per_in, *(int(rng.integers(5, 10)) for _ in range(rank))), dtype)
    w = floats(rng, (group * per_out, per_in, *kernel), dtype)
    b = floats(rng, (group * per_out,), dtype) if chance(rng) else None
    attributes = {**_window(rng, rank), "group": group}
    if chance(rng):
        attributes["kernel_shape"] = kernel
    return [x, w, b], attributes


def _activation(rng: np.random.Generator) -> dict[str, Any]:
    if chance(rng, 0.2):
        return {}
    name, numbers = pick(rng, *ACTIVATIONS)
    return {"activation": name, **({"activation_params": numbers} if numbers else {})}


def _trimmed(inputs: list[Array | None]) -> list[Array | None]:
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def draw_fused_conv(rng: np.random.Generator) -> Case:
    dtype, rank = pick(rng, F32, F32, F16), int(pick(rng, 1, 2, 2, 3))
    inputs, attributes = _convolved(rng, rank, dtype)
    z = None
    if chance(rng):
        y = ort_run("Conv", _trimmed([a if a is None else a.astype(F32) for a in inputs]), **attributes)[0]
        z = floats(rng, y.shape, dtype)
    attributes |= _activation(rng)
    return Case("FusedConv", _trimmed([*inputs, z]), 1, attributes, tolerance=HALF if dtype == F16 else None)


def _last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def draw_nhwc_conv(rng: np.random.Generator) -> Case:
    (x, w, b), attributes = _convolved(rng, 2, F32)
    assert x is not None and w is not None

    def reference(x: Array, w: Array, b: Array | None = None) -> tuple[Array, ...]:
        planes, weights = np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 1)
        return (_last(ort_run("Conv", _trimmed([planes, weights, b]), **attributes)[0]),)

    return Case("NhwcConv", _trimmed([_last(x), _last(w), b]), 1, attributes, reference=reference)


def draw_nhwc_fused_conv(rng: np.random.Generator) -> Case:
    inputs, attributes = _convolved(rng, 2, F32)
    x, w, b = inputs
    assert x is not None and w is not None
    z = None
    if chance(rng):
        z = _last(floats(rng, ort_run("Conv", _trimmed([x, w, b]), **attributes)[0].shape))
    attributes |= _activation(rng)

    def reference(x: Array, w: Array, b: Array | None = None, z: Array | None = None) -> tuple[Array, ...]:
        planes = None if z is None else np.moveaxis(z, -1, 1)
        given = _trimmed([np.moveaxis(x, -1, 1), w, b, planes])
        return (_last(ort_run("FusedConv", given, 21, 1, "com.microsoft", **attributes)[0]),)

    return Case("NhwcFusedConv", _trimmed([_last(x), w, b, z]), 1, attributes, reference=reference)


def draw_nhwc_max_pool(rng: np.random.Generator) -> Case:
    kernel = [int(rng.integers(1, 4)) for _ in range(2)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "ceil_mode": int(chance(rng))}
    if chance(rng):
        attributes["strides"] = [int(rng.integers(1, 3)) for _ in range(2)]
    if chance(rng, 0.3):
        attributes["dilations"] = [int(rng.integers(1, 3)) for _ in range(2)]
    padding = pick(rng, "pads", "auto_pad", "none")
    if padding == "pads":
        attributes["pads"] = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
    elif padding == "auto_pad" and "dilations" not in attributes:
        attributes["auto_pad"] = pick(rng, "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    dtype = pick(rng, np.int8, np.uint8)
    shape = (int(rng.integers(1, 3)), *(int(n) for n in rng.integers(5, 9, 2)), int(rng.integers(1, 6)))
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    return Case("NhwcMaxPool", [x], 1, attributes)


def _operand(rng: np.random.Generator, batch: tuple[int, ...], shape: tuple[int, int], trans: bool, first: bool) -> Any:
    """A shape that becomes [*batch, *shape] by trans and transBatch."""
    dims = [*batch, *(shape[::-1] if trans else shape)]
    if first:
        dims = [dims[-2], *dims[:-2], dims[-1]]
    return tuple(dims)


def _matmul(rng: np.random.Generator) -> tuple[list[Array], dict[str, Any]]:
    dtype = pick(rng, F32, F32, F16)
    m, k, n = (int(pick(rng, 1, 3, 4, 8, 17, 32)) for _ in range(3))
    rank = int(pick(rng, 0, 1, 2))
    batch = tuple(int(rng.integers(1, 4)) for _ in range(rank))
    attributes = {name: int(chance(rng)) for name in ("transA", "transB")}
    moved = rank > 0 and chance(rng, 0.3)
    if moved:
        attributes |= {"transBatchA": int(chance(rng)), "transBatchB": int(chance(rng))}
    if chance(rng):
        attributes["alpha"] = float(pick(rng, 0.125, 2.0, -1.5))  # type: ignore[assignment]
    one_sided = rank > 0 and not moved and chance(rng, 0.3)
    a = _operand(rng, batch, (m, k), bool(attributes["transA"]), bool(attributes.get("transBatchA")))
    b = _operand(
        rng, () if one_sided else batch, (k, n), bool(attributes["transB"]), bool(attributes.get("transBatchB"))
    )
    return [floats(rng, a, dtype), floats(rng, b, dtype)], attributes


def draw_fused_matmul(rng: np.random.Generator) -> Case:
    inputs, attributes = _matmul(rng)
    if chance(rng, 0.1):
        return Case("FusedMatMul", [floats(rng, (5,)), floats(rng, (5, 3))], 1, {"alpha": 2.0})
    return Case("FusedMatMul", list(inputs), 1, attributes, tolerance=_tolerance(inputs))


def _tolerance(inputs: list[Array]) -> tuple[float, float] | None:
    return (4e-3, 3e-2) if inputs[0].dtype == F16 else None  # sums of up to 32 products are rounded, then scaled


def draw_transpose_matmul(rng: np.random.Generator) -> Case:
    inputs, attributes = _matmul(rng)
    while "transBatchA" in attributes:
        inputs, attributes = _matmul(rng)
    inputs = [x.astype(F32) for x in inputs]
    return Case("TransposeMatMul", list(inputs), 1, attributes)


def draw_fused_matmul_activation(rng: np.random.Generator) -> Case:
    inputs, attributes = _matmul(rng)
    plain: tuple[Any, ...] = ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign")
    name, numbers = pick(
        rng, *((n, {}) for n in plain), ("LeakyRelu", {"alpha": 0.3}), ("Elu", {"alpha": 0.6}),
        ("Selu", {"alpha": 1.5, "gamma": 1.2}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("ThresholdedRelu", {"alpha": 0.7}), ("Softmax", {}), ("LogSoftmax", {}),
        ("Softmax", {"axis": -2}), ("LogSoftmax", {"axis": -2}),
    )  # fmt: skip
    more = {"activation": name, **{f"activation_{key}": value for key, value in numbers.items()}}

    def reference(a: Array, b: Array) -> tuple[Array, ...]:
        y = ort_run("FusedMatMul", [a, b], 21, 1, "com.microsoft", **attributes)[0]
        return (ort_run(name, [y.astype(F32)], **numbers)[0].astype(a.dtype),)

    every = {**attributes, **more}
    return Case("FusedMatMulActivation", list(inputs), 1, every, reference=reference, tolerance=_tolerance(inputs))


def draw_fused_gemm(rng: np.random.Generator) -> Case:
    m, k, n = (int(pick(rng, 1, 3, 4, 8, 17)) for _ in range(3))
    attributes: dict[str, Any] = {name: int(chance(rng)) for name in ("transA", "transB")}
    if chance(rng):
        attributes |= {"alpha": 0.5, "beta": 2.0}
    a = floats(rng, (k, m) if attributes["transA"] else (m, k))
    b = floats(rng, (n, k) if attributes["transB"] else (k, n))
    c = floats(rng, pick(rng, (n,), (m, n), (m, 1), (1,), ())) if chance(rng, 0.7) else None
    name, numbers = pick(
        rng, ("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Tanh", {}), ("Sigmoid", {}),
        ("Elu", {"activation_alpha": 0.7}), ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1}), ("Softplus", {}), ("Softsign", {}),
        ("ThresholdedRelu", {"activation_alpha": 0.5}), ("Celu", {"activation_alpha": 0.8}),
    )  # fmt: skip
    return Case("FusedGemm", _trimmed([a, b, c]), 1, {**attributes, "activation": name, **numbers})


def draw_gemm_fast_gelu(rng: np.random.Generator) -> Case:
    dtype = pick(rng, F32, F16)
    k, n = int(pick(rng, 1, 3, 8, 32)), int(pick(rng, 1, 5, 16))
    lead = tuple(int(rng.integers(1, 5)) for _ in range(int(pick(rng, 1, 2))))
    bias = floats(rng, (n,), dtype) if chance(rng) else None

    def reference(x: Array, w: Array, bias: Array | None = None) -> tuple[Array, ...]:
        y: Any = of(x) @ of(w)  # type: ignore[operator]
        return (gelu_tanh(y if bias is None else y + of(bias)).astype(x.dtype),)

    inputs = _trimmed([floats(rng, (*lead, k), dtype), floats(rng, (k, n), dtype), bias])
    return Case("GemmFastGelu", inputs, reference=reference, tolerance=(4e-3, 3e-2) if dtype == F16 else None)


DRAWS: dict[str, Draw] = {
    "FusedConv": draw_fused_conv,
    "NhwcConv": draw_nhwc_conv,
    "NhwcFusedConv": draw_nhwc_fused_conv,
    "NhwcMaxPool": draw_nhwc_max_pool,
    "FusedMatMul": draw_fused_matmul,
    "TransposeMatMul": draw_transpose_matmul,
    "FusedMatMulActivation": draw_fused_matmul_activation,
    "FusedGemm": draw_fused_gemm,
    "GemmFastGelu": draw_gemm_fast_gelu,
}
