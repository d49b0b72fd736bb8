"""NormedProduct: RMS normalization of rows, fused into the packed matrix product that reads them.

    y = base(x_0 · gain / sqrt(mean(x_0²) + epsilon), x_1, ..., x_n)

A GEMV kernel reads each row in every workgroup, so it computes the mean square as well and divides the sums by the
root. For other products a separate kernel normalizes the rows. `passes/decoding/fuse_normed_products.py` creates it
from RMSNormalization and MatMulNBits.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import Array, TensorType, ValueType
from pyruntime.kernels import Dispatch, Role, Target, inp, scratch
from pyruntime.kernels.products.nbits import Normed
from pyruntime.kernels.rows.rows import Norm, normalize_rows, rows_of
from pyruntime.ops.base import Op, op
from pyruntime.ops.fused.paired_product import PairedProduct
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits
from pyruntime.ops.normalization.layer_normalization import RMSNormalization

__all__ = ["NormedProduct"]


@op("NormedProduct", opsets=range(1, 2), domain="pyruntime")
class NormedProduct(Op):
    """Inputs: the `count` inputs of `base`, the first one not normalized yet, then gain.

    Attributes:
        base: a MatMulNBits or a pair of them, with or without an epilogue.
        norm: normalization over the last dimension of x_0.
    """

    base: MatMulNBits | PairedProduct | WithEpilogue
    count: int
    norm: RMSNormalization

    @property
    def title(self) -> str:
        """Names of the fused operators, such as 'RMSNormalization + MatMulNBits'."""
        return f"{self.norm.title} + {self.base.title}"

    def _given(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the input types of `base`."""
        return (*self.norm.infer(inputs[0], inputs[self.count]), *inputs[1 : self.count])

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        return self.base.infer(*self._given(inputs))

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array) -> tuple[Array, ...]:
        (rows,) = self.norm.evaluate_typed((types[0], types[self.count]), inputs[0], inputs[self.count])
        return self.base.evaluate_typed(self._given(types), rows, *inputs[1 : self.count])

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        x, given = inp(0, inputs[0]), self._given(inputs)
        gain = inp(self.count, inputs[self.count])
        made = self._fused(target, Normed(x, gain, self.norm.epsilon), given)
        if made is not None:
            return made
        rows = scratch(given[0].dtype, *given[0].shape)
        shape = rows_of(x.type.shape, x.type.rank - 1, flatten=True)
        first = normalize_rows(target, rows, x, shape, Norm(self.norm.epsilon, True, gain))
        return (first, *(d.with_operand(Role.INPUT, 0, rows) for d in self.base.lower(target, *given)))

    def _fused(self, target: Target, rows: Normed, given: tuple[Any, ...]) -> tuple[Dispatch, ...] | None:
        """Return the product that normalizes its rows, or None if its kernel cannot."""
        base = self.base
        if not isinstance(base, WithEpilogue):
            return base.normed(target, rows, *given)
        inner: Any = base.base
        return base.attached(target, given, lambda _: inner.normed(target, rows, *given[: base.count]))
