"""GlobalAveragePool, GlobalMaxPool, GlobalLpPool: reduce all spatial axes of each channel.

Source: ONNX operators GlobalAveragePool (1, 22), GlobalMaxPool (1, 22), GlobalLpPool (2, 22).
"""

from __future__ import annotations

from typing import ClassVar

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.decomposed import Decomposed, Expansion


class _GlobalPool(Decomposed):
    """x: [N, C, D1 .. Dn] to y: [N, C, 1 .. 1]; floats."""

    fold: ClassVar[str]

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        return (self.reduced(body, x, self.fold),)

    def reduced(self, body: Expansion, x: TensorType, fold: str) -> TensorType:
        """The fold over all spatial axes."""
        self.floating(x)
        if x.rank < 2:
            self.fail("an input [N, C, D1, ...]", x)
        return body(f"Reduce{fold}", x, body.ints(*range(2, x.rank)), keepdims=1, noop_with_empty_axes=1)


@op("GlobalAveragePool", opsets=range(1, LATEST + 1))
class GlobalAveragePool(_GlobalPool):
    """Mean, accumulated in float32 (on the host in float64). NaN if there are no spatial elements."""

    fold = "Mean"


@op("GlobalMaxPool", opsets=range(1, LATEST + 1))
class GlobalMaxPool(_GlobalPool):
    """Maximum; propagates NaN. -inf if there are no spatial elements."""

    fold = "Max"


@op("GlobalLpPool", opsets=range(2, LATEST + 1))
class GlobalLpPool(_GlobalPool):
    """p-norm: (sum of |x|^p)^(1/p)."""

    p: int = 2

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        self.floating(x)
        if self.p in (1, 2):
            return (self.reduced(body, x, f"L{self.p}"),)
        wide = DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT
        powers = body("Pow", body("Abs", body.cast(x, wide)), body.number(self.p, wide))
        root = body.number(1 / self.p, wide)
        return (body.cast(body("Pow", self.reduced(body, powers, "Sum"), root), x.dtype),)
