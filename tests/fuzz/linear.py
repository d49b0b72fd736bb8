"""Products, convolutions, pools, resampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.build import Build

__all__ = ["convolutions", "pools", "products", "resizes"]


def products(b: Build) -> None:
    """MatMul of every rank, Gemm, Einsum, MatMulInteger."""
    name = b.pick("MatMul", "Gemm", "Einsum", "MatMulInteger")
    b.rtol, b.atol = 2e-3, 5e-3
    m, k, n = (b.size(1) for _ in range(3))
    if name in ("MatMul", "MatMulInteger"):
        batch = b.shape(0, 2, 1)
        a, c = (*batch, m, k), (*b.broadcast_of(batch), k, n)
        if b.integer(0, 5) == 5:
            a = (k,)
        elif b.integer(0, 5) == 5:
            c = (k,)
        if name == "MatMul":
            dtype = b.pick("float32", "float16", "int32", "float64")
            if dtype == "float16":
                b.rtol, b.atol = 2e-2, 0.1
            b.node(name, [b.tensor(dtype, a), b.tensor(dtype, c)])
        else:
            left, right = b.pick("uint8", "int8"), b.pick("uint8", "int8")
            zeros = [b.scalar(2, left), b.scalar(3, right)][: b.integer(0, 2)]
            b.node(name, [b.tensor(left, (m, k), "full"), b.tensor(right, (k, n), "factor"), *zeros])
    elif name == "Gemm":
        b.opset = b.pick(13, 11, 9)
        flip_a, flip_b = b.flag(), b.flag()
        inputs = [b.tensor("float32", (k, m) if flip_a else (m, k)), b.tensor("float32", (n, k) if flip_b else (k, n))]
        if b.opset == 9 or b.flag():
            inputs.append(b.tensor("float32", b.pick((n,), (m, n), (1, n), (m, 1), (1,), ())))
        scale = {"alpha": b.pick(1.0, 0.5, 2.0), "beta": b.pick(1.0, 0.5, 0.0)}
        b.node(name, inputs, transA=int(flip_a), transB=int(flip_b), **scale)
    else:
        _einsum(b)


EQUATIONS = (
    "ij,jk->ik",
    "bij,bjk->bik",
    "i,j->ij",
    "ij->ji",
    "ii->i",
    "ij->",
    "bhid,bhjd->bhij",
    "ijk,k->ij",
    "...ij,...jk->...ik",
    "ab,cb->ac",
)


def _einsum(b: Build) -> None:
    equation = b.pick(*EQUATIONS)
    sizes: dict[str, int] = {}
    inputs = []
    for term in equation.split("->")[0].split(","):
        letters = term.replace("...", "BC") if "..." in term else term
        inputs.append(b.tensor("float32", [sizes.setdefault(c, b.pick(2, 3, 1, 5, 17)) for c in letters]))
    b.opset = 12
    b.node("Einsum", inputs, equation=equation)


def _window(b: Build, axes: int, size: list[int], dilated: bool = True) -> dict[str, Any]:
    """kernel_shape, strides, dilations and padding for which every output has at least one place."""
    kernel = [b.integer(1, min(3, n)) for n in size]
    strides = [b.integer(1, 3) for _ in size]
    dilations = [b.pick(1, 2) if dilated and (k - 1) * 2 < n else 1 for k, n in zip(kernel, size, strict=True)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    padding = b.pick("", "pads", "SAME_UPPER", "SAME_LOWER", "VALID")
    if padding == "pads":
        attributes["pads"] = [b.integer(0, k - 1) for k in kernel * 2]
    elif padding:
        attributes["auto_pad"] = padding
        attributes["strides"] = [min(s, k) for s, k in zip(strides, kernel, strict=True)]
    if dilated and not padding.startswith("SAME"):
        attributes["dilations"] = dilations
    return attributes


def convolutions(b: Build) -> None:
    """Conv, ConvTranspose, ConvInteger, QLinearConv over one to three axes."""
    name = b.pick("Conv", "ConvTranspose", "ConvInteger")
    b.rtol, b.atol = 2e-3, 5e-3
    axes = b.pick(2, 1, 3)
    size = [b.integer(2, 9 if axes < 3 else 5) for _ in range(axes)]
    group = b.pick(1, 2, 3)
    channels, maps = b.pick(1, 2, 3, 16, 20), b.pick(1, 2, 5, 16)
    if b.integer(0, 3) == 3:
        group, channels = 8, 1
    attributes = _window(b, axes, size)
    x = (b.integer(1, 2), group * channels, *size)
    kernel = attributes["kernel_shape"]
    if name == "ConvTranspose":
        if attributes.get("auto_pad") not in (None, "VALID"):
            attributes.pop("auto_pad")
        if b.flag():
            extra = [b.integer(0, s - 1) for s in attributes["strides"]]
            attributes["output_padding"] = extra
        w = (group * channels, maps, *kernel)
    else:
        w = (group * maps, channels, *kernel)
    attributes["group"] = group
    if name == "ConvInteger":
        left = b.pick("uint8", "int8")
        zero = [b.scalar(3, left)] if b.flag() else []
        b.node(name, [b.tensor(left, x, "full"), b.tensor(left, w, "full"), *zero], **attributes)
        return
    inputs = [b.tensor("float32", x), b.tensor("float32", w)]
    if b.flag():
        inputs.append(b.tensor("float32", (group * maps,)))
    b.node(name, inputs, **attributes)


def pools(b: Build) -> None:
    """MaxPool, AveragePool, LpPool and the global ones."""
    name = b.pick("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
    axes = b.pick(2, 1, 3)
    size = [b.integer(1, 9 if axes < 3 else 5) for _ in range(axes)]
    shape = (b.integer(1, 2), b.integer(1, 5), *size)
    if name.startswith("Global"):
        b.node(name, [b.tensor("float32", shape)])
        return
    b.opset = {"MaxPool": b.pick(12, 11), "AveragePool": b.pick(19, 11), "LpPool": 18}[name]
    attributes = _window(b, axes, size, dilated=b.opset != 11 or name == "MaxPool")
    if "pads" in attributes or "auto_pad" not in attributes:
        attributes["ceil_mode"] = int(b.flag())
    if name == "AveragePool":
        attributes["count_include_pad"] = int(b.flag())
    if name == "LpPool":
        attributes["p"] = b.pick(2, 1)
    outputs = 2 if name == "MaxPool" and b.flag() and "auto_pad" not in attributes else 1
    x = b.tensor("float32", shape, "distinct" if outputs == 2 else "normal")
    b.node(name, [x], outputs, **attributes)


def resizes(b: Build) -> None:
    """Resize in all its modes, Upsample's successor; GridSample."""
    if b.integer(0, 3) == 3:
        _grid_sample(b)
        return
    mode = b.pick("nearest", "linear", "cubic")
    b.opset = b.pick(13, 11, 19)
    axes = 2 if mode == "cubic" else b.pick(2, 1, 3)
    size = [b.integer(1, 7) for _ in range(axes)]
    shape = (1, b.integer(1, 2), *size)
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": b.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = b.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": b.pick(-0.75, -0.5), "exclude_outside": int(b.flag())}
    x = b.tensor("float32", shape)
    if b.flag():
        wanted = [*shape[:2], *(b.integer(1, 15) for _ in size)]
        b.node("Resize", [x, "", "", b.ints(wanted)], **attributes)
    else:
        scales = np.array([1, 1, *(b.pick(2.0, 0.5, 1.5, 1.0, 3.0) for _ in size)], np.float32)
        if any(int(n * s) < 1 for n, s in zip(shape, scales, strict=True)):
            scales = np.maximum(scales, 1)
        b.node("Resize", [x, "", b.given(scales, True)], **attributes)


def _grid_sample(b: Build) -> None:
    b.opset = b.pick(16, 20)
    modes = ("bilinear", "nearest", "bicubic") if b.opset == 16 else ("linear", "nearest", "cubic")
    n, h, w = b.integer(1, 2), b.integer(2, 6), b.integer(2, 6)
    x = b.tensor("float32", (n, b.integer(1, 3), h, w))
    grid = b.tensor("float32", (n, b.integer(1, 4), b.integer(1, 4), 2), "normal")
    modal = {"mode": b.pick(*modes), "padding_mode": b.pick("zeros", "border", "reflection")}
    b.node("GridSample", [x, grid], align_corners=int(b.flag()), **modal)
