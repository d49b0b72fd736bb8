"""AttentionProduct: split-KV attention whose partial results are reduced by the packed matrix product that reads them.

    y = base(attention(x_0, ..., x_m), z_1, ..., z_n)

Attention with few queries splits the keys across workgroups (flash decoding), and needs a second dispatch to reduce the
partial results. A GEMV kernel reads each row in every workgroup anyway, so it reduces them while reading.
`passes/decoding/fuse_attention_product.py` creates it from an attention and a MatMulNBits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyruntime.ir import Array, TensorType, ValueType
from pyruntime.kernels import Dispatch, Role, Target, scratch
from pyruntime.kernels.ir.dispatch import Partials
from pyruntime.ops.base import Op, op
from pyruntime.ops.caches import CacheOp, overwritten
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits

__all__ = ["AttentionProduct"]


@op("AttentionProduct", opsets=range(1, 2), domain="pyruntime")
class AttentionProduct(CacheOp):
    """Inputs: the `count` inputs of `attention`, then inputs 1, 2, ... of `base`.

    Input 0 of `base` is the attention's output. Outputs: that of `base`, then outputs 1, 2, ... of `attention`.

    Attributes:
        base: a MatMulNBits, with or without an epilogue.
    """

    attention: Op
    base: MatMulNBits | WithEpilogue
    count: int

    @property
    def title(self) -> str:
        """Names of the fused operators, such as 'GroupQueryAttention + MatMulNBits + Add'."""
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
        partials = first[-1].partials if first else None
        reducing = self._reducing(target, partials, given) if partials is not None else None
        if reducing is not None:
            return (*first[:-1], *self._renumbered(reducing))
        rows = scratch(kind.dtype, *kind.shape)
        product = (d.with_operand(Role.INPUT, 0, rows) for d in self.base.lower(target, *given))
        return (*(d.with_operand(Role.OUTPUT, 0, rows) for d in first), *self._renumbered(product))

    def _reducing(
        self, target: Target, partials: Partials, given: tuple[TensorType, ...]
    ) -> tuple[Dispatch, ...] | None:
        """Return the product that reduces `partials`, or None if its kernel cannot."""
        base = self.base
        if not isinstance(base, WithEpilogue):
            return base.reducing(target, partials, *given)
        inner: Any = base.base
        return base.attached(target, given, lambda _: inner.reducing(target, partials, *given[: base.count]))

    def _renumbered(self, product: Iterable[Dispatch]) -> Iterator[Dispatch]:
        """Yield dispatches of `base` with their inputs renumbered to those of this operator."""
        for dispatch in product:
            operands = tuple(
                replace(o, index=o.index + self.count - 1) if o.role is Role.INPUT else o for o in dispatch.operands
            )
            yield replace(dispatch, operands=operands)
