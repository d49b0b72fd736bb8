"""Random convolutions: inputs and attributes, the same on every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from pyruntime.ir import Array

__all__ = ["conv_cases", "conv_transpose_cases", "deform_cases", "integer_cases"]

Case: TypeAlias = "tuple[list[Array | None], dict[str, Any]]"


def _choose(r: random.Random, rank: int, *options: int) -> list[int]:
    return [r.choice(options) for _ in range(rank)]


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def conv_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """x, w and sometimes b over one to three axes: groups, depthwise, strides, dilations, every kind of padding."""
    for number in range(count):
        r, rng = random.Random(1000 * seed + number), np.random.default_rng(1000 * seed + number)
        rank, group = r.choice((1, 2, 2, 2, 3)), r.choice((1, 1, 2, 3))
        channels, maps = r.choice((1, 2, 3, 8, 20)), r.choice((1, 2, 5, 9, 16, 33))
        if number % 4 == 0:
            group, channels, maps = r.choice((4, 8)), 1, r.choice((1, 2))
        kernel, strides = _choose(r, rank, 1, 2, 3, 5), _choose(r, rank, 1, 1, 2, 3)
        dilations = _choose(r, rank, 1, 1, 2)
        attributes: dict[str, Any] = {"group": group, "strides": strides, "dilations": dilations}
        padding = r.choice(("pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", ""))
        if padding == "pads":
            attributes["pads"] = [r.randint(0, 2) for _ in range(2 * rank)]
        elif padding:
            attributes["auto_pad"] = padding
        if padding.startswith("SAME"):
            attributes["dilations"] = [1] * rank
        spatial = [r.randint(9, 14 if rank < 3 else 10) for _ in range(rank)]
        inputs: list[Array | None] = [
            _floats(rng, r.choice((1, 2, 3)), channels * group, *spatial),
            _floats(rng, maps * group, channels, *kernel),
        ]
        if r.random() < 0.5:
            inputs.append(_floats(rng, maps * group))
        yield inputs, attributes


def conv_transpose_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """x, w and sometimes b over one to three axes, with output_padding, output_shape and automatic padding."""
    for number in range(count):
        r, rng = random.Random(1000 * seed + number), np.random.default_rng(1000 * seed + number)
        rank, group = r.choice((1, 2, 2, 2, 3)), r.choice((1, 1, 2, 3))
        channels, maps = r.choice((1, 2, 3, 8, 20)), r.choice((1, 2, 5, 9, 16, 33))
        kernel, strides = _choose(r, rank, 1, 2, 3, 4, 5), _choose(r, rank, 1, 1, 2, 3)
        dilations, spatial = _choose(r, rank, 1, 1, 2, 3), [r.randint(3, 8 if rank < 3 else 5) for _ in range(rank)]
        attributes: dict[str, Any] = {"group": group, "strides": strides, "dilations": dilations}
        padding = r.choice(("pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "", "shape", "shape"))
        if padding == "pads":
            attributes["pads"] = [r.randint(0, 1) if k > 2 else 0 for k in kernel * 2]
        elif padding == "shape":
            full = [
                s * (i - 1) + (k - 1) * d + 1 for s, i, k, d in zip(strides, spatial, kernel, dilations, strict=True)
            ]
            attributes["output_shape"] = [max(1, f - r.randint(0, 3)) for f in full]
            attributes["auto_pad"] = r.choice(("NOTSET", "SAME_UPPER"))
        elif padding:
            attributes["auto_pad"] = padding
        else:
            attributes["output_padding"] = [r.randint(0, s - 1) for s in strides]
        inputs: list[Array | None] = [
            _floats(rng, r.choice((1, 2)), channels * group, *spatial),
            _floats(rng, channels * group, maps, *kernel),
        ]
        if r.random() < 0.5:
            inputs.append(_floats(rng, maps * group))
        yield inputs, attributes


def integer_cases(count: int, quantised: bool, seed: int = 0) -> Iterator[Case]:
    """The inputs of ConvInteger, or of QLinearConv where `quantised`: signed and unsigned, zero points, biases."""
    for number in range(count):
        r, rng = random.Random(1000 * seed + number), np.random.default_rng(1000 * seed + number)
        rank, group = r.choice((1, 2, 2, 3)), r.choice((1, 1, 2))
        channels, maps = r.choice((1, 2, 3, 20)), r.choice((1, 2, 9, 33))
        kernel = _choose(r, rank, 1, 2, 3)
        attributes = {
            "group": group,
            "strides": _choose(r, rank, 1, 2),
            "dilations": _choose(r, rank, 1, 2),
            "pads": _choose(r, 2 * rank, 0, 1),
        }
        x_type: type = r.choice((np.uint8, np.int8))
        w_type: type = np.int8 if x_type is np.int8 else r.choice((np.uint8, np.int8))

        def draw(dtype: type, *shape: int, rng: np.random.Generator = rng) -> Array:
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)

        x = draw(x_type, r.choice((1, 2)), channels * group, *(r.randint(5, 9) for _ in kernel))
        w = draw(w_type, maps * group, channels, *kernel)
        if not quantised:
            zeros: list[Array | None] = [draw(x_type), draw(w_type)]
            yield [x, w, *zeros[: r.randint(0, 2)]], attributes
            continue
        per_channel = r.random() < 0.5
        w_scale = (rng.random(maps * group) * 0.01 + 0.001 if per_channel else np.array(0.004)).astype(np.float32)
        w_zero = np.full(w_scale.shape, draw(w_type))
        y_scale = np.array(0.07 * (channels * 9) ** 0.5, np.float32)
        bias = [rng.integers(-3000, 3000, maps * group).astype(np.int32)] if r.random() < 0.5 else []
        scales = [np.array(0.02, np.float32), draw(x_type), w, w_scale, w_zero, y_scale, draw(x_type)]
        yield [x, *scales, *bias], attributes


def deform_cases(count: int, rank: int, seed: int = 0) -> Iterator[Case]:
    """x, w, offset and sometimes b and mask; offsets reach past the edges."""
    for number in range(count):
        r, rng = random.Random(1000 * seed + number), np.random.default_rng(1000 * seed + number)
        group, offset_group, channels, maps = r.choice((1, 2)), r.choice((1, 2)), r.choice((2, 4)), r.choice((1, 9))
        kernel, strides, dilations = (_choose(r, rank, *o) for o in ((1, 2, 3), (1, 2), (1, 2)))
        spatial, pads = [r.randint(5, 9) for _ in kernel], _choose(r, 2 * rank, 0, 1)
        output = [
            (i + pads[a] + pads[a + rank] - (k - 1) * d - 1) // s + 1
            for a, (i, k, d, s) in enumerate(zip(spatial, kernel, dilations, strides, strict=True))
        ]
        images, positions = r.choice((1, 2)), int(np.prod(kernel))
        inputs: list[Array | None] = [
            _floats(rng, images, channels * group, *spatial),
            _floats(rng, maps * group, channels, *kernel),
            2 * _floats(rng, images, offset_group * positions * rank, *output),
            _floats(rng, maps * group) if r.random() < 0.5 else None,
            rng.random((images, offset_group * positions, *output)).astype(np.float32) if r.random() < 0.5 else None,
        ]
        while inputs[-1] is None:
            inputs.pop()
        yield (
            inputs,
            {
                "group": group,
                "offset_group": offset_group,
                "strides": strides,
                "dilations": dilations,
                "pads": pads,
                "kernel_shape": kernel,
            },
        )
