"""NormedProduct: a product with packed weights of rows that it normalises itself. Made by passes, not by models.

y = base(x_0 · gain / sqrt(mean(x_0²) + epsilon), x_1, ..., x_n). A product of few rows reads each row in every
workgroup, so it finds the mean square on the way and divides its sums by the root; else the rows are normalised by a
kernel of their own.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Array, TensorType, ValueType
from pyruntime.kernels import Dispatch, Role, Target, inp, scratch
from pyruntime.kernels.products.nbits import Normed
from pyruntime.kernels.rows.rows import Norm, normalize_rows, rows_of
from pyruntime.ops.base import Op, op
from pyruntime.ops.fused.paired_product import PairedProduct
from pyruntime.ops.fused.with_epilogue import WithTail
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits
from pyruntime.ops.normalization.layer_normalization import RMSNormalization

__all__ = ["NormedProduct"]


@op("NormedProduct", opsets=range(1, 2), domain="pyruntime")
class NormedProduct(Op):
    """The inputs of `base`, the first of them not normalised yet, `count` in all; then gain.

    base: of a MatMulNBits, with a tail or not. norm: over the last dimension of x_0.
    """

    base: MatMulNBits | PairedProduct | WithTail
    count: int
    norm: RMSNormalization

    @property
    def title(self) -> str:
        """The operators it fuses, such as 'RMSNormalization + MatMulNBits'."""
        return f"{self.norm.title} + {self.base.title}"

    def _given(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The types of `base`'s inputs."""
        return (*self.norm.infer(inputs[0], inputs[self.count]), *inputs[1 : self.count])

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        return self.base.infer(*self._given(inputs))

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array) -> tuple[Array, ...]:
        (rows,) = self.norm.evaluate_typed((types[0], types[self.count]), inputs[0], inputs[self.count])
        return self.base.evaluate_typed(self._given(types), rows, *inputs[1 : self.count])

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        x, given = inp(0, inputs[0]), self._given(inputs)
        gain = inp(self.count, inputs[self.count])
        made = self._whole(target, Normed(x, gain, self.norm.epsilon), given)
        if made is not None:
            return made
        rows = scratch(given[0].dtype, *given[0].shape)
        shape = rows_of(x.type.shape, x.type.rank - 1, flatten=True)
        first = normalize_rows(target, rows, x, shape, Norm(self.norm.epsilon, True, gain))
        return (first, *(d.with_operand(Role.INPUT, 0, rows) for d in self.base.lower(target, *given)))

    def _whole(self, target: Target, rows: Normed, given: tuple[Any, ...]) -> tuple[Dispatch, ...] | None:
        """The product that normalises its rows; None where its kernel cannot."""
        base = self.base
        if not isinstance(base, WithTail):
            return base.normed(target, rows, *given)
        inner: Any = base.base
        return base.attached(target, given, lambda _: inner.normed(target, rows, *given[: base.count]))
