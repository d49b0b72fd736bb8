"""DynamicQuantizeLSTM: LSTM with 8-bit weights. Source: onnxruntime, com.microsoft."""

from __future__ import annotations

from typing import Any

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import attributes_of, op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.products.matmul_integer_to_float import MatMulIntegerToFloat
from pyruntime.ops.operands import named
from pyruntime.ops.recurrent.recurrent import RecurrentAttributes
from pyruntime.ops.recurrent.rounded_lstm import CHUNK, RoundedLstm
from pyruntime.ops.registry import newest


@op("DynamicQuantizeLSTM", opsets=range(1, 2), domain="com.microsoft")
class DynamicQuantizeLSTM(RecurrentAttributes, Decomposed):
    """LSTM with input weights w = (W - W_zero) · W_scale and recurrent weights r = (R - R_zero) · R_scale.

    x: float [T, B, I]; W: int8 or uint8 [D, I, 4·H], R: [D, H, 4·H] (transposed compared to LSTM); scales and zero
    points: [D], or [D, 4·H] per column; b: [D, 8·H]; states [D, B, H]; P: [D, 3·H]. Outputs as in LSTM. x is quantized
    to uint8 as by DynamicQuantizeLinear, over all time steps that some sequence has. h is quantized at each step over
    the whole batch, as onnxruntime does with one thread (with more threads it uses separate ranges for parts of the
    batch).
    """

    operands = named("x w r b? lens? h? c? p? w_scale w_zero r_scale r_zero")

    input_forget: int = 0

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        x, w, r, b, lens, h, c, p, w_scale, w_zero, r_scale, r_zero = self.operands(*inputs)
        attributes = attributes_of(self) | {"present": tuple(self.wants(i) for i in range(3))}
        steps = RoundedLstm(**attributes)
        self._check(x, (w, w_scale, w_zero), (r, r_scale, r_zero), len(steps.directions))
        gates = self._inputs(body, x, w, w_scale, w_zero, b, lens)
        rows, columns = _rows(body, r, r_scale, r_zero)
        return body.apply(steps, gates, rows, columns, lens, h, c, p)

    def _check(
        self,
        x: TensorType,
        w: tuple[TensorType, TensorType, TensorType],
        r: tuple[TensorType, TensorType, TensorType],
        directions: int,
    ) -> None:
        if x.rank != 3 or r[0].rank != 3:
            self.fail("x [steps, batch, features] and R [directions, units, gates]", f"{x} and {r[0]}")
        gates = 4 * r[0].shape[1]
        for name, (weights, scale, zero), inner in (("W", w, x.shape[2]), ("R", r, r[0].shape[1])):
            if weights.shape != (directions, inner, gates):
                self.fail(f"{name} of shape {[directions, inner, gates]}", weights)
            for given in (scale, zero):
                if given.shape not in ((directions,), (directions, gates)):
                    self.fail(f"scales and zero points [{directions}] or [{directions}, {gates}]", given)

    def _inputs(
        self,
        body: Expansion,
        x: TensorType,
        w: TensorType,
        scale: TensorType,
        zero: TensorType,
        b: TensorType | None,
        lens: TensorType | None,
    ) -> TensorType:
        """Return [T, B, D·4·H]: quantized x times W, plus both biases."""
        time = x.shape[0]
        directions, features, gates = w.shape
        if lens is not None:  # steps past the longest sequence do not affect the range
            step = body("Range", *(body.number(n, DType.INT32) for n in (0, time, 1)))
            some = body("Less", step, body("ReduceMax", lens, keepdims=1))
            some = body("Reshape", some, body.ints(time, 1, 1))
            x = body("Where", some, x, body.number(0, DType.FLOAT))
        q, x_scale, x_zero = body.apply(newest("DynamicQuantizeLinear", present=(True, True, True)), x)
        columns = body.ints(directions * gates)
        flat = body("Reshape", body("Transpose", w, perm=(1, 0, 2)), body.ints(features, directions * gates))
        scales, zeros = (body("Reshape", _whole(body, v, directions, gates), columns) for v in (scale, zero))
        bias = None
        if b is not None:
            halves = body("Reshape", b, body.ints(directions, 2, gates))
            bias = body("Reshape", body("ReduceSum", halves, body.ints(1), keepdims=0), columns)
        (product,) = MatMulIntegerToFloat().expand(body, q, flat, x_scale, scales, x_zero, zeros, bias)
        assert product is not None
        return product


def _whole(body: Expansion, given: TensorType, directions: int, gates: int) -> TensorType:
    """Expand scales or zero points [D] or [D, 4·H] to [D, 4·H]."""
    rows = body("Reshape", given, body.ints(directions, -1))
    return body("Expand", rows, body.ints(directions, gates))


def _rows(body: Expansion, r: TensorType, scale: TensorType, zero: TensorType) -> tuple[TensorType, TensorType]:
    """Return R [D, H, 4·H] as rows [D, 4·H, H padded], and the column data that RoundedLstm takes."""
    directions, units, gates = r.shape
    along = body("Reshape", zero, body.ints(directions, 1, -1))
    centred = body("Sub", body.cast(r, DType.INT32), body.cast(along, DType.INT32))
    sums = body.cast(body("ReduceSum", centred, body.ints(1), keepdims=0), DType.FLOAT)
    zeros = body.cast(_whole(body, zero, directions, gates), DType.FLOAT)
    if r.dtype is DType.UINT8:
        zeros = body("Sub", zeros, body.number(128, DType.FLOAT))
    parts = (_whole(body, scale, directions, gates), zeros, sums)
    columns = body("Concat", *(body("Unsqueeze", v, body.ints(1)) for v in parts), axis=1)
    rows = body("Transpose", r, perm=(0, 2, 1))
    return body("Pad", rows, body.ints(0, 0, 0, 0, 0, -units % CHUNK)), columns
