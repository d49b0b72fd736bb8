"""Sum, Mean, Max and Min of any number of tensors, with broadcasting. Source: the ONNX operators of these names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, elementwise, inp, out, scratch
from pyruntime.ops.base import LATEST, Unsupported, op
from pyruntime.ops.elementwise.elementwise import NUMBERS, Classes, Elementwise, Expression, classes, compute_class

WIDE = {"f32": DType.FLOAT, "i32": DType.INT32, "u32": DType.UINT32, "i64": DType.INT64, "u64": DType.UINT64}
"""Type of partial results by compute class, so that only the final result is rounded."""


class _Variadic(Elementwise):
    """y = finish(pair(... pair(pair(x0, x1), x2) ..., xn)).

    Class attributes:
        pair: WGSL of the binary function of `a` and `b`, by compute class.
        ufunc: the same function in NumPy.
    """

    pair: ClassVar[Classes] = classes()
    ufunc: ClassVar[np.ufunc]

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        present = sum(x is not None for x in inputs)
        if not inputs or present < len(inputs):
            self.fail("at least one input, and none left out", present)
        return self.result(*inputs)

    def compute(self, *inputs: Any) -> Any:
        return reduce(self.ufunc, inputs)

    def alias(self, *inputs: TensorType) -> int | None:
        return 0 if len(inputs) == 1 else None

    def finish(self, code: str, count: int) -> str:
        """Return WGSL of the result, given `code`, the fold of all `count` inputs."""
        return code

    def fold(self, names: Sequence[str], kind: str) -> str:
        """Return WGSL that folds operands with `pair`."""
        code = names[0]
        for name in names[1:]:
            code = self.pair[kind].format(a=code, b=name)
        return code

    def expression(self, *dtypes: DType | None) -> Expression | None:
        kind = compute_class(dtypes[0]) if dtypes[0] else ""
        if kind not in self.pair:
            return None
        names = tuple(f"a{i}" for i in range(len(dtypes)))
        return Expression(self.finish(self.fold(names, kind), len(names)), names)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        """Return one dispatch, or several with partial results where the device binds too few buffers."""
        if len(inputs) < target.limits.storage_buffers:
            return super().lower(target, *inputs)
        kind = compute_class(inputs[0].dtype)
        if kind not in self.pair:
            raise Unsupported(self.reason(inputs[0].dtype))
        (y,) = self.infer(*inputs)
        name = self.op_type.lower()
        pending = [inp(i, x) for i, x in enumerate(inputs)]
        made: list[Dispatch] = []
        partial: list[Operand] = []
        while pending:
            take = target.limits.storage_buffers - 1 - len(partial)
            operands = {f"a{i}": o for i, o in enumerate([*partial, *pending[:take]])}
            pending = pending[take:]
            code = self.fold(list(operands), kind)
            result = scratch(WIDE[kind], *y.shape) if pending else out(0, y)
            code = code if pending else self.finish(code, len(inputs))
            made.append(elementwise(target, f"{name}_part" if pending else name, operands, result, code))
            partial = [result]
        return tuple(made)


@op("Sum", opsets=range(8, LATEST + 1))
class Sum(_Variadic):
    """y = x0 + x1 + ..."""

    pair = classes(f32="{a} + {b}")
    ufunc = np.add


@op("Mean", opsets=range(8, LATEST + 1))
class Mean(_Variadic):
    """y = (x0 + x1 + ...) / n"""

    pair = classes(f32="{a} + {b}")
    ufunc = np.add

    def compute(self, *inputs: Any) -> Any:
        return super().compute(*inputs) / len(inputs)

    def finish(self, code: str, count: int) -> str:
        return f"({code}) / {count}.0"


@op("Max", opsets=range(8, LATEST + 1))
class Max(_Variadic):
    """y = max(x0, x1, ...); propagates NaN"""

    dtypes = NUMBERS
    pair = classes(
        f32="nan_max({a}, {b})",
        i32="max({a}, {b})",
        u32="max({a}, {b})",
        i64="i64_max({a}, {b})",
        u64="u64_max({a}, {b})",
    )
    ufunc = np.maximum


@op("Min", opsets=range(8, LATEST + 1))
class Min(_Variadic):
    """y = min(x0, x1, ...); propagates NaN"""

    dtypes = NUMBERS
    pair = classes(**{kind: code.replace("max", "min") for kind, code in Max.pair.items()})
    ufunc = np.minimum


class _SameShape(_Variadic):
    """Base of the versions before opset 8, which do not broadcast."""

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        if any(x.shape != inputs[0].shape for x in inputs):
            self.fail("inputs of one shape", " and ".join(str(list(x.shape)) for x in inputs))
        return super().infer(*inputs)


@op("Sum", opsets=range(6, 8))
class SumSameShape(_SameShape, Sum):
    """y = x0 + x1 + ..., all of one shape"""


@op("Mean", opsets=range(6, 8))
class MeanSameShape(_SameShape, Mean):
    """y = (x0 + x1 + ...) / n, all of one shape"""


@op("Max", opsets=range(6, 8))
class MaxSameShape(_SameShape, Max):
    """y = max(x0, x1, ...), all of one shape"""


@op("Min", opsets=range(6, 8))
class MinSameShape(_SameShape, Min):
    """y = min(x0, x1, ...), all of one shape"""
