"""SequenceMap: apply a body to each element of sequences. Source: ONNX operator SequenceMap."""

from __future__ import annotations

from pyruntime.ir import Graph, SequenceType, ValueType, of_element
from pyruntime.ops.base import LATEST, op
from pyruntime.ops.control.body import Body, BodyOp, sequence_of


@op("SequenceMap", opsets=range(17, LATEST + 1))
class SequenceMap(BodyOp):
    """y[i] = body(x[i], ...): further sequences contribute their element i, tensors are passed unchanged."""

    body: Graph

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        own, outer = self.split(inputs)
        first = own[0] if own else None
        if not isinstance(first, SequenceType) or None in own:
            self.fail("a sequence first, and no absent inputs", [str(x) for x in own])
        length = len(first.value())
        lengths = {len(x.value()) for x in own if isinstance(x, SequenceType)}
        if len(lengths) != 1:
            self.fail("sequences of one length", sorted(lengths))
        body = Body(self, self.body, outer)
        trips = [
            body(*(of_element(x.element, x.value()[i]) if isinstance(x, SequenceType) else x for x in own))
            for i in range(length)
        ]
        return tuple(sequence_of(self, info, [t[k] for t in trips]) for k, info in enumerate(body.outputs))
