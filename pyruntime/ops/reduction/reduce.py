"""Reduce operators: y = reduction of x over axes. Source: ONNX operators ReduceSum ... ReduceSumSquare.

Over no elements: sums and norms are 0, products 1, maxima -inf (integers: the smallest value), minima +inf (the
largest), log sums -inf, means NaN (integers: 0). NaN propagates. Integers wrap in their type; integer means, roots and
logarithms truncate toward zero. On the GPU, f16 and bf16 are reduced in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.ir.indexing import MAX_RANK
from pyruntime.kernels.rows.reduce import reduction
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, op, refuse_float64
from pyruntime.ops.reduction.folds import FOLDS

Axes = tuple[int, ...]
Evaluator = Callable[[Array, Axes], Array]


def _wide(x: Array) -> Array:
    """Convert x to the accumulator type: float64, or the 64-bit integer of the same signedness."""
    if x.dtype.kind == "f":
        return x.astype(np.float64)
    return x.astype(np.uint64 if x.dtype.kind == "u" else np.int64)


def _mean(x: Array, axes: Axes) -> Array:
    total: Array = np.sum(_wide(x), axis=axes, keepdims=True)
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    if x.dtype.kind == "f":
        return np.divide(total, count) if count else np.full_like(total, np.nan)
    magnitude = np.abs(total) // max(count, 1)
    return np.where(total < 0, -magnitude, magnitude) if count else total


def _extreme(fold: Callable[..., Array], infinity: float, limit: str) -> Evaluator:
    def evaluate(x: Array, axes: Axes) -> Array:
        if x.dtype.kind == "b":
            initial: object = limit == "max"
        else:
            initial = infinity if x.dtype.kind == "f" else getattr(np.iinfo(x.dtype), limit)
        return fold(x, axis=axes, keepdims=True, initial=initial)

    return evaluate


def _log_sum_exp(x: Array, axes: Axes) -> Array:
    wide = x.astype(np.float64)
    top = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0.0)
    total = np.log(np.sum(np.exp(wide - shift), axis=axes, keepdims=True)) + shift
    result: Array = np.where(np.isposinf(top), top, total)
    return result


def _integral(x: Array, value: Array) -> Array:
    """Truncate a real result to x's integer type; values out of range become the smallest integer, as in C on x86."""
    if x.dtype.kind == "f":
        return value
    limits = np.iinfo(x.dtype)
    fits = (value > float(limits.min) - 1) & (value < float(limits.max) + 1)
    result: Array = np.where(fits, value, 0).astype(x.dtype) + np.where(fits, 0, limits.min).astype(x.dtype)
    return result


EVALUATORS: dict[str, Evaluator] = {
    "Sum": lambda x, axes: np.sum(_wide(x), axis=axes, keepdims=True),
    "Mean": _mean,
    "Max": _extreme(np.max, -np.inf, "min"),
    "Min": _extreme(np.min, np.inf, "max"),
    "Prod": lambda x, axes: np.prod(_wide(x), axis=axes, keepdims=True),
    "L1": lambda x, axes: np.sum(np.abs(_wide(x)), axis=axes, keepdims=True),
    "L2": lambda x, axes: _integral(x, np.sqrt(np.sum(_wide(x) ** 2, axis=axes, keepdims=True))),
    "LogSum": lambda x, axes: _integral(x, np.log(np.sum(_wide(x), axis=axes, keepdims=True))),
    "LogSumExp": lambda x, axes: _integral(x, _log_sum_exp(x, axes)),
    "SumSquare": lambda x, axes: np.sum(_wide(x) ** 2, axis=axes, keepdims=True),
}
"""Reduction by name -> function of x and axes (distinct, non-negative), which keeps these axes with size 1."""

IDENTITIES = frozenset(("Sum", "Mean", "Max", "Min", "Prod"))
"""Reductions that return a single element unchanged."""


