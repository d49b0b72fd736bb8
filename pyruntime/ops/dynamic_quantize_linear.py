"""DynamicQuantizeLinear: x to uint8 over its own range. Source: ONNX operator DynamicQuantizeLinear."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out, params_of, scratch, template
from pyruntime.ops._quantization import quantized
from pyruntime.ops.base import LATEST, Op, op

WORKGROUP = 64
GROUPS = 128
"""Most workgroups that look for the range: enough to fill a large GPU, few enough for one workgroup to merge."""


@op("DynamicQuantizeLinear", opsets=range(11, LATEST + 1))
class DynamicQuantizeLinear(Op):
    """y = saturate(round(x / scale) + zero), scale = (max(x, 0) - min(x, 0)) / 255, zero = round(-min(x, 0) / scale)

    scale is 1 where x is zero everywhere. NaN is left out of the range, and becomes 0.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype is not DType.FLOAT:
            self.fail("a tensor of float", x.dtype.type_string)
        return (TensorType(DType.UINT8, x.shape), TensorType(DType.FLOAT, ()), TensorType(DType.UINT8, ()))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            low = np.fmin.reduce(x, axis=None, initial=np.float32(0))
            high = np.fmax.reduce(x, axis=None, initial=np.float32(0))
            scale = np.float32(1) if high == low else (high - low) / np.float32(255)
            zero = np.clip(np.rint(-low / scale), 0, 255)
            y = np.clip(np.rint(x / scale) + zero, 0, 255)
            y, zero = (np.nan_to_num(v, nan=0.0) for v in (y, zero))
        return (np.asarray(y, np.uint8), np.asarray(scale, np.float32), np.asarray(zero, np.uint8))

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        y, scale, zero = self.infer(x)
        groups = max(1, min(GROUPS, -(-x.size // (4 * WORKGROUP))))
        pairs, found = scratch(0, DType.FLOAT, 2 * groups), scratch(1, DType.FLOAT, 2)
        kernel = template("quantization_range", MERGE=0)
        params = params_of(kernel, size=x.size, step=groups * WORKGROUP)
        made = [Dispatch(kernel, (inp(0, x), pairs), (groups, 1, 1), params, flops=2 * x.size)]
        # The pairs are read as low, high, low, high: each is a bound of both kinds, since the range holds 0.
        kernel = template("quantization_range", MERGE=1)
        params = params_of(kernel, size=2 * groups, step=WORKGROUP)
        made.append(Dispatch(kernel, (pairs, found), (1, 1, 1), params))
        level = quantized("divide_rounded(load_x(i), load_range(0u))", "load_range(1u)", DType.UINT8)
        sources = [Source("x", inp(0, x)), Source("range", found)]
        made.append(gather_map(target, "dynamic_quantize_linear", out(0, y), sources, f"return {level};"))
        ends = ((1, scale, "return load_range(0u);"), (2, zero, "return u32(load_range(1u));"))
        for i, kind, code in ends:
            if self.wants(i):
                made.append(gather_map(target, f"range_{i}", out(i, kind), [Source("range", found)], code))
        return tuple(made)
