"""CausalConvWithState: depthwise convolution over past positions. Source: ONNX operator CausalConvWithState."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.kernels.params import Fields
from pyruntime.ops.base import LATEST, Op, op

_TYPES = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)
_ACTIVATIONS = ("none", "silu", "swish")
_FIELDS: Fields = (("channels", "u32"), ("length", "u32"), ("kernel", "u32"))


@op("CausalConvWithState", opsets=range(27, LATEST + 1))
class CausalConvWithState(Op):
    """y[b, c, t] = act(bias[c] + Σ_j w[c, 0, j]·s[b, c, t + j]), s = past_state (default zeros) followed by x.

    x: [B, C, L]; w: [C, 1, k]; bias: [C]; past_state and present_state, the end of s: [B, C, k - 1].
    """

    activation: str = "none"

    def infer(
        self, x: TensorType, w: TensorType, bias: TensorType | None = None, past: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(x, w, bias, past)
        if dtype not in _TYPES or x.rank != 3:
            self.fail("an input [B, C, L] of 16- or 32-bit floats", x)
        batch, channels, _ = x.shape
        if w.rank != 3 or w.shape[:2] != (channels, 1) or w.shape[2] < 1:
            self.fail(f"a weight [{channels}, 1, k]", w)
        if bias is not None and bias.shape != (channels,):
            self.fail(f"a bias [{channels}]", bias)
        state = x.with_shape(batch, channels, w.shape[2] - 1)
        if past is not None and past != state:
            self.fail(f"a past_state {state}", past)
        if self.activation not in _ACTIVATIONS:
            self.fail(f"activation in {', '.join(_ACTIVATIONS)}", self.activation)
        return TensorType(dtype, x.shape), state

    def evaluate(self, x: Array, w: Array, bias: Array | None = None, past: Array | None = None) -> tuple[Array, ...]:
        batch, channels, length = x.shape
        kernel = w.shape[2]
        before = np.zeros((batch, channels, kernel - 1), x.dtype) if past is None else past
        sequence = np.concatenate([before, x], axis=2)
        wide, taps = sequence.astype(np.float32), w[:, 0].astype(np.float32)
        y = np.zeros(x.shape, np.float32) if bias is None else np.broadcast_to(bias[:, None], x.shape)
        for j in range(kernel):
            y = y + taps[:, j, None] * wide[:, :, j : j + length]
        if self.activation != "none":
            y = y / (1 + np.exp(-y))
        return y.astype(x.dtype), sequence[:, :, length:]

    def lower(
        self,
        target: Target,
        x: TensorType,
        w: TensorType,
        bias: TensorType | None = None,
        past: TensorType | None = None,
    ) -> tuple[Dispatch, ...]:
        y, state = self.infer(x, w, bias, past)
        values = {"channels": x.shape[1], "length": x.shape[2], "kernel": w.shape[2]}
        read = [Source("x", inp(0, x)), *([Source("past", inp(3, past))] if past is not None else [])]
        at = f"""fn at(row: u32, s: u32) -> f32 {{
  let before = params.kernel - 1u;
  if (s >= before) {{ return load_x(row * params.length + s - before); }}
  return {"load_past(row * before + s)" if past is not None else "0.0"};
}}"""
        sources = [*read, Source("w", inp(1, w)), *([Source("bias", inp(2, bias))] if bias is not None else [])]
        element = f"""let row = i / params.length;
  let t = i - row * params.length;
  let c = row % params.channels;
  var sum = {"load_bias(c)" if bias is not None else "0.0"};
  for (var j = 0u; j < params.kernel; j++) {{ sum += load_w(c * params.kernel + j) * at(row, t + j); }}
  return {"sum" if self.activation == "none" else "swish(sum, 1.0)"};"""
        made = [
            gather_map(target, "causal_conv", out(0, y), sources, element, _FIELDS, values, at, 2 * x.size * w.shape[2])
        ]
        if self.wants(1):
            last = """let before = params.kernel - 1u;
  let row = i / before;
  return at(row, params.length + i - row * before);"""
            made.append(gather_map(target, "causal_conv_state", out(1, state), read, last, _FIELDS, values, at))
        return tuple(made)
