"""What elementwise operators must compute, on NumPy or (with `gpu`) on a device: edges, exact integers, floats.

Oracles: Python's integers, SciPy and NumPy in float64, ONNX's own cases, onnxruntime.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from scipy import special

from pyruntime.ir import Array, DType
from pyruntime.ir.encoding import round_to
from tests.harness import make_op, run_op
from tests.oracle import node_of

UNARY_FLOAT: dict[str, Callable[[Array], Any]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": special.erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Log": np.log,
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Sigmoid": special.expit,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
"""References in float64."""

ACTIVATIONS: list[tuple[str, dict[str, Any], Callable[[Array], Any]]] = [
    ("Celu", {"alpha": 0.75}, lambda x: np.maximum(x, 0) + np.minimum(0, 0.75 * np.expm1(x / 0.75))),
    ("Elu", {"alpha": 1.25}, lambda x: np.where(x < 0, 1.25 * np.expm1(x), x)),
    ("Gelu", {}, lambda x: x * special.ndtr(x)),
    (
        "Gelu",
        {"approximate": "tanh"},
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.375}, lambda x: np.clip(0.25 * x + 0.375, 0, 1)),
    ("LeakyRelu", {"alpha": 0.125}, lambda x: np.where(x < 0, 0.125 * x, x)),
    ("Selu", {"alpha": 1.5, "gamma": 1.125}, lambda x: 1.125 * np.where(x < 0, 1.5 * np.expm1(x), x)),
    ("Swish", {"alpha": 1.75}, lambda x: x * special.expit(1.75 * x)),
    ("Shrink", {"bias": 0.25, "lambd": 0.75}, lambda x: np.where(np.abs(x) > 0.75, x - 0.25 * np.sign(x), 0)),
    ("ThresholdedRelu", {"alpha": 0.5}, lambda x: np.where(x > 0.5, x, 0)),
]

FAMILY = {
    *UNARY_FLOAT,
    *(name for name, _, _ in ACTIVATIONS),
    *("Add", "And", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike"),
    *("Clip", "DequantizeLinear", "Div", "Dropout", "DynamicQuantizeLinear", "Equal", "Greater", "GreaterOrEqual"),
    *("Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Not", "Or", "PRelu"),
    *("Pow", "QuantizeLinear", "Sub", "Sum", "Where", "Xor"),
}

SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    -np.nan,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    3.5,
    -2.5,
    0.1,
    -0.1,
    6e-3,
    88.5,
    -88.5,
    1e30,
]

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED


def run(name: str, inputs: list[Any], gpu: Any = None, opset: int = 28, outputs: int = 1, **attributes: Any) -> Any:
    """The outputs of one node (the only one, where there is one)."""
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    op = make_op(node_of(name, arrays, outputs, **attributes), {"": opset})
    got = run_op(op, arrays, gpu)
    return got[0] if len(got) == 1 else got


def float_samples(dtype: str = "float32") -> Array:
    """Numbers of many magnitudes, and the special ones."""
    rng = np.random.default_rng(7)
    scaled = [rng.standard_normal(150) * scale for scale in (1e-3, 0.3, 1.0, 4.0, 30.0, 900.0)]
    wide = [10.0 ** rng.uniform(-4, 4, 60), -(10.0 ** rng.uniform(-4, 4, 60)), 1 + rng.standard_normal(50) * 1e-3]
    if dtype in ("float32", "float64"):
        wide += [10.0 ** rng.uniform(4, 30, 40), -(10.0 ** rng.uniform(4, 30, 40)), 10.0 ** rng.uniform(-30, -4, 40)]
    every = np.concatenate([SPECIAL, *scaled, *wide])
    with np.errstate(over="ignore"):
        return every.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


TOLERANCE = {"float64": (2e-15, 3e-16), "float32": (2e-6, 4e-7), "float16": (1.1e-3, 7e-8), "bfloat16": (9e-3, 1e-7)}
"""Relative and absolute error of a result, by type: a few units in the last place."""


LARGEST = {"float64": 1.79769e308, "float32": 3.4028235e38, "float16": 65504.0, "bfloat16": 3.3895314e38}
"""Greatest finite value."""


def check_float(name: str, reference: Callable[[Array], Any], dtype: str, gpu: Any = None, **attributes: Any) -> None:
    """One float function of one input against its reference in float64: NaN and infinity exactly where it has them."""
    x = float_samples(dtype)
    got = run(name, [x], gpu, **attributes)
    kind = DType.BFLOAT16 if dtype == "bfloat16" else DType.from_numpy(np.dtype(dtype))
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(x.astype(np.float64)))
        rounded = round_to(expected.astype(kind.numpy), kind)
    rtol, atol = TOLERANCE[dtype]
    largest = LARGEST[dtype]
    for value, mine, theirs, near in zip(x.tolist(), got.tolist(), expected.tolist(), rounded.tolist(), strict=True):
        if math.isfinite(near) and math.isfinite(mine):
            limit = rtol * abs(theirs) + atol * max(1.0, abs(value) if abs(value) < 100 else 1.0)
            assert abs(mine - theirs) <= limit, f"{name}({value}) = {mine}, expected {theirs}"
        elif abs(theirs) < largest * 0.999 or abs(theirs) > largest * 1.001 or math.isnan(theirs):
            assert mine == near or (math.isnan(mine) and math.isnan(near)), f"{name}({value}) = {mine}, expected {near}"


def edges(dtype: str) -> list[int]:
    """Integers where arithmetic goes wrong first."""
    info = np.iinfo(dtype)
    near = [0, 1, 2, 3, 5, 7, 10, 100, info.max, info.max - 1, info.max // 2, info.max // 3]
    for bits in (8, 16, 24, 31, 32, 33, 48, 53):
        near += [(1 << bits) + step for step in (-1, 0, 1)] if 1 << bits < info.max else []
    near += [int(v) for v in np.random.default_rng(3).integers(0, info.max, 4, dtype)]
    values = {*near, *(-v for v in near), info.min, info.min + 1}
    return sorted(v for v in values if info.min <= v <= info.max)


def pairs(dtype: str) -> tuple[Array, Array]:
    """Every two edges."""
    values = np.array(edges(dtype), dtype)
    a, b = np.meshgrid(values, values, indexing="ij")
    return a.reshape(-1), b.reshape(-1)


def wrap(value: int, dtype: str) -> int:
    """`value` modulo the range of `dtype`."""
    bits = 8 * np.dtype(dtype).itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype[0] == "i" and value >> (bits - 1) else value


def _divide(a: int, b: int) -> int:
    if b == 0:
        return 0
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_BINARY: list[tuple[str, dict[str, Any], Callable[[int, int], int]]] = [
    ("Add", {}, operator.add),
    ("BitwiseAnd", {}, operator.and_),
    ("BitwiseOr", {}, operator.or_),
    ("BitwiseXor", {}, operator.xor),
    ("Div", {}, _divide),
    ("Equal", {}, operator.eq),
    ("Greater", {}, operator.gt),
    ("GreaterOrEqual", {}, operator.ge),
    ("Less", {}, operator.lt),
    ("LessOrEqual", {}, operator.le),
    ("Max", {}, max),
    ("Min", {}, min),
    ("Mod", {}, lambda a, b: a % b if b else 0),
    ("Mod", {"fmod": 1}, lambda a, b: a - _divide(a, b) * b if b else 0),
    ("Mul", {}, operator.mul),
    ("Sub", {}, operator.sub),
]


def check_integer_binary(
    name: str, attributes: dict[str, Any], function: Callable[[int, int], int], dtype: str, gpu: Any = None
) -> None:
    """All pairs of edges against Python's integers."""
    a, b = pairs(dtype)
    got = run(name, [a, b], gpu, **attributes)
    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        expected = function(x, y)
        expected = expected if isinstance(expected, bool) else wrap(expected, dtype)
        assert z == expected, f"{name}{attributes or ''}({x}, {y}) = {z}, expected {expected} ({dtype})"


