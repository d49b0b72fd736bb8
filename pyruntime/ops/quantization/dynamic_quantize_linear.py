"""DynamicQuantizeLinear: quantize x to uint8 over its range. Source: ONNX operator DynamicQuantizeLinear."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType, multiple, upper
from pyruntime.kernels import Dispatch, Target, gather_map, inp, launch, out, scratch
from pyruntime.kernels.selection.measurements import FOLD_PACK
from pyruntime.ops.base import LATEST, Op, op

WORKGROUP = 64
GROUPS = 128
"""Maximum number of workgroups that compute the range: enough for a large GPU, few enough for each to reduce."""

WRITERS = 1024
"""Maximum number of workgroups that quantize."""

WHOLE = 32
"""Elements per invocation up to which a single workgroup does both: the cost of a second dispatch."""

ALONE = 8192
"""Elements up to which a single workgroup does both on a software adapter."""

SHARES = 8
"""Number of workgroups for larger inputs on a software adapter. Each has few invocations, because barriers are slow."""


@op("DynamicQuantizeLinear", opsets=range(11, LATEST + 1))
class DynamicQuantizeLinear(Op):
    """y = saturate(round(x / scale) + zero), scale = (max(x, 0) - min(x, 0)) / 255, zero = round(-min(x, 0) / scale).

    scale is 1 if x is all zeros. NaN is excluded from the range and becomes 0.
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
        if not x.size:
            return self._of_nothing(target, x)
        software = target.is_software
        most = FOLD_PACK if software else min(1024, target.limits.invocations, target.limits.workgroup_x)
        whole = upper(x.size) <= (ALONE if software else most * WHOLE)
        workgroup = most if whole or software else WORKGROUP
        groups = 1 if whole else SHARES if software else _groups(x, 4, GROUPS)
        fours = software and multiple(x.size, 4)
        pairs = scratch(DType.FLOAT, 2 * groups)
        before: tuple[Dispatch, ...] = ()
        if not whole:
            defines = {"WG": workgroup, "FOURS": fours} if software else {}
            tensors, values = {"x": inp(0, x), "y": pairs}, {"size": x.size, "step": groups * workgroup}
            before = (launch("quantization_range", tensors, (groups, 1, 1), defines, values, 2 * x.size),)
        flags = {"WHOLE": whole, "FOURS": whole and fours, "SCALE": self.wants(1), "ZERO": self.wants(2)}
        names = ("y", "scale", "zero")
        made = {
            n: out(i, t) for i, (n, t) in enumerate(zip(names, self.infer(x), strict=True)) if self.wants(i) or not i
        }
        shares = 1 if whole else SHARES if software else _groups(x, 16, WRITERS)
        tensors = {"x": inp(0, x), "pairs": pairs, **made}
        values = {"size": x.size, "step": shares * workgroup, "count": groups}
        last = launch("quantize_range", tensors, (shares, 1, 1), {"WG": workgroup, **flags}, values, 2 * x.size)
        return (*before, last)

    def _of_nothing(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        """Return dispatches of scale 1 and zero point 0 for a tensor without elements."""
        kinds = self.infer(x)
        codes = ((1, "return 1.0;"), (2, "return 0u;"))
        return tuple(gather_map(target, f"range_{i}", out(i, kinds[i]), [], c) for i, c in codes if self.wants(i))


def _groups(x: TensorType, each: int, most: int) -> int:
    """Return the number of workgroups, at most `most`, so that an invocation has about `each` elements."""
    return max(1, min(most, -(-upper(x.size) // (each * WORKGROUP))))
