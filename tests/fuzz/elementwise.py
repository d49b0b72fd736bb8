"""Elementwise operators: one input, two with broadcasting, many; Where, Clip, Cast."""

from __future__ import annotations

from onnx import helper

from tests.fuzz.arrays import FLOATS, INTEGERS, NUMBERS, numpy_type
from tests.fuzz.build import Build

__all__ = ["binary", "casts", "clips", "unary", "variadic", "where"]

SIGNED = ("int8", "int16", "int32", "int64")
SHORT = {"float16": (5e-3, 2e-3), "bfloat16": (4e-2, 2e-2)}

UNARY: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "Abs": (13, (*FLOATS, *INTEGERS), ("normal", "special")),
    "Acos": (7, FLOATS, ("unit",)),
    "Acosh": (9, FLOATS, ("above",)),
    "Asin": (7, FLOATS, ("unit",)),
    "Asinh": (9, FLOATS, ("normal",)),
    "Atan": (7, FLOATS, ("normal",)),
    "Atanh": (9, FLOATS, ("unit",)),
    "BitwiseNot": (18, INTEGERS, ("normal", "full")),
    "Ceil": (13, FLOATS, ("normal", "ties", "special")),
    "Cos": (7, FLOATS, ("normal",)),
    "Cosh": (9, FLOATS, ("normal",)),
    "Erf": (13, FLOATS, ("normal",)),
    "Exp": (13, FLOATS, ("normal", "special")),
    "Floor": (13, FLOATS, ("normal", "ties", "special")),
    "HardSwish": (14, FLOATS, ("normal",)),
    "Identity": (13, (*FLOATS, *INTEGERS, "bool"), ("normal", "special")),
    "IsInf": (10, ("float32", "float64"), ("normal", "special")),
    "IsNaN": (13, FLOATS, ("normal", "special")),
    "Log": (13, FLOATS, ("positive", "special")),
    "Mish": (18, FLOATS, ("normal",)),
    "Neg": (13, (*FLOATS, *SIGNED), ("normal", "special")),
    "Not": (7, ("bool",), ("normal",)),
    "Reciprocal": (13, FLOATS, ("positive", "special")),
    "Relu": (14, (*FLOATS, *SIGNED), ("normal",)),
    "Round": (11, FLOATS, ("normal", "ties", "special")),
    "Sigmoid": (13, FLOATS, ("normal", "special")),
    "Sign": (13, NUMBERS, ("normal",)),
    "Sin": (7, FLOATS, ("normal",)),
    "Sinh": (9, FLOATS, ("normal",)),
    "Softplus": (7, FLOATS, ("normal",)),
    "Softsign": (7, FLOATS, ("normal",)),
    "Sqrt": (13, FLOATS, ("positive", "special")),
    "Tan": (7, FLOATS, ("unit",)),
    "Tanh": (13, FLOATS, ("normal", "special")),
}
PARAMETERS: dict[str, tuple[int, tuple[str, ...]]] = {
    "Celu": (12, ("alpha",)),
    "Elu": (7, ("alpha",)),
    "HardSigmoid": (7, ("alpha", "beta")),
    "LeakyRelu": (7, ("alpha",)),
    "Selu": (7, ("alpha", "gamma")),
    "Shrink": (9, ("bias", "lambd")),
    "ThresholdedRelu": (10, ("alpha",)),
}
BINARY: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "Add": (14, NUMBERS, ("normal", "special")),
    "And": (7, ("bool",), ("normal",)),
    "BitwiseAnd": (18, INTEGERS, ("full",)),
    "BitwiseOr": (18, INTEGERS, ("full",)),
    "BitwiseXor": (18, INTEGERS, ("full",)),
    "Div": (14, NUMBERS, ("positive",)),
    "Equal": (13, (*NUMBERS, "bool"), ("normal", "special")),
    "Greater": (13, NUMBERS, ("normal", "special")),
    "GreaterOrEqual": (16, NUMBERS, ("normal", "special")),
    "Less": (13, NUMBERS, ("normal", "special")),
    "LessOrEqual": (16, NUMBERS, ("normal", "special")),
    "Mul": (14, NUMBERS, ("normal", "full")),
    "Or": (7, ("bool",), ("normal",)),
    "Sub": (14, NUMBERS, ("normal", "full")),
    "Xor": (7, ("bool",), ("normal",)),
}


def _dtype(b: Build, allowed: tuple[str, ...]) -> str:
    """One of the types; float32 where allowed is the simplest and the most frequent."""
    dtype = b.pick(allowed[0], allowed[0], *allowed)
    b.rtol, b.atol = SHORT.get(dtype, (b.rtol, b.atol))
    return dtype


