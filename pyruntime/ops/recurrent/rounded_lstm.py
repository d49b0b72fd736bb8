"""RoundedLstm: LSTM steps with 8-bit recurrent weights and states, for DynamicQuantizeLSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.kernels.recurrent import Bytes, Layer, recurrent
from pyruntime.ops.base import op
from pyruntime.ops.operands import bound, named
from pyruntime.ops.quantization.dynamic_quantize_linear import DynamicQuantizeLinear
from pyruntime.ops.recurrent.recurrent import LSTM, order_of, reordered

__all__ = ["CHUNK", "RoundedLstm"]

CHUNK = 16
"""Bytes that a kernel loads at a time; rows of weights are padded to a multiple."""


@op("RoundedLstm", opsets=range(1, 2), domain="pyruntime")
class RoundedLstm(LSTM):
    """LSTM with z = x + scale · h_scale · (q - h_zero)(r - r_zero)ᵀ; q, h_scale, h_zero = DynamicQuantizeLinear(h).

    x: float [T, B, D·4·H], inputs times W plus biases; r: int8 or uint8 [D, 4·H, H padded to `CHUNK`]; columns: float
    [D, 3, 4·H], the scales of r's rows, their zero points (minus 128 for uint8), and the sums of r - r_zero.
    sequence_lens, initial states and peepholes as in LSTM. The range of h is over the whole batch.
    """

    operands = named("x r columns sequence_lens? initial_h? initial_c? p?")

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, r, _, lens, h, c, p = inputs
        D, H = len(self.directions), r.shape[1] // 4
        time, batch = x.shape[:2]
        if self.hidden_size not in (None, H):
            self.fail(f"R for {self.hidden_size} units", f"{H} units")
        self.functions()
        expected = (
            ("an initial state", h, (D, batch, H)),
            ("an initial state", c, (D, batch, H)),
            ("P", p, (D, 3 * H)),
            ("sequence_lens", lens, (batch,)),
        )
        for name, value, shape in expected:
            if value is not None and value.shape != shape:
                self.fail(f"{name} of shape {list(shape)}", value)
        states = (TensorType(x.dtype, (D, batch, H)),) * 2
        return (TensorType(x.dtype, (time, D, batch, H)), *states)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        self.check_bounds(*inputs)
        x, r, columns, lens, h0, c0, p = inputs
        time, batch = x.shape[:2]
        rows, H = r.shape[1], r.shape[1] // 4
        lengths = np.full(batch, time) if lens is None else lens
        made = []
        for d, (backward, functions) in enumerate(zip(self.directions, self.functions(), strict=True)):
            order = order_of(time, lengths) if backward else None
            xw = reordered(x[:, :, d * rows : (d + 1) * rows], order)
            scale, zero, _ = columns[d]
            weights = r[d, :, :H].astype(np.float32) - (128 if r.dtype == np.uint8 else 0) - zero[:, None]
            hidden, cell = (np.zeros((batch, H), np.float32) if s is None else s[d] for s in (h0, c0))
            y = np.zeros((time, batch, H), np.float32)
            for t in range(lengths.max(initial=0)):
                q, h_scale, h_zero = DynamicQuantizeLinear().evaluate(np.where((t <= lengths)[:, None], hidden, 0))
                sums = (q.astype(np.float32) - h_zero) @ weights.T
                z = xw[t] + sums * (h_scale * scale)
                running = (t < lengths)[:, None]
                new = self.gated(z, None if p is None else p[d], functions, cell)
                hidden, cell = (np.where(running, n, old) for n, old in zip(new, (hidden, cell), strict=True))
                y[t] = np.where(running, hidden, 0)
            began = (lengths > 0)[:, None]
            made.append((reordered(y, order), np.where(began, hidden, 0), np.where(began, cell, 0)))
        ys, hiddens, cells = zip(*made, strict=True)
        return np.stack(ys, axis=1), np.stack(hiddens), np.stack(cells)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        x, r, columns, lens, h0, c0, p = bound(self.operands, inputs)
        has_zeros = not columns.type.is_known or bool(columns.type.value()[:, 1].any())
        layer = Layer(
            kind="LSTM",
            x=x,
            w=None,
            r=r,
            bias=None,
            lens=lens,
            h0=h0,
            c0=c0,
            peephole=p,
            gates=4,
            backward=self.directions,
            functions=tuple(tuple(g.wgsl for g in functions) for functions in self.functions()),
            batch_first=False,
            clip=self.clip,
            input_forget=bool(self.input_forget),
            reset_first=False,
            rounded=Bytes(columns, has_zeros),
        )
        wanted = (out(i, t) if self.wants(i) else None for i, t in enumerate(self.infer(*inputs)))
        return recurrent(target, layer, *wanted)
