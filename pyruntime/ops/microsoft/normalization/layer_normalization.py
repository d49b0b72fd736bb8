"""Row normalizations of onnxruntime. Source: com.microsoft operators of these names.

    SimplifiedLayerNormalization      y = x / sqrt(mean(x²) + epsilon) · scale
    SkipLayerNormalization            y = (s - mean) / sqrt(mean((s - mean)²) + epsilon) · gamma + beta
    SkipSimplifiedLayerNormalization  y = s / sqrt(mean(s²) + epsilon) · gamma

s = input + skip + bias. Models use SimplifiedLayerNormalization in com.microsoft, or in ONNX's own domain, where no
specification defines it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import LATEST, attributes, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.normalization.skip_norm import SkipNorm, follows
from pyruntime.ops.operands import named

_WANTED = (True, True, True)
"""Outputs of a SkipNorm to compute: y and both statistics."""


@attributes
class _Simplified(Decomposed):
    """x: floats; scale: broadcasts to x; y has scale's type. inv_std_var: float32, 1 along the normalized axes."""

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    def expand(self, body: Expansion, x: TensorType, scale: TensorType) -> tuple[TensorType | None, ...]:
        y = body("RMSNormalization", x, scale, axis=self.axis, epsilon=self.epsilon)
        if not self.wants(1):
            return y, None
        wide = body.cast(x, DType.FLOAT)
        axes = body.ints(*range(self.axis_of(self.axis, x.rank), x.rank))
        mean = body("ReduceMean", body("Mul", wide, wide), axes, keepdims=1)
        inv = body("Reciprocal", body("Sqrt", body("Add", mean, body.number(self.epsilon, DType.FLOAT))))
        return y, inv


@op("SimplifiedLayerNormalization", opsets=range(1, LATEST + 1))
class SimplifiedLayerNormalization(_Simplified):
    """SimplifiedLayerNormalization in ONNX's own domain, which onnxruntime accepts at every opset."""


@op("SimplifiedLayerNormalization", opsets=range(1, 2), domain="com.microsoft")
class SimplifiedLayerNormalizationMs(_Simplified):
    """SimplifiedLayerNormalization in com.microsoft."""


@attributes
class _SkipNormalization(Decomposed):
    """input: [.., H]; skip: its shape, or without the first dimension, or with 1 there; gamma, beta, bias: [H].

    Floats of one type. Outputs: y, mean and inverse standard deviation (float32 [.., 1]), and s.
    """

    epsilon: float = 1e-12

    rms: ClassVar[bool] = False

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        """Expand to Add and a normalization, which passes fuse; to a SkipNorm if statistics are requested."""
        given, rms = self.operands(*inputs), self.rms
        x, skip, gamma, beta, bias = given.x, given.skip, given.gamma, None if rms else given.beta, given.bias
        if x.rank < 2 or not follows(skip.shape, x.shape):
            self.fail("a skip of the input's shape, or of its last dimensions", f"{skip} for {x}")
        for vector in (gamma, beta, bias):
            if vector is not None and vector.shape != x.shape[-1:]:
                self.fail(f"gamma, beta and bias {list(x.shape[-1:])}", vector)
        total = body("Add", x if bias is None else body("Add", x, bias), skip)
        if self.wants(1) or self.wants(2):
            norm = SkipNorm(epsilon=self.epsilon, rms=int(rms), present=_WANTED)
            y, mean, inv, _ = body.apply(norm, total, gamma, beta)
            return y, mean, inv, total
        if rms:
            return body("RMSNormalization", total, gamma, epsilon=self.epsilon), None, None, total
        return body("LayerNormalization", total, gamma, beta, epsilon=self.epsilon), None, None, total


@op("SkipLayerNormalization", opsets=range(1, 2), domain="com.microsoft")
class SkipLayerNormalization(_SkipNormalization):
    """Skip connection and LayerNormalization."""

    operands = named("x skip gamma", optional="beta bias")


@op("SkipSimplifiedLayerNormalization", opsets=range(1, 2), domain="com.microsoft")
class SkipSimplifiedLayerNormalization(_SkipNormalization):
    """Skip connection and RMSNormalization: no beta, and the output for the mean is 0."""

    operands = named("x skip gamma", optional="bias")
    rms: ClassVar[bool] = True
