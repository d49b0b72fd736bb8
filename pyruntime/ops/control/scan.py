"""Scan: run a body over slices of inputs. Source: ONNX operator Scan (opset 8: with batch axis; 9: without)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyruntime.ir import Graph, TensorType, ValueType, known
from pyruntime.ops.base import LATEST, attributes, op
from pyruntime.ops.control.body import Body, BodyOp, Values, empty_stack, stacked
from pyruntime.ops.interpreter import current


@attributes
class _Scan(BodyOp):
    """Base of all Scan versions: `body` maps N states and a slice of each of M inputs to N states and K outputs."""

    body: Graph
    num_scan_inputs: int

    def _tensors(self, values: Sequence[ValueType | None]) -> list[TensorType]:
        tensors = [v for v in values if isinstance(v, TensorType)]
        if len(tensors) != len(values) or len(values) < self.num_scan_inputs or self.num_scan_inputs < 1:
            self.fail(f"tensors, {self.num_scan_inputs} of them scan inputs", [str(v) for v in values])
        return tensors

    def _per_input(self, given: tuple[int, ...] | None, count: int, what: str) -> tuple[int, ...]:
        if given is not None and len(given) != count:
            self.fail(f"{count} {what}", list(given))
        return given if given is not None else (0,) * count

    def _slices(self, x: TensorType, axis: int, backward: int) -> list[ValueType]:
        moved = np.moveaxis(x.value(), axis, 0)
        type = TensorType(x.dtype, moved.shape[1:])
        return [known(type, part) for part in (moved[::-1] if backward else moved)]

    def _run(
        self, body: Body, states: Sequence[ValueType], slices: Sequence[Sequence[ValueType]]
    ) -> tuple[Values, list[Values]]:
        """Return the final states, and the per-step values of each of the K outputs."""
        lengths = {len(s) for s in slices}
        if len(lengths) != 1:
            self.fail("scan inputs of one length", sorted(lengths))
        outputs: list[list[ValueType]] = [[] for _ in body.outputs[len(states) :]]
        check = current().check
        for step in zip(*slices, strict=True):
            if check is not None:
                check()
            made = body(*states, *step)
            states = made[: len(states)]
            for output, value in zip(outputs, made[len(states) :], strict=True):
                output.append(value)
        return states, list(outputs)


@op("Scan", opsets=range(9, LATEST + 1))
class Scan(_Scan):
    """Slices input m along `scan_input_axes[m]`, backwards where `scan_input_directions[m]` is 1.

    Output k stacks the results of the steps along `scan_output_axes[k]`, the last step first where
    `scan_output_directions[k]` is 1.
    """

    scan_input_axes: tuple[int, ...] | None = None
    scan_input_directions: tuple[int, ...] | None = None
    scan_output_axes: tuple[int, ...] | None = None
    scan_output_directions: tuple[int, ...] | None = None

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        own, outer = self.split(inputs)
        tensors = self._tensors(own)
        count = len(tensors) - self.num_scan_inputs
        body = Body(self, self.body, outer)
        axes = self._per_input(self.scan_input_axes, self.num_scan_inputs, "scan_input_axes")
        backward = self._per_input(self.scan_input_directions, self.num_scan_inputs, "scan_input_directions")
        slices = [
            self._slices(x, self.axis_of(axis, x.rank), b)
            for x, axis, b in zip(tensors[count:], axes, backward, strict=True)
        ]
        states, outputs = self._run(body, tensors[:count], slices)
        infos = body.outputs[count:]
        axes = self._per_input(self.scan_output_axes, len(infos), "scan_output_axes")
        backward = self._per_input(self.scan_output_directions, len(infos), "scan_output_directions")
        ends = [
            stacked(self, values, axis, bool(b)) if values else empty_stack(self, info, axis)
            for values, info, axis, b in zip(outputs, infos, axes, backward, strict=True)
        ]
        return (*states, *ends)


@op("Scan", opsets=range(8, 9))
class ScanBatched(_Scan):
    """Scan with a leading batch axis in all inputs and outputs; the sequence axis is the second one.

    sequence_lens: int64 [batch], number of steps per batch entry. Scan outputs are zero after them.
    """

    directions: tuple[int, ...] | None = None

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        own, outer = self.split(inputs)
        lengths, tensors = own[0], self._tensors(own[1:])
        count = len(tensors) - self.num_scan_inputs
        body = Body(self, self.body, outer)
        backward = self._per_input(self.directions, self.num_scan_inputs, "directions")
        batches = {x.shape[:1] for x in tensors}
        if len(batches) != 1 or batches == {()}:
            self.fail("inputs with one batch axis", [str(x) for x in tensors])
        if batches == {(0,)}:
            self.fail("a batch of at least one", 0)
        batch, steps = tensors[0].shape[0], max(x.shape[1] for x in tensors[count:])
        limit = lengths.ints() if isinstance(lengths, TensorType) else (steps,) * batch
        if len(limit) != batch or any(not 0 <= n <= steps for n in limit):
            self.fail(f"{batch} sequence_lens of at most {steps}", list(limit))
        entries = []
        for entry, steps_here in enumerate(limit):
            first = [_part(x, entry) for x in tensors]
            slices = [
                self._slices(_part(x, slice(steps_here)), 0, b) for x, b in zip(first[count:], backward, strict=True)
            ]
            states, outputs = self._run(body, first[:count], slices)
            infos = body.outputs[count:]
            scans = [
                _padded(stacked(self, v) if v else empty_stack(self, i), steps)
                for v, i in zip(outputs, infos, strict=True)
            ]
            entries.append((*states, *scans))
        return tuple(stacked(self, values) for values in zip(*entries, strict=True))


def _part(x: TensorType, index: int | slice) -> TensorType:
    part = x.value()[index]
    return TensorType(x.dtype, part.shape, lambda: part)


def _padded(x: ValueType, length: int) -> ValueType:
    assert isinstance(x, TensorType)
    array = x.value()
    y = np.zeros((length, *array.shape[1:]), array.dtype)
    y[: len(array)] = array
    return known(TensorType(x.dtype, y.shape), y)
