"""PairedProduct: f(a Gᵀ, a Uᵀ) of two packed matrix products in one kernel, such as the gate and values of SwiGLU.

Rows of G and U alternate in the weights, so one thread computes both results of a column.
`passes/decoding/pair_products.py` creates it from two MatMulNBits of the same rows and their consumers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType, ValueType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out, scratch
from pyruntime.kernels.ir.dispatch import Operand, Role
from pyruntime.kernels.ir.pairing import Pairing
from pyruntime.kernels.products.nbits import Normed, paired_product
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.fused.elementwise import FusedElementwise, Pointwise
from pyruntime.ops.microsoft.products.matmul_nbits import MatMulNBits

__all__ = ["PairedProduct"]


@op("PairedProduct", opsets=range(1, 2), domain="pyruntime")
class PairedProduct(Op):
    """Inputs: those of `base`, which has 2 N columns for N columns of y. The inputs of `chain` are the two products."""

    base: MatMulNBits
    chain: FusedElementwise

    @property
    def title(self) -> str:
        """Names of the fused operators, such as 'MatMulNBits x 2 + Sigmoid + Mul + Mul'."""
        return f"{self.base.title} x 2 + {self.chain.title}"

    def _halves(self, *inputs: Any) -> tuple[TensorType, TensorType]:
        """Return the type of both products together, and the type of one."""
        (both,) = self.base.infer(*inputs)
        return both, both.with_shape(*both.shape[:-1], self.base.N // 2)

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        _, half = self._halves(*inputs)
        return self.chain.infer(half, half)

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array) -> tuple[Array, ...]:
        _, half = self._halves(*types)
        (both,) = self.base.evaluate_typed(types, *inputs)
        first, second = (np.ascontiguousarray(both[..., i::2]) for i in (0, 1))
        return self.chain.evaluate_typed((half, half), first, second)

    def lower(self, target: Target, *inputs: TensorType | None) -> tuple[Dispatch, ...]:
        x, b, scales, zeros = (*inputs, None)[:4]
        assert x is not None and b is not None and scales is not None
        made = self._fused(target, inp(0, x), inputs)
        if made is not None:
            return made
        both, _ = self._halves(*inputs)
        chain, name = self._chain(inputs)
        y = out(0, self.infer(*inputs)[0])
        between = scratch(both.dtype, *both.shape)
        first = [d.with_operand(Role.OUTPUT, 0, between) for d in self.base.lower(target, x, b, scales, zeros)]
        numbers = "".join(f"let {n} = params.{n};\n  " for n in chain.scalars)
        element = f"let in0 = load_both(2u * i);\n  let in1 = load_both(2u * i + 1u);\n  {numbers}{chain.code}"
        kinds = {n: "i32" for n, v in chain.scalars.items() if isinstance(v, int)}
        source = [Source("both", between)]
        last = gather_map(target, f"pairs_{name}", y, source, element, chain.scalars, chain.helpers, kinds=kinds)
        return (*first, last)

    def normed(self, target: Target, rows: Normed, *inputs: TensorType | None) -> tuple[Dispatch, ...] | None:
        """Return dispatches of the products of rows that they also normalize, or None if the kernel cannot."""
        return self._fused(target, rows, inputs)

    def _fused(
        self, target: Target, rows: Operand | Normed, inputs: tuple[TensorType | None, ...]
    ) -> tuple[Dispatch, ...] | None:
        """Return both products and the chain as one kernel, or None if there is no such kernel."""
        both, _ = self._halves(*inputs)
        chain, name = self._chain(inputs)
        _, b, scales, zeros = (*inputs, None)[:4]
        assert b is not None and scales is not None
        pairing = Pairing(name, chain.code, chain.helpers, chain.scalars)
        packed = self.base.packed(b, scales, zeros, None)
        y = out(0, self.infer(*inputs)[0])
        return paired_product(target, y, rows, packed, self.base.product(both), pairing)

    def _chain(self, inputs: tuple[TensorType | None, ...]) -> tuple[Pointwise, str]:
        """Return the chain's WGSL, and its name."""
        _, half = self._halves(*inputs)
        chain = self.chain.pointwise((half, half))
        if chain is None:
            raise Unsupported("a step of the chain has no WGSL for these types")
        return chain, "_".join(s.op.op_type.lower() for s in self.chain.steps[:3])