class Reduce(Op):
    """Base of all reductions: `fold` names the reduction, and `axes_of` finds its axes."""

    fold = ""

    def axes_of(self, x: TensorType, axes: TensorType | None) -> Axes:
        """Return the distinct, non-negative axes."""
        raise NotImplementedError

    def _over(self, x: TensorType, axes: tuple[int, ...] | None, noop: bool) -> Axes:
        if not axes:
            return () if noop else tuple(range(x.rank))
        over = dict.fromkeys(self.axis_of(a, x.rank) for a in axes)  # removes duplicates
        return tuple(over) if x.rank else ()

    def infer(self, x: TensorType, axes: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.dtype is DType.BOOL and self.fold not in ("Max", "Min"):
            self.fail("numbers", x)
        over = self.axes_of(x, axes)
        keep = self.keepdims  # type: ignore[attr-defined]
        shape = (1 if d in over else n for d, n in enumerate(x.shape) if keep or d not in over)
        return (TensorType(x.dtype, tuple(shape)),)

    def evaluate(self, x: Array, axes: Array | None = None) -> tuple[Array, ...]:
        dtype = DType.from_numpy(x.dtype)
        known = None if axes is None else TensorType(DType.INT64, axes.shape, lambda: axes)
        (y,) = self.infer(TensorType(dtype, x.shape), known)
        with np.errstate(all="ignore"):
            value = EVALUATORS[self.fold](x, self.axes_of(TensorType(dtype, x.shape), known))
            return (np.asarray(value).astype(x.dtype).reshape(y.shape),)

    def alias(self, x: TensorType, axes: TensorType | None = None) -> int | None:
        """Return 0 where a single element is reduced to itself."""
        single = all(x.shape[a] == 1 for a in self.axes_of(x, axes))
        return 0 if single and self.fold in IDENTITIES else None

    def lower(self, target: Target, x: TensorType, axes: TensorType | None = None) -> tuple[Dispatch, ...]:
        refuse_float64(x)
        if x.rank > MAX_RANK:
            raise Unsupported(f"more than {MAX_RANK} dimensions")
        fold = FOLDS[self.fold](x.dtype)
        if fold is None:
            raise Unsupported(f"Reduce{self.fold} of {x.dtype.onnx_name} is exact on the host")
        (y,) = self.infer(x, axes)
        return reduction(target, fold, out(0, y), inp(0, x), self.axes_of(x, axes))


@attributes
class _AxesAttribute(Reduce):
    """Reduction with axes as an attribute."""

    axes: tuple[int, ...] | None = None
    keepdims: int = 1

    def axes_of(self, x: TensorType, axes: TensorType | None) -> Axes:
        return self._over(x, self.axes, noop=False)


@attributes
class _AxesInput(Reduce):
    """Reduction with axes as an input."""

    keepdims: int = 1
    noop_with_empty_axes: int = 0

    def axes_of(self, x: TensorType, axes: TensorType | None) -> Axes:
        return self._over(x, axes.ints() if axes is not None else None, bool(self.noop_with_empty_axes))


@dataclass(frozen=True)
class Row:
    """Table row of a Reduce operator: its name, and the first opset with axes as an input."""

    name: str
    axes_input: int

    def register(self) -> None:
        """Create the two operator classes, with axes as an attribute and as an input."""
        for form, opsets in (
            (_AxesAttribute, range(1, self.axes_input)),
            (_AxesInput, range(self.axes_input, LATEST + 1)),
        ):
            made = type(f"{self.name}{opsets.start}", (form,), {"fold": self.name[6:], "__module__": __name__})
            op(self.name, opsets=opsets)(made)


TABLE = (
    Row("ReduceSum", 13),
    Row("ReduceMean", 18),
    Row("ReduceMax", 18),
    Row("ReduceMin", 18),
    Row("ReduceProd", 18),
    Row("ReduceL1", 18),
    Row("ReduceL2", 18),
    Row("ReduceLogSum", 18),
    Row("ReduceLogSumExp", 18),
    Row("ReduceSumSquare", 18),
)

for row in TABLE:
    row.register()