def unary(b: Build) -> None:
    """One input."""
    name = b.pick(*UNARY, *PARAMETERS)
    if name in PARAMETERS:
        b.opset, parameters = PARAMETERS[name][0], PARAMETERS[name][1]
        b.opset = b.pick(b.opset, 21)
        attributes = {p: b.pick(0.5, 1.0, 0.1, 2.0) for p in b.some(parameters)}
        b.node(name, [b.tensor(_dtype(b, ("float32", "float16")), b.shape())], **attributes)
        return
    since, dtypes, kinds = UNARY[name]
    b.opset = b.pick(since, 21)
    dtype, kind = _dtype(b, dtypes), b.pick(*kinds)
    shape = b.shape()
    b.node(name, [b.tensor(dtype, shape, kind)])


def binary(b: Build) -> None:
    """Two inputs that broadcast to one shape."""
    name = b.pick(*BINARY, "Pow", "Mod", "BitShift", "PRelu")
    shape = b.shape()
    x, y = (b.broadcast_of(shape) for _ in range(2))
    if b.flag():
        x = shape
    if name == "PRelu":
        b.opset = b.pick(16, 9)
        dtype = _dtype(b, ("float32", "float16"))
        b.node(name, [b.tensor(dtype, shape), b.tensor(dtype, y)])
    elif name == "Pow":
        b.opset = b.pick(15, 12)
        b.node(
            name, [b.tensor("float32", x, b.pick("positive", "ties")), b.tensor(b.pick("float32", "int32"), y, "ties")]
        )
    elif name == "Mod":
        fmod = b.flag()
        dtype = _dtype(b, NUMBERS if fmod else INTEGERS)
        b.node(name, [b.tensor(dtype, x), b.tensor(dtype, y, "positive")], fmod=int(fmod))
    elif name == "BitShift":
        dtype = b.pick("uint8", "uint32", "uint64", "uint16")
        amount = b.tensor(dtype, y, "normal")
        b.opset = 11
        b.node(name, [b.tensor(dtype, x, "full"), amount], direction=b.pick("LEFT", "RIGHT"))
    else:
        since, dtypes, kinds = BINARY[name]
        b.opset = b.pick(since, 21)
        dtype, kind = _dtype(b, dtypes), b.pick(*kinds)
        twice = b.integer(0, 9) == 9
        signed = name == "Div" and dtype[0] != "u" and not twice  # a divisor is not zero
        first = b.tensor(dtype, x, "normal" if signed else kind)
        b.node(name, [first, first if twice else b.tensor(dtype, y, kind)])


def variadic(b: Build) -> None:
    """Max, Min, Sum and Mean of one to many."""
    name = b.pick("Max", "Min", "Sum", "Mean")
    b.opset = b.pick(13, 8)
    whole = ("float32", "float16", "int32", "int64", "uint8", "int8") if name in ("Max", "Min") else FLOATS
    dtype = _dtype(b, whole if b.opset == 13 else ("float32",))
    shape = b.shape(0, 3)
    count = b.pick(2, 1, 3, 12)
    b.node(name, [b.tensor(dtype, shape if i == 0 else b.broadcast_of(shape)) for i in range(count)])


def where(b: Build) -> None:
    """A choice between two, all three broadcast."""
    b.opset = b.pick(16, 9)
    dtype = _dtype(b, (*NUMBERS, "bool"))
    shape = b.shape()
    x, y, condition = shape, b.broadcast_of(shape), b.broadcast_of(shape)
    kind = b.pick("normal", "special")
    b.node("Where", [b.tensor("bool", condition), b.tensor(dtype, x, kind), b.tensor(dtype, y, kind)])


def clips(b: Build) -> None:
    """Clip with bounds as attributes, inputs, or absent."""
    b.opset = b.pick(13, 12, 11, 6)
    shape = b.shape()
    if b.opset == 6:
        bounds = {k: v for k, v in (("min", -1.0), ("max", 1.5)) if b.flag()}
        b.opset = 10
        b.node("Clip", [b.tensor("float32", shape)], **bounds)
        return
    dtype = _dtype(b, ("float32", "float16", "int32", "int64", "uint8", "int8")) if b.opset > 11 else "float32"
    low, high = (b.scalar(v, dtype) if b.flag() else "" for v in (1, 4))
    b.node("Clip", [b.tensor(dtype, shape, b.pick("normal", "ties")), low, high])


def casts(b: Build) -> None:
    """Between any two types the values of which the target holds."""
    whole = (*NUMBERS, "bool")
    source, target = b.pick("float32", *whole), b.pick("int32", *whole, "float8_e4m3fn", "float8_e5m2")
    kind = "positive" if target[0] == "u" and source != "bool" else b.pick("normal", "ties")
    b.node("Cast", [b.tensor(source, b.shape(), kind)], to=helper.np_dtype_to_tensor_dtype(numpy_type(target)))
