"""EngramGate: how much of a value a key and a query let through. Source: com.microsoft.EngramGate.

    d      = Σ_h norm(key) · norm(query) / sqrt(H), norm(x) = x / sqrt(mean(x²) + epsilon) · scale
    gate   = sigmoid(sign(d) · sqrt(max(|d|, 1e-6)))
    output = gate · value, gated_value_normed = norm(output)

All is computed in float32; both outputs are rounded once.
"""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.rows import Rows
from pyruntime.kernels.rows_candidates import NORMS, lanes_of
from pyruntime.kernels.template import params_of, template
from pyruntime.ops.base import Op, op
from pyruntime.ops.contrib._streams import check_floats


@op("EngramGate", opsets=range(1, 2), domain="com.microsoft")
class EngramGate(Op):
    """key, query: [B, L, C, H]; value: [B, L, H], for all C; scales: [C, H]; floats of one type. Outputs: as key."""

    epsilon: float = 1e-5

    def infer(
        self,
        key: TensorType,
        query: TensorType,
        value: TensorType,
        key_scale: TensorType,
        query_scale: TensorType,
        conv_scale: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        check_floats(self, key)
        dtype = self.same_dtype(key, query, value, key_scale, query_scale, conv_scale)
        if key.rank != 4:
            self.fail("keys [B, L, C, H]", key)
        batch, length, c, h = key.shape
        if query.shape != key.shape or value.shape != (batch, length, h):
            self.fail(f"queries {[batch, length, c, h]} and a value {[batch, length, h]}", f"{query} and {value}")
        for scale in (key_scale, query_scale, conv_scale):
            if scale is not None and scale.shape != (c, h):
                self.fail(f"scales {[c, h]}", scale)
        if self.wants(1) and conv_scale is None:
            self.fail("a conv_norm_scale where gated_value_normed is wanted", "none")
        y = TensorType(dtype, key.shape)
        return y, y

    def evaluate(
        self,
        key: Array,
        query: Array,
        value: Array,
        key_scale: Array,
        query_scale: Array,
        conv_scale: Array | None = None,
    ) -> tuple[Array | None, ...]:
        with np.errstate(all="ignore"):
            product = self._normed(key, key_scale) * self._normed(query, query_scale)
            d = product.sum(-1, keepdims=True, dtype=np.float32) / np.float32(math.sqrt(max(1, key.shape[-1])))
            gate = 1 / (1 + np.exp(-np.sign(d) * np.sqrt(np.maximum(np.abs(d), np.float32(1e-6)))))
            y = gate * value.astype(np.float32)[:, :, None]
            again = None if conv_scale is None else self._normed(y, conv_scale).astype(key.dtype)
        return y.astype(key.dtype), again

    def _normed(self, x: Array, scale: Array) -> Array:
        wide = x.astype(np.float32)
        squares = np.square(wide).sum(-1, keepdims=True, dtype=np.float32) / np.float32(max(1, x.shape[-1]))
        made: Array = wide / np.sqrt(squares + np.float32(self.epsilon)) * scale.astype(np.float32)
        return made

    def lower(
        self,
        target: Target,
        key: TensorType,
        query: TensorType,
        value: TensorType,
        key_scale: TensorType,
        query_scale: TensorType,
        conv_scale: TensorType | None = None,
    ) -> tuple[Dispatch, ...]:
        types = self.infer(key, query, value, key_scale, query_scale, conv_scale)
        given = (key, query, value, key_scale, query_scale)
        names = ("key", "query", "value", "key_scale", "query_scale")
        bound = {name: inp(i, x) for i, (name, x) in enumerate(zip(names, given, strict=True))}
        bound["y"] = out(0, types[0])
        normed = self.wants(1) and conv_scale is not None
        if normed and conv_scale is not None:
            bound |= {"conv_scale": inp(5, conv_scale), "normed": out(1, types[1])}
        batch, length, branches, width = key.shape
        rows = Rows(batch * length * branches, width, 1)
        lanes = lanes_of(NORMS, rows.problem, target)
        flags = {"NORMED": 1} if normed else {}
        kernel = template("engram_gate", dict.fromkeys(bound, key.dtype), **rows.defines(target, lanes), **flags)
        params = params_of(kernel, rows=rows.count, length=width, branches=branches, epsilon=self.epsilon)
        operands = tuple(bound[b.name] for b in kernel.bindings)
        return (Dispatch(kernel, operands, rows.grid(target, lanes), params, flops=12 * key.size),)
