"""Graphs of the kinds that models are made of, in usual sizes: planning them fills the caches that all models share.

What these keep is kernels' texts, expanded and parsed: they depend on tilings, flags and epilogues, hardly on sizes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np

from pyruntime.compiler.compile import Compiler, Request
from pyruntime.ir import Constant, DType, Graph, Node, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.ops.registry import newest
from pyruntime.target import SUBGROUP_SIZE

__all__ = ["TARGETS", "Sketch", "plan_all", "sketches"]

_DESKTOP = Limits(
    storage_buffers=16,
    binding_bytes=2 << 30,
    buffer_bytes=4 << 30,
    invocations=1024,
    workgroup_x=1024,
    workgroup_bytes=32768,
)
_LANES = frozenset({"subgroups", f"{SUBGROUP_SIZE}32", "packed_4x8_integer_dot_product"})

TARGETS = (Target(_DESKTOP, _LANES, "nvidia"), Target(_DESKTOP, vendor="intel"))
"""GPUs with and without subgroups; software adapters have few kernels, and small ones."""


class _Zeros:
    """A file of zeros. Planning reads of it what is small, such as biases that are joined."""

    def read(self, offset: int, nbytes: int) -> bytes:
        return bytes(nbytes)


class Sketch:
    """A graph that is written node by node; values are names. `bias`: whether convolutions have one."""

    def __init__(self, bias: bool = True, **inputs: tuple[int, ...]) -> None:
        self.bias = bias
        self.graph = Graph()
        self.inputs = {name: TensorType(DType.FLOAT, shape) for name, shape in inputs.items()}
        self._source = _Zeros()
        self._bytes = 0

    def weight(self, *shape: int) -> str:
        """Numbers of a file."""
        name = f"w{len(self.graph.constants)}"
        self.graph.constants[name] = Constant(TensorType(DType.FLOAT, shape), self._source, self._bytes)
        self._bytes += self.graph.constants[name].nbytes
        return name

    def fixed(self, value: Any, dtype: Any = np.float32) -> str:
        """A small constant."""
        name = f"w{len(self.graph.constants)}"
        self.graph.constants[name] = Constant.from_array(np.asarray(value, dtype))
        return name

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A node; its result."""
        name = f"v{len(self.graph.nodes)}"
        self.graph.nodes.append(Node(newest(op_type, **attributes), inputs, (name,), name))
        return name

    def plan(self, target: Target, *outputs: str) -> None:
        """Plan it for a device; what comes of it is forgotten."""
        Compiler(self.graph, target).compile(Request(self.inputs, outputs))

    def sum(self, made: str, x: str, turned: bool = False) -> str:
        """A branch and what it left from, in either order: kernels' texts tell them apart."""
        return self.add("Add", *((x, made) if turned else (made, x)))

    def linear(self, x: str, n: int, m: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(n, m)), self.weight(m))

    def norm(self, x: str, width: int) -> str:
        return self.add("LayerNormalization", x, self.weight(width), self.weight(width))

    def gelu(self, x: str) -> str:
        error = self.add("Erf", self.add("Div", x, self.fixed(2**0.5)))
        return self.add("Mul", self.add("Mul", x, self.add("Add", error, self.fixed(1.0))), self.fixed(0.5))

    def halved_gelu(self, x: str) -> str:
        """The same, as torch.onnx writes it since it works on exported programs."""
        error = self.add("Erf", self.add("Div", x, self.fixed(2**0.5)))
        return self.add("Mul", x, self.add("Mul", self.fixed(0.5), self.add("Add", error, self.fixed(1.0))))

    def silu(self, x: str) -> str:
        return self.add("Mul", x, self.add("Sigmoid", x))

    def clipped(self, x: str) -> str:
        return self.add("Clip", x, self.fixed(0.0), self.fixed(6.0))

    def activation(self, x: str, kind: str) -> str:
        """`kind`: an operator of one input, or one of those above; '' is none."""
        if kind in ("gelu", "halved_gelu", "silu", "clipped"):
            return str(getattr(self, kind)(x))
        return self.add(kind, x) if kind else x

    def heads(self, x: str, rows: int, heads: int, size: int, turned: bool = False) -> str:
        """[1, rows, heads * size] to [1, heads, rows, size], or its last two exchanged."""
        split = self.add("Reshape", x, self.fixed([1, rows, heads, size], np.int64))
        return self.add("Transpose", split, perm=(0, 2, 3, 1) if turned else (0, 2, 1, 3))

    def shares(self, q: str, k: str, size: int, mask: str = "", scaled: bool = False) -> str:
        """Softmax of scores; `scaled`: as exporters write torch's scaled_dot_product_attention; masks may hide all."""
        if not scaled:
            scores = self.add("Div", self.add("MatMul", q, k), self.fixed(size**0.5))
            return self.add("Softmax", self.add("Add", scores, mask) if mask else scores, axis=-1)
        scores = self.add("MatMul", *(self.add("Mul", x, self.fixed(size**-0.25)) for x in (q, k)))
        if not mask:
            return self.add("Softmax", scores, axis=-1)
        y = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        return self.add("Where", self.add("IsNaN", y), self.fixed(0.0), y)

    def attention(
        self,
        x: str,
        rows: int,
        heads: int,
        size: int,
        mask: str = "",
        keys: tuple[str, int] = ("", 0),
        scaled: bool = False,
    ) -> str:
        """As exporters write it; `keys`: other rows than x's, and how many of them."""
        width = heads * size
        other, count = keys if keys[0] else (x, rows)
        q = self.heads(self.linear(x, width, width), rows, heads, size)
        k = self.heads(self.linear(other, width, width), count, heads, size, turned=True)
        v = self.heads(self.linear(other, width, width), count, heads, size)
        mixed = self.add("Transpose", self.add("MatMul", self.shares(q, k, size, mask, scaled), v), perm=(0, 2, 1, 3))
        joined = self.add("Reshape", mixed, self.fixed([1, rows, width], np.int64))
        return self.linear(joined, width, width)

    def rows(self, x: str, width: int, side: int) -> str:
        """[1, width, side, side] to [1, side * side, width]."""
        flat = self.add("Reshape", x, self.fixed([1, width, side * side], np.int64))
        return self.add("Transpose", flat, perm=(0, 2, 1))

    def image(self, x: str, width: int, side: int) -> str:
        """The other way."""
        turned = self.add("Transpose", x, perm=(0, 2, 1))
        return self.add("Reshape", turned, self.fixed([1, width, side, side], np.int64))

    def head(self, stages: list[str], widths: tuple[int, ...], side: int) -> str:
        """All stages with as many channels and the size of the first, side by side, as segmentation has them."""
        wide, least = 256, side
        alike = []
        for x, width, times in zip(stages[::-1], widths[::-1], (8, 4, 2, 1), strict=True):
            side = least * 8 // times
            x = self.image(self.linear(self.rows(x, width, side), width, wide), wide, side)
            sizes = self.fixed([1.0, 1.0, times, times])
            alike.append(self.add("Resize", x, "", sizes, mode="linear") if times > 1 else x)
        x = self.add("Concat", *alike, axis=1)
        return self.conv(self.conv(x, 4 * wide, wide), wide, 150, act="")

    def conv(
        self,
        x: str,
        given: int,
        made: int,
        size: int = 1,
        stride: int = 1,
        group: int = 1,
        act: str = "Relu",
        skip: str = "",
    ) -> str:
        pad = size // 2 if size > stride else 0
        weights = self.weight(made, given // group, size, size), *((self.weight(made),) if self.bias else ())
        form = {"kernel_shape": (size,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4, "group": group}
        y = self.add("Conv", x, *weights, **form)
        return self.activation(self.add("Add", y, skip) if skip else y, act)


def _encoder(
    rows: int,
    heads: int,
    size: int,
    act: str = "gelu",
    masked: bool = False,
    after: bool = False,
    scaled: bool = False,
    turned: bool = False,
) -> Sketch:
    """Two of a transformer's blocks, and a classifier on the first row.

    Args:
        after: norms follow additions.
        scaled: attention by torch's function.
        turned: as in MobileViT: what is added to comes first, no bias of the classifier, and the layers between twice
            as wide instead of four times.
    """
    width, wide = heads * size, 2 if turned else 4
    s = Sketch(x=(1, rows, width), mask=(1, 1, rows, rows))
    mask = "mask" if masked else ""
    x = "x" if after else s.add("Add", "x", s.weight(1, rows, width))
    for _ in range(2):
        mixed = s.attention(x if after else s.norm(x, width), rows, heads, size, mask, scaled=scaled)
        x = s.sum(mixed, x, turned)
        x = s.norm(x, width) if after else x
        inner = s.activation(s.linear(x if after else s.norm(x, width), width, wide * width), act)
        inner = s.linear(inner, wide * width, width)
        x = s.sum(inner, x, turned)
        x = s.norm(x, width) if after else x
    first = s.add("Gather", x if after else s.norm(x, width), s.fixed(0, np.int64), axis=1)
    s.add("Gemm", first, s.weight(1000, width), *(() if turned else (s.weight(1000),)), transB=1)
    return s


def _stages(
    widths: tuple[int, ...], side: int, act: str, expand: int, kernel: int, bottleneck: bool, bias: bool
) -> Sketch:
    """A convolution net: a stem, then a block and a step down for each width; at last a classifier.

    `bias`: where norms were folded into convolutions, these have one, unless it is 0.
    """
    s = Sketch(bias, x=(1, 3, side, side))
    conv = s.conv
    x, given, side = conv("x", 3, widths[0], 3 if expand else 7, 2, act=act), widths[0], side // 2
    for width in widths:
        inner = width // 4 if bottleneck else width * max(expand, 1)
        group = 1 if bottleneck or not expand else inner
        step = conv(x, given, inner, act=act)
        step = conv(step, inner, inner, kernel, 2, group, act)
        down = conv(step, inner, width, act="", skip=conv(x, given, width, 1, 2, act="") if bottleneck else "")
        down = s.activation(down, act) if bottleneck else down
        step = conv(down, width, inner, act=act)
        step = conv(step, inner, inner, kernel, 1, group, act)
        if expand and not bottleneck:
            gate = s.add("ReduceMean", step, s.fixed([2, 3], np.int64), keepdims=1)
            gate = conv(gate, inner, max(8, width // 4), act=act)
            step = s.add("Mul", step, conv(gate, max(8, width // 4), inner, act="Sigmoid"))
        x, given = conv(step, inner, width, act=act if bottleneck else "", skip=down), width
    pooled = s.add("Flatten", s.add("GlobalAveragePool", x))
    s.add("Gemm", pooled, s.weight(1000, given), s.weight(1000), transB=1)
    return s


def _plain(widths: tuple[int, ...], side: int, act: str, bias: bool) -> Sketch:
    """3 x 3 convolutions of all channels, a step down for each width and up again, as detectors and segmenters have."""
    s = Sketch(bias, x=(1, 3, side, side))
    x, given = "x", 3
    for width in widths:
        x, given = s.conv(x, given, width, 3, 2, act=act), width
        inner = s.conv(s.conv(x, width, width // 2, 1, act=act), width // 2, width, 3, act=act)
        x = s.add("Add", x, s.conv(inner, width, width, 3, act=""))
    for width in widths[-2::-1]:
        sizes = s.fixed([1.0, 1.0, 2.0, 2.0])
        x = s.add("Resize", x, "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
        x, given = s.conv(x, given, width, 3, act=act), width
    s.conv(x, given, 1, 1, act="Sigmoid")
    return s


def _modern(widths: tuple[int, ...], side: int, bias: bool, act: str = "gelu") -> Sketch:
    """A convolution net whose blocks are depthwise, with a norm and two products where channels are last."""
    s = Sketch(bias, x=(1, 3, side, side))
    x, given, step = "x", 3, 4
    for width in widths:
        x, side = s.conv(x, given, width, step, step, act=""), side // step
        inner = s.add("Transpose", s.conv(x, width, width, 7, 1, width, act=""), perm=(0, 2, 3, 1))
        inner = s.activation(s.linear(s.norm(inner, width), width, 4 * width), act)
        inner = s.linear(inner, 4 * width, width)
        x = s.add("Add", x, s.add("Transpose", s.add("Mul", inner, s.weight(width)), perm=(0, 3, 1, 2)))
        x = s.add("Transpose", s.norm(s.add("Transpose", x, perm=(0, 2, 3, 1)), width), perm=(0, 3, 1, 2))
        given, step = width, 2
    return s


def _pyramid(
    widths: tuple[int, ...],
    heads: tuple[int, ...],
    side: int,
    bias: bool,
    act: str = "gelu",
    mixed: bool = False,
    turned: bool = False,
) -> Sketch:
    """A vision transformer in stages: patches by a convolution, keys and values of fewer rows, two layers.

    `turned`: what is added to comes first. `mixed`: patches overlap, a depthwise convolution is between the products of
    each layer, and a head has all stages.
    """
    s = Sketch(bias, x=(1, 3, side, side))
    x, given, step, ratio, stages = "x", 3, 4, 8, list[str]()
    for width, count in zip(widths, heads, strict=True):
        side //= step
        patch = 2 * step - 1 if mixed else step
        x, rows = s.norm(s.rows(s.conv(x, given, width, patch, step, act=""), width, side), width), side**2
        for _ in range(2):
            inner, keys = s.norm(x, width), ("", 0)
            if ratio > 1:
                less = s.conv(s.image(inner, width, side), width, width, ratio, ratio, act="")
                keys = s.norm(s.rows(less, width, side // ratio), width), (side // ratio) ** 2
            attended = s.attention(inner, rows, count, width // count, keys=keys, scaled=mixed)
            x = s.sum(attended, x, turned)
            wide = 4 * width
            inner = s.linear(s.norm(x, width), width, wide)
            if mixed:
                near = s.conv(s.image(inner, wide, side), wide, wide, 3, 1, wide, act="")
                inner = s.rows(near, wide, side)
            x = s.sum(s.linear(s.activation(inner, act), wide, width), x, turned)
        x, given, step, ratio = s.image(s.norm(x, width), width, side), width, 2, ratio // 2
        stages.append(x)
    if mixed:
        s.head(stages, widths, side)
    return s


def sketches() -> Iterator[Sketch]:
    """The graphs."""
    yield _encoder(128, 12, 64, masked=True, after=True)
    yield _encoder(128, 12, 32, masked=True, after=True)
    yield _encoder(197, 12, 64)
    yield _encoder(50, 12, 64, "silu")
    yield _encoder(1500, 6, 64)
    yield _encoder(128, 12, 64, "halved_gelu", masked=True, after=True)
    yield _encoder(197, 12, 64, "halved_gelu", masked=True, scaled=True)
    yield _encoder(197, 12, 64, "halved_gelu", scaled=True)
    yield _encoder(1500, 6, 64, "halved_gelu", scaled=True)
    yield _encoder(77, 8, 64, masked=True)
    yield _encoder(64, 8, 64, "Relu", masked=True)
    for rows, heads, size in ((1024, 4, 36), (256, 4, 48), (64, 4, 60), (256, 4, 64)):
        yield _encoder(rows, heads, size, "silu", turned=True)
    for rows, heads in ((3136, 1), (784, 2), (196, 5), (49, 8)):
        yield _encoder(rows, heads, 32)
    for rows, heads in ((3136, 3), (784, 6), (196, 12), (49, 24)):
        yield _encoder(rows, heads, 32)
    for bias in (True, False):
        yield _stages((64, 256, 512, 1024, 2048), 224, "Relu", 0, 3, True, bias)
        yield _stages((16, 24, 40, 80, 112, 320), 224, "silu", 6, 5, False, bias)
        yield _stages((16, 24, 32, 64, 96, 160), 224, "silu", 6, 3, False, bias)
        yield _stages((16, 24, 32, 64, 96, 160), 224, "clipped", 6, 3, False, bias)
        yield _stages((32, 64, 128, 256), 256, "silu", 2, 3, False, bias)
        yield _pyramid((64, 128, 320, 512), (1, 2, 5, 8), 224, bias)
        yield _pyramid((64, 128, 320, 512), (1, 2, 5, 8), 224, bias, "halved_gelu", turned=True)
        yield _pyramid((64, 128, 320, 512), (1, 2, 5, 8), 224, bias, "halved_gelu", mixed=True)
        yield _pyramid((32, 64, 160, 256), (1, 2, 5, 8), 512, bias, "halved_gelu", mixed=True)
        yield _modern((96, 192, 384, 768), 224, bias, "halved_gelu")
        for act in ("Relu", "silu"):
            yield _plain((32, 64, 128, 256, 512), 256, act, bias)
        yield _modern((96, 192, 384, 768), 224, bias)


def plan_all() -> None:
    """Plan every graph for every target."""
    for sketch in sketches():
        last = sketch.graph.nodes[-1].outputs[0]
        for target in TARGETS:
            sketch.plan(target, last)
            gc.collect()  # the picture has all the memory that was ever taken
