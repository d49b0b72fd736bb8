"""WithNorm: a matrix product with an epilogue, followed by normalization of its rows.

    p = base(x_0, ..., x_n), y = norm(p, scale[, bias])

Row r of y may be stored as row `places[r]`. A split-K product normalizes in the kernel that reduces its partial sums;
for other products a separate kernel follows. `passes/fusion/fuse_product_norm.py` creates it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pyruntime.ir import Array, TensorType, ValueType
from pyruntime.kernels import Dispatch, Role, Target, inp, out, scratch
from pyruntime.kernels.ir.node import for_node
from pyruntime.kernels.rows.rows import Norm, normalize_rows, rows_of
from pyruntime.kernels.rows.split_norm import sum_and_normalize
from pyruntime.ops.base import Op, op
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.normalization.skip_norm import placed

__all__ = ["WithNorm"]


@op("WithNorm", opsets=range(1, 2), domain="pyruntime")
class WithNorm(Op):
    """The first `count` inputs are those of `base`; scale and bias follow. Outputs: y, and optionally p.

    Attributes:
        norm: LayerNormalization or RMSNormalization over the last dimension.
        moves: the last input is `places`, uint32 [rows], a permutation.
    """

    base: WithEpilogue
    count: int
    norm: Op
    moves: bool = False

    @property
    def title(self) -> str:
        """Names of the fused operators, such as 'MatMul + Add + LayerNormalization'."""
        return f"{self.base.title} + {self.norm.title}"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        product: Any = self.base.infer(*inputs[: self.count])[0]
        normal: Any = self.norm.infer(product, *self._weights(inputs))[0]
        return normal, product

    def _weights(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return scale, and bias where there is one."""
        return inputs[self.count : len(inputs) - self.moves]

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array) -> tuple[Array, ...]:
        kind = self.base.infer(*types[: self.count])[0]  # type: ignore[arg-type]
        product = self.base.evaluate_typed(types[: self.count], *inputs[: self.count])[0]
        normal = self.norm.evaluate_typed((kind, *self._weights(types)), product, *self._weights(inputs))[0]
        return placed(normal, inputs[-1]) if self.moves else normal, product

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        given, weights = inputs[: self.count], self._weights(inputs)
        normal, product = self.infer(*inputs)
        y = out(0, normal)
        p = out(1, product) if self.wants(1) else None
        scale, bias = (inp(self.count + i, w) for i, w in enumerate((*weights, weights[0])[:2]))
        form: Any = self.norm
        shift = bias if len(weights) > 1 else None
        places = inp(len(inputs) - 1, inputs[-1]) if self.moves else None
        norm = Norm(form.epsilon, self.norm.op_type == "RMSNormalization", scale, shift, places=places)
        hinted = for_node(target, norm_follows=True)
        fused = self.base.attached(hinted, given, partial(sum_and_normalize, target, y=y, p=p, norm=norm))
        if fused is not None:
            # The epilogue reads rows of its operands that a permuted store would already have overwritten.
            return (*fused[:-1], replace(fused[-1], inplace=())) if self.moves else fused
        p = p or scratch(product.dtype, *product.shape)
        rows = rows_of(product.shape, product.rank - 1, flatten=True)
        made = (d.with_operand(Role.OUTPUT, 0, p) for d in self.base.lower(hinted, *given))
        return (*made, normalize_rows(target, y, p, rows, norm))
