"""Kinds of f: convolutions, products and attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.forms.form import MOST_WEIGHTS, Form, Kind, few, maps_of, swapped

__all__ = ["PRODUCTS"]


def _convolution(k: int, groups: Callable[[int], int], bias: bool = False, dilation: int = 1) -> Kind:
    def kind(form: Form) -> str | None:
        if (maps := maps_of(form)) is None or maps[1] * maps[1] // groups(maps[1]) * k * k > MOST_WEIGHTS:
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


def _conv_1d(form: Form) -> str | None:
    if len(form.shape) != 3:
        return None
    c = form.shape[1]
    return form.op("Conv", "t", form.weight(c, c, 3), kernel_shape=[3], pads=[1, 1])


def _conv_1d_flat(form: Form) -> str | None:
    if (maps := maps_of(form)) is None:
        return None
    n, c, h, w = maps
    flat = form.op("Reshape", "t", form.ints(n, c, h * w))
    y = form.op("Conv", flat, form.weight(c, 1, 5), kernel_shape=[5], pads=[2, 2], group=c)
    return form.op("Reshape", y, form.ints(*maps))


def _conv_3d(form: Form) -> str | None:
    if (maps := maps_of(form)) is None or math.prod(maps) > 1 << 17:
        return None
    n, c, h, w = maps
    deep = form.op("Reshape", "t", form.ints(n, 1, c, h, w))
    y = form.op("Conv", deep, form.weight(1, 1, 3, 3, 3), kernel_shape=[3] * 3, pads=[1] * 6)
    return form.op("Reshape", y, form.ints(*maps))


def _conv_transpose(groups: Callable[[int], int]) -> Kind:
    def kind(form: Form) -> str | None:
        if (maps := maps_of(form)) is None or maps[1] > 64:
            return None
        c, group = maps[1], groups(maps[1])
        w = form.weight(c, c // group, 3, 3)
        return form.op("ConvTranspose", "t", w, kernel_shape=[3, 3], pads=[1] * 4, group=group)

    return kind


def _matmul(form: Form) -> str | None:
    k = form.shape[-1]
    return form.op("MatMul", "t", form.weight(k, k)) if k * k <= MOST_WEIGHTS else None


MOST_SQUARES = 1 << 22
"""Elements of a product of a matrix with itself."""


def _matmul_left(form: Form) -> str | None:
    k = form.shape[-2]
    return form.op("MatMul", form.weight(k, k), "t") if k * k <= MOST_WEIGHTS else None


def _matmul_fed(form: Form) -> str | None:
    """By a product of t: no operand is constant."""
    if form.shape[-1] ** 2 > MOST_SQUARES:
        return None
    squares = form.op("MatMul", form.op("Transpose", "t", perm=swapped(form)), "t")
    scaled = form.op("Mul", squares, form.const(np.float32(1 / math.prod(form.shape[-2:]) ** 0.5)))
    return form.op("MatMul", "t", scaled)


def _self_attention_bare(form: Form) -> str | None:
    """(t tᵀ) t."""
    if form.shape[-2] ** 2 > MOST_SQUARES:
        return None
    square = form.op("MatMul", "t", form.op("Transpose", "t", perm=swapped(form)))
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


def _skinny_rows(form: Form) -> int:
    """The most rows, eight or less, that t can be cut into; 0 where they are too long."""
    count = math.prod(form.shape)
    return next((r for r in (8, 7, 6, 4, 3, 2, 1) if count % r == 0 and (count // r) ** 2 <= MOST_WEIGHTS), 0)


def _matmul_skinny(form: Form) -> str | None:
    count, rows = math.prod(form.shape), _skinny_rows(form)
    if not rows:
        return None
    flat = form.op("Reshape", "t", form.ints(rows, count // rows))
    y = form.op("MatMul", flat, form.weight(count // rows, count // rows))
    return form.op("Reshape", y, form.ints(*form.shape))


def _packed(form: Form, value: str, k: int, bits: int, block: int, level: int = 0) -> str:
    """value Wᵀ, the square W packed in `bits` bits."""
    rng, blocks = np.random.default_rng(k + bits), -(-k // block)
    data = rng.integers(0, 256, (k, blocks, block * bits // 8)).astype(np.uint8)
    scales = (rng.uniform(0.5, 1.5, (k, blocks)) * (2 / 2**bits / math.sqrt(k))).astype(np.float32)
    more: dict[str, Any] = {"K": k, "N": k, "bits": bits, "block_size": block, "domain": "com.microsoft"}
    more["accuracy_level"] = level
    return form.op("MatMulNBits", value, form.const(data), form.const(scales), **more)


def _matmul_packed(bits: int, block: int, level: int = 0) -> Kind:
    def kind(form: Form) -> str | None:
        return _packed(form, "t", form.shape[-1], bits, block, level) if form.shape[-1] ** 2 <= MOST_WEIGHTS else None

    return kind


def _matmul_packed_skinny(form: Form) -> str | None:
    count, rows = math.prod(form.shape), _skinny_rows(form)
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
    if (maps := maps_of(form)) is None:
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


PRODUCTS: Mapping[str, Kind] = {
    "conv depthwise 3x3": _convolution(3, _each),
    "conv depthwise 5x5 biased": _convolution(5, _each, bias=True),
    "conv depthwise 7x7": _convolution(7, _each),
    "conv depthwise dilated": _convolution(3, _each, dilation=2),
    "conv 3x3": _convolution(3, _one),
    "conv 3x3 biased": _convolution(3, _one, bias=True),
    "conv 5x5 dilated": _convolution(5, _one, dilation=2),
    "conv 1x1": _convolution(1, _one),
    "conv 1x1 biased": _convolution(1, _one, bias=True),
    "conv few groups": _convolution(3, few),
    "conv many groups": _convolution(3, _some),
    "conv 1x1 groups": _convolution(1, few),
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
    "skinny matmul of a view": _matmul_skinny,
    "matmul packed in 4 bits": _matmul_packed(4, 32),
    "matmul packed in 8 bits": _matmul_packed(8, 16),
    "matmul packed by rows of 8 bits": _matmul_packed(4, 32, level=4),
    "skinny packed matmul of a view": _matmul_packed_skinny,
    "gemm": _gemm,
    "gemm onto itself": _gemm_onto_itself,
    "einsum": _einsum,
    "tokens and back": _channel_mix,
    "picture of tokens and back": _picture_of_tokens,
    "attention": _attention,
    "attention of heads": _attention_fused,
}
