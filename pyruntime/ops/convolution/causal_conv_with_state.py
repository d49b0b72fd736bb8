"""CausalConvWithState: causal depthwise convolution with a cached state. Source: ONNX operator CausalConvWithState."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.operands import named

_TYPES = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)


class CausalConv(Op):
    """y[b, c, t] = act(bias[c] + Σ_j w[c, 0, j]·s[b, c, t + j·d]), s = past_state (default zeros) followed by x.

    x: [B, C, L], or with `channels_last` [B, L, ...] with C channels in all; w: [C, 1, k]; bias: [C]; d: `dilation`.
    The state is the end of s, [B, C, (k - 1)·d] or [B, (k - 1)·d, ...]. With `state_window` W, states are [W, ...]: the
    states after each of the last W positions, zeros where x is shorter. Of such a past_state the last one is read.
    """

    operands = named("x w", optional="bias past")

    activation: Annotated[str, "none", "silu", "swish"]
    channels_last: int = 0
    dilation: int = 1
    state_window: int = 0

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        x, w, bias, past = self.operands(*inputs)
        dtype = self.same_dtype(x, w, bias, past)
        if dtype not in _TYPES or x.rank < 3 or (x.rank > 3 and not self.channels_last):
            self.fail(f"an input {'[B, L, ...]' if self.channels_last else '[B, C, L]'} of 16- or 32-bit floats", x)
        channels = math.prod(x.shape[2:]) if self.channels_last else x.shape[1]
        if w.rank != 3 or w.shape[:2] != (channels, 1) or w.shape[2] < 1 or self.dilation < 1:
            self.fail(f"a weight [{channels}, 1, k] and dilation >= 1", f"{w} and {self.dilation}")
        if bias is not None and bias.shape != (channels,):
            self.fail(f"a bias [{channels}]", bias)
        if not 0 <= self.state_window <= 8:
            self.fail("state_window from 0 to 8", self.state_window)
        before = (w.shape[2] - 1) * self.dilation
        shape = (x.shape[0], before, *x.shape[2:]) if self.channels_last else (*x.shape[:2], before)
        state = TensorType(dtype, (self.state_window, *shape) if self.state_window else shape)
        if past is not None and past != state:
            self.fail(f"a past_state {state}", past)
        return TensorType(dtype, x.shape), state

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, w, bias, past = self.operands(*inputs)
        inside = x.reshape(*x.shape[:2], w.shape[0]).swapaxes(1, 2) if self.channels_last else x
        batch, channels, length = inside.shape
        filters, step = w[:, 0].astype(np.float32), self.dilation
        before = (w.shape[2] - 1) * step
        start = np.zeros((batch, channels, before), x.dtype)
        if past is not None:
            last = past[-1] if self.state_window else past
            start = last.reshape(batch, before, channels).swapaxes(1, 2) if self.channels_last else last
        sequence = np.concatenate([start, inside], axis=2)
        wide = sequence.astype(np.float32)
        y = np.zeros(inside.shape, np.float32) + (0 if bias is None else bias.astype(np.float32)[:, None])
        for j in range(w.shape[2]):
            y = y + filters[:, j, None] * wide[:, :, j * step : j * step + length]
        if self.activation != "none":
            y = y / (1 + np.exp(-y))
        window = max(1, self.state_window)
        states = np.zeros((window, batch, channels, before), x.dtype)
        for slot in range(window):
            end = length - window + slot + 1
            if end > 0 or not self.state_window:
                states[slot] = sequence[:, :, end : end + before]
        if self.channels_last:
            y, states = y.swapaxes(1, 2), states.swapaxes(2, 3)
            shape = (window, batch, before, *x.shape[2:])
        else:
            shape = states.shape
        states = states.reshape(shape if self.state_window else shape[1:])
        return y.reshape(x.shape).astype(x.dtype), states

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        x, w, bias, past = self.operands(*inputs)
        y, state = self.infer(*inputs)
        channels = w.shape[0]
        length = x.shape[1] if self.channels_last else x.shape[2]
        before = (w.shape[2] - 1) * self.dilation
        window = max(1, self.state_window)
        values = {
            "channels": channels,
            "length": length,
            "positions": w.shape[2],
            "dilation": self.dilation,
            "before": before,
            "window": window,
            "batch": x.shape[0],
            "past_first": (window - 1) * x.shape[0] * channels * before,
            "kept": int(not self.state_window),
        }
        read = [Source("x", inp(0, x))]
        if past is not None and past.size:
            read.append(Source("past", inp(3, past)))
        # Element s of the whole sequence: the past, then x.
        place = (
            "(b * {n} + {s}) * params.channels + c" if self.channels_last else "(b * params.channels + c) * {n} + {s}"
        )
        old = f"load_past(params.past_first + {place.format(n='params.before', s='s')})" if len(read) > 1 else "0.0"
        at = f"""fn at(b: u32, c: u32, s: u32) -> f32 {{
  if (s >= params.before) {{ return load_x({place.format(n="params.length", s="(s - params.before)")}); }}
  return {old};
}}"""
        sources = [*read, Source("w", inp(1, w)), *([Source("bias", inp(2, bias))] if bias is not None else [])]
        element = f"""{self._split("params.length")}
  var sum = {"load_bias(c)" if bias is not None else "0.0"};
  for (var j = 0u; j < params.positions; j++) {{
    sum += load_w(c * params.positions + j) * at(b, c, t + j * params.dilation);
  }}
  return {"sum" if self.activation == "none" else "swish(sum, 1.0)"};"""
        name = "causal_conv_last" if self.channels_last else "causal_conv_dilated"
        flops = 2 * x.size * w.shape[2]
        made = [gather_map(target, name, out(0, y), sources, element, values, at, flops)]
        if self.wants(1):
            last = f"""{self._split("params.before")}
  let slot = b / params.batch;
  let end = i32(params.length + slot + 1u) - i32(params.window);
  if (end <= 0 && params.kept == 0u) {{ return 0.0; }}
  return at(b - slot * params.batch, c, u32(end) + t);"""
            made.append(gather_map(target, f"{name}_state", out(1, state), read, last, values, at))
        return tuple(made)

    def _split(self, length: str) -> str:
        """Return WGSL that splits the index i into b, c and t, for a tensor of rows of `length`."""
        if self.channels_last:
            return f"""let c = i % params.channels;
  let t = (i / params.channels) % {length};
  let b = i / (params.channels * {length});"""
        return f"""let t = i % {length};
  let c = (i / {length}) % params.channels;
  let b = i / ({length} * params.channels);"""


@op("CausalConvWithState", opsets=range(27, LATEST + 1))
class CausalConvWithState(CausalConv):
    """CausalConvWithState of ai.onnx: channels first, no dilation, one state."""

    activation: Annotated[str, "none", "silu", "swish"] = "none"
