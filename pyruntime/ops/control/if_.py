"""If: run `then_branch` or `else_branch` depending on a condition. Source: ONNX operator If."""

from __future__ import annotations

from pyruntime.ir import Graph, ValueType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.control.body import Body, BodyOp, truth


@op("If", opsets=range(1, LATEST + 1))
class If(BodyOp):
    """cond: bool, one element. Only the selected branch runs. The branches may return different shapes."""

    then_branch: Graph
    else_branch: Graph

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        own, outer = self.split(inputs)
        if len(own) != 1 or own[0] is None:
            self.fail("one input, the condition", len(own))
        return Body(self, self.then_branch if truth(self, own[0]) else self.else_branch, outer)()
