"""AttentionProduct: a split-KV attention whose partial results the packed matrix product after it reduces.

    y = base(attention(x_0, ..., x_m), z_1, ..., z_n)

Attention of few queries splits the keys across workgroups (flash decoding), and a second dispatch reduces their partial
results. A skinny product reads each row in every workgroup anyway, so its kernel reduces them while it reads.
Source: an attention and its MatMulNBits, which `passes/decoding/fuse_attention_product.py` fuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyruntime.ir import Array, TensorType, ValueType
from pyruntime.kernels import Dispatch, Operand, Role, Target, scratch
from pyruntime.kernels.ir.dispatch import Partials
from pyruntime.ops.base import Op, op
from pyruntime.ops.caches import CacheOp, overwritten
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits

__all__ = ["AttentionProduct"]


@op("AttentionProduct", opsets=range(1, 2), domain="pyruntime")
class AttentionProduct(CacheOp):
    """Inputs: the `count` inputs of `attention`, then those of `base` without its first, which is the attention's y.

    Outputs: that of `base`, then the others of `attention`, at the indices that they have there.

    base: a MatMulNBits, with an epilogue or without.
    """

    attention: Op
    base: MatMulNBits | WithEpilogue
    count: int

    @property
    def title(self) -> str:
        """The operators it fuses, such as 'GroupQueryAttention + MatMulNBits + Add'."""
        return f"{self.attention.title} + {self.base.title}"

    @property
    def overwrites(self) -> Mapping[int, int]:
        return overwritten(self.attention)

    def infer(self, *inputs: Any) -> tuple[ValueType, ...]:
        made: tuple[Any, ...] = self.attention.infer(*inputs[: self.count])
        rows, *others = made
        return (*self.base.infer(rows, *inputs[self.count :]), *others)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array) -> tuple[Array, ...]:
        rows, *others = self.attention.evaluate_typed(types[: self.count], *inputs[: self.count])
        kind: Any = self.attention.infer(*types[: self.count])[0]
        made = self.base.evaluate_typed((kind, *types[self.count :]), rows, *inputs[self.count :])
        return (*made, *others)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        kind: Any = self.attention.infer(*inputs[: self.count])[0]
        given: tuple[TensorType, ...] = (kind, *inputs[self.count :])
        first = self.attention.lower(target, *inputs[: self.count])
        shares = first[-1].partials if first else None
        joined = self._joined(target, shares, given) if shares is not None else None
        if joined is not None:
            return (*first[:-1], *self._numbered(joined))
        rows = scratch(kind.dtype, *kind.shape)
        product = (d.with_operand(Role.INPUT, 0, rows) for d in self.base.lower(target, *given))
        return (*(d.with_operand(Role.OUTPUT, 0, rows) for d in first), *self._numbered(product, rows))

    def _joined(self, target: Target, shares: Partials, given: tuple[TensorType, ...]) -> tuple[Dispatch, ...] | None:
        """The product that joins its rows; None where its kernel does not."""
        base = self.base
        if not isinstance(base, WithEpilogue):
            return base.joining(target, shares, *given)
        inner: Any = base.base
        return base.attached(target, given, lambda _: inner.joining(target, shares, *given[: base.count]))

    def _numbered(self, product: Any, rows: Operand | None = None) -> Iterator[Dispatch]:
        """Dispatches of `base`, whose inputs have the numbers that they have here."""
        for dispatch in product:
            operands = tuple(
                replace(o, index=o.index + self.count - 1) if o.role is Role.INPUT else o for o in dispatch.operands
            )
            yield replace(dispatch, operands=operands)