def _shift(direction: str, bits: int) -> Callable[[int, int], int]:
    def function(a: int, b: int) -> int:
        if direction == "LEFT":
            return a << b if 0 <= b < bits else 0
        return a >> b if 0 <= b < bits else -1 if a < 0 else 0

    return function


def check_bit_shift(direction: str, dtype: str, gpu: Any = None) -> None:
    """Edges shifted by every count from below 0 to beyond the width."""
    bits = 8 * np.dtype(dtype).itemsize
    counts = [*range(bits + 3), 255 if bits > 8 else 100, *([np.iinfo(dtype).max] if bits > 8 else [])]
    counts += [-1, -bits, np.iinfo(dtype).min] if dtype[0] == "i" else []
    a, b = np.meshgrid(np.array(edges(dtype), dtype), np.array(counts, dtype), indexing="ij")
    got = run("BitShift", [a, b], gpu, direction=direction)
    function = _shift(direction, bits)
    for x, n, z in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), got.reshape(-1).tolist(), strict=True):
        assert z == wrap(function(x, n), dtype), f"{x} {direction} {n} = {z} ({dtype})"


def check_whole_power(base: str, exponent: str, gpu: Any = None) -> None:
    """Integers to whole powers, modulo the range; negative powers are 0 but for 1 and -1."""
    values = [0, 1, 2, 3, -1, -2, -3, 7, 10, 46341, np.iinfo(base).max, np.iinfo(base).min]
    counts = [0, 1, 2, 3, 5, 20, 31, 63, 64, 100] + ([-1, -2, -3] if exponent[0] in "if" else [])
    a, b = np.meshgrid(np.array(values, base), np.array(counts, exponent), indexing="ij")
    got = run("Pow", [a, b], gpu)
    for x, n, z in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), got.reshape(-1).tolist(), strict=True):
        n = int(n)
        expected = wrap(x**n, base) if n >= 0 else (x if n % 2 else 1) if abs(x) == 1 else 0
        assert z == expected, f"{x} ** {n} = {z}, expected {expected} ({base}, {exponent})"


