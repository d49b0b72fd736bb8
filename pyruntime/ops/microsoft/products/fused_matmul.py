"""Matrix products fused with their producers and consumers. Source: com.microsoft operators of these names.

    FusedMatMul            y = alpha · op(a) @ op(b)
    TransposeMatMul        former name of FusedMatMul
    FusedMatMulActivation  activation(FusedMatMul(a, b))
    FusedGemm              activation(Gemm(a, b, c))
    GemmFastGelu           FastGelu(x @ w + bias)

op(a): transBatchA moves the first axis before the last one, [K, B.., M] to [B.., K, M]; then transA swaps the last two.
Vectors are not transposed.
"""

from __future__ import annotations

from pyruntime.ir import TensorType
from pyruntime.ops.base import attributes, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.products.activation import activate


@attributes
class _MatMul(Decomposed):
    """a: [..., M, K], b: [..., K, N], floats of one type; leading dimensions broadcast."""

    alpha: float = 1.0
    transA: int = 0  # noqa: N815
    transB: int = 0  # noqa: N815

    def product(self, body: Expansion, a: TensorType, b: TensorType) -> TensorType:
        """Return alpha · op(a) @ op(b)."""
        if a.rank == b.rank == 2:
            return body("Gemm", a, b, alpha=self.alpha, transA=self.transA, transB=self.transB)
        left = self._turned(body, a, "A")
        right = self._turned(body, b, "B")
        y = body("MatMul", left, right)
        return y if self.alpha == 1 else body("Mul", y, body.number(self.alpha, y.dtype))

    def _turned(self, body: Expansion, x: TensorType, side: str) -> TensorType:
        axes = list(range(x.rank))
        if x.rank > 2 and getattr(self, f"transBatch{side}", False):
            axes = [*axes[1:-1], 0, axes[-1]]
        if x.rank > 1 and getattr(self, f"trans{side}"):
            axes[-2:] = axes[:-3:-1]
        return x if axes == sorted(axes) else body("Transpose", x, perm=tuple(axes))

    def expand(self, body: Expansion, a: TensorType, b: TensorType) -> tuple[TensorType | None, ...]:
        return (self.product(body, a, b),)


@op("FusedMatMul", opsets=range(1, 2), domain="com.microsoft")
class FusedMatMul(_MatMul):
    """Product with optional transposes."""

    transBatchA: int = 0  # noqa: N815
    transBatchB: int = 0  # noqa: N815


@op("TransposeMatMul", opsets=range(1, 2), domain="com.microsoft")
class TransposeMatMul(_MatMul):
    """FusedMatMul without transBatchA and transBatchB."""


@op("FusedMatMulActivation", opsets=range(1, 2), domain="com.microsoft")
class FusedMatMulActivation(_MatMul):
    """activation: name of an ONNX operator; 'Softmax' and 'LogSoftmax' are over `activation_axis` (default -1)."""

    activation: str
    activation_alpha: float | None = None
    activation_axis: int | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None
    transBatchA: int = 0  # noqa: N815
    transBatchB: int = 0  # noqa: N815

    def expand(self, body: Expansion, a: TensorType, b: TensorType) -> tuple[TensorType | None, ...]:
        y = self.product(body, a, b)
        if self.activation in ("Softmax", "LogSoftmax"):
            axis = -1 if self.activation_axis is None else self.activation_axis
            return (body(self.activation, y, axis=axis),)
        return (_activated(self, body, y),)


@op("FusedGemm", opsets=range(1, 2), domain="com.microsoft")
class FusedGemm(Decomposed):
    """a: [M, K] or transposed, b: [K, N] or transposed, c: broadcasts to [M, N]."""

    activation: str | None = None
    activation_alpha: float | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None
    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0  # noqa: N815
    transB: int = 0  # noqa: N815

    def expand(
        self, body: Expansion, a: TensorType, b: TensorType, c: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        y = body("Gemm", a, b, c, alpha=self.alpha, beta=self.beta, transA=self.transA, transB=self.transB)
        return (_activated(self, body, y),)


@op("GemmFastGelu", opsets=range(1, 2), domain="com.microsoft")
class GemmFastGelu(Decomposed):
    """x: [..., K], w: [K, N], bias: [N], floats of one type."""

    def expand(
        self, body: Expansion, x: TensorType, w: TensorType, bias: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        y = body("MatMul", x, w)
        if bias is not None:
            if bias.shape != y.shape[-1:]:
                self.fail(f"a bias {list(y.shape[-1:])}", bias)
            y = body("Add", y, bias)
        return (body("Gelu", y, approximate="tanh"),)


def _activated(node: FusedMatMulActivation | FusedGemm, body: Expansion, y: TensorType) -> TensorType:
    """Return activation(y); the order of parameters is that of the ONNX attributes."""
    second = node.activation_gamma if node.activation == "Selu" else node.activation_beta
    return activate(node, body, y, node.activation, (node.activation_alpha, second))
