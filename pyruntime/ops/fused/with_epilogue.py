"""WithEpilogue: an operator and an elementwise chain that its kernel applies to each result before storing it.

    y = chain(base(x_0, ..., x_n), z_1, ..., z_m)

The chain is a bias, activation, residual or similar. Where the operator's kernel does not support epilogues, a second
dispatch applies it. `passes/fusion/fuse_epilogue.py` creates it from Conv, Gemm, MatMul and others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyruntime.ir import Array, TensorType, ValueType
from pyruntime.kernels import Dispatch, Operand, Role, Target, elementwise, inp, out, scratch
from pyruntime.kernels.ir.elementwise_epilogue import ElementwiseEpilogue, attach_elementwise, classify, is_long
from pyruntime.kernels.ir.node import for_node
from pyruntime.kernels.legalize import in_parts
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.fused.elementwise import FusedElementwise, Pointwise

__all__ = ["WithEpilogue"]

Adapt = Callable[[tuple[Dispatch, ...]], tuple[Dispatch, ...] | None]


@op("WithEpilogue", opsets=range(1, 2), domain="pyruntime")
class WithEpilogue(Op):
    """The first `count` inputs are those of `base`. Its result is input 0 of the chain, whose other inputs follow."""

    base: Op
    count: int
    chain: FusedElementwise

    @property
    def title(self) -> str:
        """Names of the operator and the chain, such as 'Conv + Relu'."""
        return f"{self.base.title} + {self.chain.title}"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        result: Any = self.base.infer(*inputs[: self.count])[0]
        return self.chain.infer(result, *inputs[self.count :])

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Array) -> tuple[Array, ...]:
        kind = self.base.infer(*types[: self.count])[0]
        result = self.base.evaluate_typed(types[: self.count], *inputs[: self.count])[0]
        return self.chain.evaluate_typed((kind, *types[self.count :]), result, *inputs[self.count :])

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        fused = self.attached(target, inputs)
        if fused is not None:
            return fused
        result: Any = self.base.infer(*inputs[: self.count])[0]
        chain, operands = self._chain(inputs, result)
        y = out(0, chain.result)
        between = scratch(result.dtype, *result.shape)
        first = tuple(d.with_operand(Role.OUTPUT, 0, between) for d in self.base.lower(target, *inputs[: self.count]))
        name = f"after_{self.base.op_type.lower()}"
        return (
            *first,
            elementwise(target, name, {"in0": between, **operands}, y, chain.code, chain.scalars, chain.helpers),
        )

    def attached(
        self, target: Target, inputs: tuple[TensorType, ...], adapt: Adapt | None = None
    ) -> tuple[Dispatch, ...] | None:
        """Return the operator's dispatches with the chain in the last one, or None if that is not possible.

        Args:
            adapt: replaces the operator's dispatches by others, or returns None.
        """
        result: Any = self.base.infer(*inputs[: self.count])[0]
        chain, operands = self._chain(inputs, result)
        hinted = for_node(target, long_epilogue=is_long(chain.helpers))
        dispatches = self.base.lower(hinted, *inputs[: self.count])
        adapted = adapt(dispatches) if adapt is not None and dispatches else dispatches
        epilogue = self._epilogue(chain, operands, result) if adapted else None
        attached = attach_elementwise(adapted[-1], epilogue) if adapted and epilogue is not None else None
        if not adapted or attached is None or in_parts(target, attached).bound > target.limits.storage_buffers:
            return None
        return (*adapted[:-1], attached)

    def _chain(self, inputs: tuple[TensorType, ...], result: TensorType) -> tuple[Pointwise, dict[str, Operand]]:
        """Return the chain's WGSL, and its operands except the result of `base`."""
        others = inputs[self.count :]
        chain = self.chain.pointwise((result, *others))
        if chain is None:
            raise Unsupported("a step of the chain has no WGSL for these types")
        return chain, {f"in{i}": inp(self.count + i - 1, others[i - 1]) for i in chain.inputs if i}

    def _epilogue(
        self, chain: Pointwise, operands: dict[str, Operand], result: TensorType
    ) -> ElementwiseEpilogue | None:
        placed = {}
        for name, operand in operands.items():
            access = classify(operand.type, result)
            if access is None:
                return None
            placed[name] = (operand, access)
        name = "_".join(s.op.op_type.lower() for s in self.chain.steps[:3])
        return ElementwiseEpilogue(
            name, chain.code, chain.helpers, placed, chain.scalars, result.dtype, chain.result.dtype
        )
