"""ArgMax and ArgMin: index of the maximum or minimum along an axis. Source: ONNX operators ArgMax, ArgMin.

Of equal elements the first counts, or with `select_last_index` the last. NaN is both maximum and minimum, as in NumPy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.ir.indexing import MAX_RANK
from pyruntime.kernels.rows.reduce import Fold, reduction
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, op, refuse_float64

_NOTHING = "0xffffffffu"


def _beats(dtype: DType, largest: bool, a: str, b: str) -> str:
    """Return WGSL that tests whether value `a` precedes value `b`, ignoring NaN."""
    if not largest:
        a, b = b, a
    if dtype.is_wide:
        return f"{'i64_lt' if dtype.is_signed else 'u64_lt'}({b}, {a})"
    return f"({a} > {b})"


def arg_fold(dtype: DType, largest: bool, last: bool) -> Fold:
    """Return the reduction to the best (value, index)."""
    # Bools are stored as u32, because naga miscompiles bool in workgroup memory on NVIDIA GPUs.
    value = "u32" if dtype is DType.BOOL else dtype.compute
    zero = {"f32": "0.0", "i32": "0i", "u32": "0u"}.get(value, "vec2<u32>(0u, 0u)")
    nan = (
        "  let na = is_nan(a.value); let nb = is_nan(b.value);\n  if (na != nb) { if (na) { return a; } return b; }\n"
        if dtype.is_float
        else ""
    )
    better = _beats(dtype, largest, "a.value", "b.value")
    worse = _beats(dtype, largest, "b.value", "a.value")
    helpers = f"struct Best {{ value: {value}, index: u32 }}"
    combine = (
        f"\n  if (a.index == {_NOTHING}) {{ return b; }}\n  if (b.index == {_NOTHING}) {{ return a; }}\n{nan}"
        f"  if ({better}) {{ return a; }}\n  if ({worse}) {{ return b; }}\n"
        f"  if (a.index {'>' if last else '<'} b.index) {{ return a; }}\n  return b;\n"
    )
    prepare = "Best(u32(x), k)" if dtype is DType.BOOL else "Best(x, k)"
    name = f"arg_{'max' if largest else 'min'}{'_last' if last else ''}"
    finish = "vec2<u32>(a.index, 0u)"
    fold = Fold(name, "Best", f"Best({zero}, {_NOTHING})", prepare, combine, finish, helpers)
    if value not in ("f32", "i32", "u32"):
        return fold
    save = "vec2<u32>(bitcast<u32>(a.value), a.index)"
    return replace(fold, state=DType.UINT64, save=save, restore=f"Best(bitcast<{value}>(x.x), x.y)")


@attributes
class _ArgReduce(Op):
    """Base of ArgMax and ArgMin."""

    axis: int = 0
    keepdims: int = 1

    @property
    def largest(self) -> bool:
        return self.op_type == "ArgMax"

    @property
    def last(self) -> bool:
        return bool(getattr(self, "select_last_index", 0))

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        axis = self.axis_of(self.axis, x.rank)
        shape = [1 if d == axis else n for d, n in enumerate(x.shape) if self.keepdims or d != axis]
        if x.rank and x.shape[axis] == 0 and TensorType(x.dtype, tuple(shape)).size:
            self.fail("at least one element along the axis", x)
        return (TensorType(DType.INT64, tuple(shape)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        if not x.ndim:
            return (np.zeros((), np.int64),)
        axis = self.axis_of(self.axis, x.ndim)
        view = np.flip(x, axis) if self.last else x
        index = (np.argmax if self.largest else np.argmin)(view, axis=axis, keepdims=bool(self.keepdims))
        return ((x.shape[axis] - 1 - index if self.last else index).astype(np.int64),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        if x.rank > MAX_RANK:
            raise Unsupported(f"more than {MAX_RANK} dimensions")
        (y,) = self.infer(x)
        fold = arg_fold(x.dtype, self.largest, self.last)
        axes = (self.axis_of(self.axis, x.rank),) if x.rank else ()
        return reduction(target, fold, out(0, y), inp(0, x), axes)


@op("ArgMax", opsets=range(12, LATEST + 1), earlier={range(1, 12): "select_last_index"})
class ArgMax(_ArgReduce):
    """Index of the first or last maximum."""

    select_last_index: int = 0


@op("ArgMin", opsets=range(12, LATEST + 1), earlier={range(1, 12): "select_last_index"})
class ArgMin(_ArgReduce):
    """Index of the first or last minimum."""

    select_last_index: int = 0
