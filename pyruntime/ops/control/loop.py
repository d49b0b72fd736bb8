"""Loop: a `for` and `while` loop over a subgraph. Source: ONNX operator Loop."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir import DeclaredTensor, DType, Graph, ValueType
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.control.body import Body, BodyOp, empty_stack, permit, stacked, truth, without_rows


@op("Loop", opsets=range(1, LATEST + 1))
class Loop(BodyOp):
    """cond, v.., scan.. = body(i, cond, v..) for i = 0, 1, ... while i < M and cond.

    M: int64, unlimited if absent; cond: bool, true if absent. The outputs are the last values of v (tensors, sequences,
    optionals), then the scan outputs of all iterations, stacked along a new first axis.

    Raises:
        RuntimeException: more iterations than `Limits.loop_trips`.
    """

    body: Graph

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        own, outer = self.split(inputs)
        bound, cond, *carried = own + [None] * (len(self.body.inputs) - len(own))
        going = cond is None or truth(self, cond)
        trips = None if bound is None else int(bound.value().reshape(()))
        body = Body(self, self.body, outer)
        if len(body.outputs) < 1 + len(carried):
            self.fail(f"a body with the condition and {len(carried)} carried outputs", f"{len(body.outputs)} outputs")
        scans: list[list[ValueType]] = [[] for _ in body.outputs[1 + len(carried) :]]
        trip = 0
        while going and (trips is None or trip < trips):
            permit(self, trip)
            again, *made = body(body.scalar(0, trip, DType.INT64), body.scalar(1, going, DType.BOOL), *carried)
            going = truth(self, again)
            carried = [*made[: len(carried)]]
            for scan, value in zip(scans, made[len(carried) :], strict=True):
                scan.append(value)
            trip += 1
        ends = [stacked(self, scan) for scan in scans] if trip else self._no_rows(body, carried)
        finals = [body.given(2 + k, value) for k, value in enumerate(carried)]
        return (*finals, *ends)

    def _no_rows(self, body: Body, carried: Sequence[ValueType | None]) -> list[ValueType]:
        """The scan outputs of no trip. What the body does not declare has the type that a first trip would give it."""
        infos = body.outputs[1 + len(carried) :]
        if all(isinstance(info.type, DeclaredTensor) for info in infos):
            return [empty_stack(self, info) for info in infos]
        made = body(body.scalar(0, 0, DType.INT64), body.scalar(1, True, DType.BOOL), *carried)
        return [
            empty_stack(self, info) if isinstance(info.type, DeclaredTensor) else without_rows(self, value)
            for info, value in zip(infos, made[1 + len(carried) :], strict=True)
        ]
