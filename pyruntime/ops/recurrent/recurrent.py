"""LSTM, GRU and RNN. Source: ONNX operators; the formulas are in the classes.

x: [T, B, I] (layout 1: [B, T, I]), w: [D, G·H, I], r: [D, G·H, H], b: [D, 2·G·H] with D directions, G gates, H units.
y: [T, D, B, H] (layout 1: [B, T, D, H]), y_h and y_c: [D, B, H] (layout 1: [B, D, H]). As in onnxruntime, a sequence
shorter than T has zeros at the end of y and its last state in y_h and y_c (zeros for an empty sequence). The reverse
direction starts at the sequence's last element. `clip` bounds the inputs of the activations. 16-bit floats are computed
in float32 and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pyruntime.ir import Array, Bound, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.kernels.recurrent import Layer, recurrent
from pyruntime.ops.base import LATEST, Op, Value, attributes, op, refuse_float64
from pyruntime.ops.operands import bound, index_of, named
from pyruntime.ops.recurrent.gates import Gate, gates


@attributes
class RecurrentAttributes(Value):
    """Attributes of LSTM, GRU and RNN."""

    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    activations: tuple[str, ...] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None


@attributes
class _Recurrent(RecurrentAttributes, Op):
    """Base of recurrent layers. Subclasses set the number of gates and the default functions, and implement `step`."""

    operands = named("x w r", optional="b sequence_lens initial_h")
    gate_count: ClassVar[int] = 1
    defaults: ClassVar[tuple[str, ...]] = ("Tanh",)
    states: ClassVar[int] = 1

    @property
    def batch_first(self) -> bool:
        """Whether the first dimension is the batch."""
        return bool(getattr(self, "layout", 0))

    @property
    def directions(self) -> tuple[bool, ...]:
        """For each direction, whether it runs backwards."""
        known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        if self.direction not in known:
            self.fail("direction to be forward, reverse or bidirectional", repr(self.direction))
        return known[self.direction]

    def functions(self) -> list[tuple[Gate, ...]]:
        """Return the activation functions of each direction."""
        count, directions = len(self.defaults), len(self.directions)
        names = self.activations if self.activations is not None else self.defaults * directions
        # Surplus names are ignored: RNN's default has two, also for a single direction.
        if len(names) < count * directions:
            self.fail(f"{count * directions} activations", list(names))
        try:
            made = gates(names, self.activation_alpha or (), self.activation_beta or ())
        except KeyError as name:
            self.fail("activations defined by ONNX", str(name))
        return [made[d * count : (d + 1) * count] for d in range(directions)]

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, w, r, b, lens, *initial = self.operands(*inputs)
        dtype = self.floating(x, w, r, b, *initial)
        if x.rank != 3 or w.rank != 3 or r.rank != 3:
            self.fail("x, w and r of rank 3", f"{x}, {w}, {r}")
        time, batch = x.shape[1::-1] if self.batch_first else x.shape[:2]
        D, H = len(self.directions), r.shape[2]
        self.functions()
        rows = self.gate_count * H
        state = (batch, D, H) if self.batch_first else (D, batch, H)
        expected = [("w", w, (D, rows, x.shape[2])), ("r", r, (D, rows, H)), ("b", b, (D, 2 * rows))]
        expected += [("an initial state", s, state) for s in initial[: self.states]]
        expected += [("p", s, (D, 3 * H)) for s in initial[self.states :]] if self.states == 2 else []
        expected.append(("sequence_lens", lens, (batch,)))
        for name, value, shape in expected:
            if value is not None and value.shape != shape:
                self.fail(f"{name} of shape {list(shape)}", value)
        if self.hidden_size not in (None, H):
            self.fail(f"r for {self.hidden_size} units", r)
        y = (batch, time, D, H) if self.batch_first else (time, D, batch, H)
        return TensorType(dtype, y), *(TensorType(dtype, state) for _ in range(self.states))

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        given = self.operands(*inputs)
        if given.sequence_lens is None:
            return []
        steps, number = given.x.shape[1 if self.batch_first else 0], index_of(self.operands, "sequence_lens")
        return [Bound(number, 0, steps, "sequence_lens", "the steps of x", "give shorter ones or pad x")]

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        self.check_bounds(*inputs)
        x, w, r, b, lens, *initial = self.operands(*inputs)
        dtype = x.dtype
        wide = np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)
        x, w, r = x.astype(wide), w.astype(wide), r.astype(wide)
        b, *initial = (None if v is None else v.astype(wide) for v in (b, *initial))
        if self.batch_first:
            x = x.swapaxes(0, 1)
            initial[: self.states] = [s.swapaxes(0, 1) if s is not None else None for s in initial[: self.states]]
        time, batch, _ = x.shape
        hidden = r.shape[2]
        lengths = np.full(batch, time) if lens is None else lens
        ys, finals = [], []
        for d, (backward, functions) in enumerate(zip(self.directions, self.functions(), strict=True)):
            states = [np.zeros((batch, hidden), wide) if s is None else s[d] for s in initial[: self.states]]
            extra = initial[self.states] if self.states == 2 else None
            bias, peephole = (None if v is None else v[d] for v in (b, extra))
            weights = _Weights.of(self.gate_count, w[d], r[d], bias, peephole)
            order = order_of(time, lengths) if backward else None
            y, last = self._run(reordered(x, order), lengths, weights, functions, states)
            ys.append(reordered(y, order))
            finals.append(last)
        y = np.stack(ys, axis=1)
        last = [np.stack([f[i] for f in finals]) for i in range(self.states)]
        if self.batch_first:
            y, last = y.transpose(2, 0, 1, 3), [s.swapaxes(0, 1) for s in last]
        return tuple(v.astype(dtype) for v in (y, *last))

    def _run(
        self, x: Array, lengths: Array, weights: _Weights, functions: tuple[Gate, ...], states: list[Array]
    ) -> tuple[Array, list[Array]]:
        """Run all steps of one direction; returns the hidden states and the last states."""
        y = np.zeros((*x.shape[:2], states[0].shape[1]), x.dtype)
        xw = np.matmul(x, weights.w.T) + weights.wb
        for t in range(x.shape[0]):
            running = (t < lengths)[:, None]
            new = self.step(xw[t], weights, functions, states)
            states = [np.where(running, n, old) for n, old in zip(new, states, strict=True)]
            y[t] = np.where(running, states[0], 0)
        return y, [np.where((lengths > 0)[:, None], state, 0) for state in states]

    def step(self, xw: Array, weights: _Weights, functions: tuple[Gate, ...], states: list[Array]) -> list[Array]:
        """Return the next states, given the input's contribution to the gates and the previous states."""
        raise NotImplementedError

    def limited(self, x: Array) -> Array:
        """Clip the input of an activation if `clip` is set."""
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        refuse_float64(inputs[0])
        types = self.infer(*inputs)
        x, w, r, b, lens, h0, c0, p = (*bound(self.operands, inputs), None, None)[:8]
        layer = Layer(
            kind=self.op_type,
            x=x,
            w=w,
            r=r,
            bias=b,
            lens=lens,
            h0=h0,
            c0=c0,
            peephole=p,
            gates=self.gate_count,
            backward=self.directions,
            functions=tuple(tuple(g.wgsl for g in functions) for functions in self.functions()),
            batch_first=self.batch_first,
            clip=self.clip,
            input_forget=bool(getattr(self, "input_forget", 0)),
            reset_first=self.op_type == "GRU" and not getattr(self, "linear_before_reset", 0),
        )
        wanted = tuple(out(i, t) if self.wants(i) else None for i, t in enumerate(types))
        return recurrent(target, layer, *wanted)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Parameters of one direction; missing biases are zeros."""

    w: Array
    r: Array
    wb: Array
    rb: Array
    p: Array | None

    @staticmethod
    def of(gate_count: int, w: Array, r: Array, b: Array | None, p: Array | None) -> _Weights:
        """Split the bias into those of input and recurrence."""
        rows = gate_count * r.shape[1]
        wb, rb = (np.zeros(rows, w.dtype),) * 2 if b is None else (b[:rows], b[rows:])
        return _Weights(w, r, wb, rb, p)


def order_of(time: int, lengths: Array) -> Array:
    """Return the time index that a backward direction reads, [time, batch]: reversed sequences, then padding."""
    steps = np.arange(time)[:, None]
    return np.where(steps < lengths, lengths - 1 - steps, steps)


def reordered(x: Array, order: Array | None) -> Array:
    """Gather the time steps of x in `order`."""
    return x if order is None else np.take_along_axis(x, order[:, :, None], axis=0)


@attributes
class _Lstm(_Recurrent):
    """LSTM of any version."""

    operands = named("x w r", optional="b sequence_lens initial_h initial_c p")
    gate_count = 4
    defaults = ("Sigmoid", "Tanh", "Tanh")
    states = 2

    input_forget: int = 0

    def step(self, xw: Array, weights: _Weights, functions: tuple[Gate, ...], states: list[Array]) -> list[Array]:
        hidden, cell = states
        return self.gated(xw + hidden @ weights.r.T + weights.rb, weights.p, functions, cell)

    def gated(self, z: Array, peephole: Array | None, functions: tuple[Gate, ...], cell: Array) -> list[Array]:
        """Return the next hidden state and cell, given the sums of the four gates and the previous cell."""
        f, g, h = functions
        zi, zo, zf, zc = np.split(z, 4, axis=1)
        pi, po, pf = np.split(peephole, 3) if peephole is not None else (np.float32(0),) * 3
        i = f(self.limited(zi + pi * cell))
        keep = 1 - i if self.input_forget else f(self.limited(zf + pf * cell))
        cell = keep * cell + i * g(self.limited(zc))
        return [f(self.limited(zo + po * cell)) * h(cell), cell]


@attributes
class _Gru(_Recurrent):
    """GRU of any version."""

    gate_count = 3
    defaults = ("Sigmoid", "Tanh")

    linear_before_reset: int = 0

    def step(self, xw: Array, weights: _Weights, functions: tuple[Gate, ...], states: list[Array]) -> list[Array]:
        f, g = functions
        (hidden,) = states
        units = hidden.shape[1]
        both, late = weights.r[: 2 * units], weights.r[2 * units :]
        bias, late_bias = weights.rb[: 2 * units], weights.rb[2 * units :]
        z, r = np.split(f(self.limited(xw[:, : 2 * units] + hidden @ both.T + bias)), 2, axis=1)
        if self.linear_before_reset:
            recurrent_part = r * (hidden @ late.T + late_bias)
        else:
            recurrent_part = (r * hidden) @ late.T + late_bias
        candidate = g(self.limited(xw[:, 2 * units :] + recurrent_part))
        return [(1 - z) * candidate + z * hidden]


@attributes
class _Rnn(_Recurrent):
    """RNN of any version."""

    def step(self, xw: Array, weights: _Weights, functions: tuple[Gate, ...], states: list[Array]) -> list[Array]:
        (f,) = functions
        return [f(self.limited(xw + states[0] @ weights.r.T + weights.rb))]


@op("LSTM", opsets=range(14, LATEST + 1), earlier={range(7, 14): "layout"})
class LSTM(_Lstm):
    """c = f(zf) ⊙ c + f(zi) ⊙ g(zc), h = f(zo) ⊙ h(c), z = x wᵀ + h rᵀ + b + p ⊙ c; gates in order i, o, f, c."""

    layout: int = 0


@op("GRU", opsets=range(14, LATEST + 1), earlier={range(7, 14): "layout"})
class GRU(_Gru):
    """h = (1 - z) ⊙ g(x whᵀ + (r ⊙ h) rhᵀ + b) + z ⊙ h; gates in order z, r, h."""

    layout: int = 0


@op("RNN", opsets=range(14, LATEST + 1), earlier={range(7, 14): "layout"})
class RNN(_Rnn):
    """h = f(x wᵀ + h rᵀ + b)."""

    activations: tuple[str, ...] | None = ("Tanh", "Tanh")
    layout: int = 0
