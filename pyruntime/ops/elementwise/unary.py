"""Unary elementwise operators without attributes, as table rows. Source: the ONNX operators of these names.

NaN propagates. The functions called in WGSL are in shaders/lib.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array
from pyruntime.ops.elementwise.elementwise import BOOL, FLOATS, FLOATS_8, INTEGERS, NUMBERS, SIGNED, Unary, define
from pyruntime.ops.elementwise.special_functions import erf


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)"""
    t: Array = np.exp(-np.abs(x))
    result: Array = np.where(x < 0, t, 1) / (1 + t)
    return result


def softplus(x: Array) -> Array:
    """ln(1 + e^x)"""
    result: Array = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return result


def _hard_swish(x: Array) -> Array:
    result: Array = x * np.minimum(np.maximum(x / x.dtype.type(6) + x.dtype.type(0.5), 0), 1)
    return result


ROWS = (
    Unary("Abs", 6, NUMBERS, np.abs, f32="abs(x)", i32="abs(x)", u32="x", i64="i64_abs(x)", u64="x"),
    Unary("Acos", 7, FLOATS, np.arccos, f32="arccosine(x)"),
    Unary("Acosh", 9, FLOATS, np.arccosh, f32="inverse_hyperbolic_cosine(x)"),
    Unary("Asin", 7, FLOATS, np.arcsin, f32="arcsine(x)"),
    Unary("Asinh", 9, FLOATS, np.arcsinh, f32="inverse_hyperbolic_sine(x)"),
    Unary("Atan", 7, FLOATS, np.arctan, f32="arctangent(x)"),
    Unary("Atanh", 9, FLOATS, np.arctanh, f32="inverse_hyperbolic_tangent(x)"),
    Unary("BitwiseNot", 18, INTEGERS, np.invert, ints="~x"),
    Unary("Ceil", 6, FLOATS, np.ceil, f32="ceiling_of(x)"),
    Unary("Cos", 7, FLOATS, np.cos, f32="cosine(x)"),
    Unary("Cosh", 9, FLOATS, np.cosh, f32="hyperbolic_cosine(x)"),
    Unary("Erf", 9, NUMBERS, erf, f32="erf(x)"),
    Unary("Exp", 6, FLOATS, np.exp, f32="exponential(x)"),
    Unary("Floor", 6, FLOATS, np.floor, f32="floor_of(x)"),
    Unary("HardSwish", 14, FLOATS, _hard_swish, f32="hard_swish(x)"),
    Unary("IsNaN", 9, FLOATS | FLOATS_8, np.isnan, f32="is_nan(x)", predicate=True),
    Unary("Log", 6, FLOATS, np.log, f32="natural_log(x)"),
    Unary("Mish", 18, FLOATS, lambda x: x * np.tanh(softplus(x)), f32="mish(x)"),
    Unary("Neg", 6, FLOATS | SIGNED, np.negative, f32="-x", i32="-x", i64="i64_neg(x)"),
    Unary("Not", 1, BOOL, np.logical_not, boolean="!x"),
    Unary("Reciprocal", 6, FLOATS, lambda x: 1 / x, f32="1.0 / x"),
    Unary("Relu", 6, FLOATS | SIGNED, lambda x: np.maximum(x, 0), f32="relu(x)", i32="max(x, 0)", i64="i64_relu(x)"),
    Unary("Round", 11, FLOATS, np.rint, f32="round(x)"),
    Unary("Sigmoid", 6, FLOATS, sigmoid, f32="sigmoid(x)"),
    Unary(
        "Sign",
        9,
        NUMBERS,
        np.sign,
        f32="sign_of(x)",
        i32="sign(x)",
        u32="min(x, 1u)",
        i64="i64_sign(x)",
        u64="u64_sign(x)",
    ),
    Unary("Sin", 7, FLOATS, np.sin, f32="sine(x)"),
    Unary("Sinh", 9, FLOATS, np.sinh, f32="hyperbolic_sine(x)"),
    Unary("Softplus", 1, FLOATS, softplus, f32="softplus(x)"),
    Unary("Softsign", 1, FLOATS, lambda x: x / (1 + np.abs(x)), f32="softsign(x)"),
    Unary("Sqrt", 6, FLOATS, np.sqrt, f32="square_root(x)"),
    Unary("Tan", 7, FLOATS, np.tan, f32="tangent(x)"),
    Unary("Tanh", 6, FLOATS, np.tanh, f32="hyperbolic_tangent(x)"),
)

globals().update(define(__name__, ROWS))
