"""BiasAdd: y = x + bias + skip. BiasSoftmax: y = softmax(data + bias). Source: com.microsoft."""

from __future__ import annotations

import math

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("BiasAdd", opsets=range(1, 2), domain="com.microsoft")
class BiasAdd(Decomposed):
    """x: [N, S, D], bias: [D], skip: [N, S, D], floats of one type."""

    def expand(
        self, body: Expansion, x: TensorType, bias: TensorType, skip: TensorType
    ) -> tuple[TensorType | None, ...]:
        if bias.shape != x.shape[-1:] or skip.shape != x.shape:
            self.fail("a bias as long as the last axis of x, and a skip of its shape", f"{bias} and {skip} for {x}")
        return (body("Add", body("Add", x, bias), skip),)


@op("BiasSoftmax", opsets=range(1, 2), domain="com.microsoft")
class BiasSoftmax(Decomposed):
    """Softmax over all elements of the dimensions from `axis` on.

    bias broadcasts over some dimensions before `axis`: trailing ones of them with is_inner_broadcast, else leading
    ones, which may be missing.
    """

    axis: int = 1
    is_inner_broadcast: int

    def expand(self, body: Expansion, data: TensorType, bias: TensorType) -> tuple[TensorType | None, ...]:
        axis = self.axis_of(self.axis, data.rank)
        if self.is_inner_broadcast and bias.rank < data.rank:
            lead = bias.rank - (data.rank - axis)
            if lead < 0:
                self.fail("a bias of the dimensions that the softmax is over", f"{bias} for {data}")
            shape = (*bias.shape[:lead], *(1,) * (data.rank - bias.rank), *bias.shape[lead:])
            bias = body("Reshape", bias, body.ints(*shape))
        scores = body("Add", data, bias)
        if scores.shape != data.shape:
            self.fail("a bias that broadcasts to data", f"{bias} for {data}")
        if axis == data.rank - 1:
            return (body("Softmax", scores, axis=-1),)
        rows = body("Reshape", scores, body.ints(*data.shape[:axis], math.prod(data.shape[axis:])))
        return (body("Reshape", body("Softmax", rows, axis=-1), body.ints(*data.shape)),)