POWER_BASES = [-8.0, -2.5, -2.0, -1.0, -0.5, -0.0, 0.0, 1e-20, 0.3, 0.5, 1.0, 1.001, 2.0, 3.0, 10.0, 1e10]
POWER_EXPONENTS = [-40.0, -3.0, -2.5, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 31.0, 33.0, 101.0]


def check_power(gpu: Any = None) -> None:
    """Every special case of C's pow, and ordinary ones to 5e-6."""
    ends = [np.inf, -np.inf, np.nan]
    x, y = np.meshgrid(np.array([*POWER_BASES, *ends], "f"), np.array([*POWER_EXPONENTS, *ends], "f"), indexing="ij")
    got = run("Pow", [x, y], gpu)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    tiny = np.abs(expected) < 1.2e-38
    np.testing.assert_allclose(np.where(tiny, 0, got), np.where(tiny, 0, expected), rtol=5e-6, atol=1.2e-38)
    zeros = (expected == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]))


def check_float_remainder(dtype: str, gpu: Any = None) -> None:
    """Mod of floats is exact: against NumPy's, signed zeros included."""
    rng = np.random.default_rng(5)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan]
    values = np.array([*ends, 1.0, -1.0, 3.0, -3.0, 0.1, 5.5, -7.25, 1e4, -1e4, 6e-5], dtype)
    a, b = (v.reshape(-1) for v in np.meshgrid(values, values, indexing="ij"))
    a = np.concatenate([a, (rng.standard_normal(400) * 10.0 ** rng.uniform(-3, 3, 400)).astype(dtype)])
    b = np.concatenate([b, (rng.standard_normal(400) * 10.0 ** rng.uniform(-3, 3, 400)).astype(dtype)])
    if dtype == "float32":
        a, b = np.append(a, np.array([3e38, -3e38, 1e30], "f")), np.append(b, np.array([1e-30, 7e-20, 3.0], "f"))
    for fmod, function in ((0, np.mod), (1, np.fmod)):
        with np.errstate(all="ignore"):
            expected = np.asarray(function(a, b))
        got = run("Mod", [a, b], gpu, fmod=fmod)
        np.testing.assert_array_equal(got, expected, err_msg=f"fmod={fmod}")
        real = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(expected[real]), err_msg=f"fmod={fmod}")


def check_comparisons_with_nan(dtype: Any, gpu: Any = None) -> None:
    """NaN compares false, zeros are equal, infinities are ordered."""
    values = np.array([np.nan, -np.inf, -1.5, -0.0, 0.0, 1.5, np.inf]).astype(dtype)
    a, b = np.meshgrid(values, values, indexing="ij")
    wide = a.astype(np.float64), b.astype(np.float64)
    for name, function in (
        ("Equal", np.equal),
        ("Less", np.less),
        ("LessOrEqual", np.less_equal),
        ("Greater", np.greater),
        ("GreaterOrEqual", np.greater_equal),
    ):
        np.testing.assert_array_equal(run(name, [a, b], gpu), function(*wide), err_msg=name)


def check_extremes_with_nan(dtype: Any, gpu: Any = None) -> None:
    """Max, Min and Clip keep NaN."""
    values = np.array([np.nan, -np.inf, -1.5, 0.0, 1.5, np.inf]).astype(dtype)
    a, b = np.meshgrid(values, values, indexing="ij")
    wide = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_array_equal(run("Max", [a, b], gpu), np.maximum(*wide))
    np.testing.assert_array_equal(run("Min", [a, b], gpu), np.minimum(*wide))
    low, high = np.asarray(values[2]), np.asarray(values[4])
    np.testing.assert_array_equal(run("Clip", [values, low, high], gpu), [np.nan, -1.5, -1.5, 0, 1.5, 1.5])
    np.testing.assert_array_equal(run("Clip", [values, high, low], gpu), [np.nan, -1.5, -1.5, -1.5, -1.5, -1.5])
