"""Resize and Upsample: each output is a weighted sum of nearby inputs, computed one axis at a time.

Integers are rounded half to even and saturated, as in ONNX's reference implementation. Sizes that follow from scales
are floor(input * scale), in float32. Source: ONNX operators Resize (10, 11, 13, 18, 19), Upsample (7, 9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any

import numpy as np

from pyruntime.ir import Array, DType, TensorType, is_dim
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.resample import AxisTable, interpolate, resample
from pyruntime.ops.base import LATEST, Op, Unsupported, op, refuse_float64
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.operands import named
from pyruntime.ops.vision.resampling import (
    COORDINATES,
    MODES,
    NEAREST,
    Axis,
    Filter,
    ratio,
    resampled,
    steps_of,
    table_of,
)

Numbers = tuple[float, ...]

CACHED = 1 << 18
"""Number of outputs to resample at a time, chosen to fit the CPU cache."""


class _Resize(Op):
    """Resize of any version. x: any type; strings, bools and complex numbers only with mode nearest."""

    extrapolation_value: float = 0.0

    def filter(self) -> Filter:
        """Return the interpolation attributes."""
        raise NotImplementedError

    def result(self, x: TensorType, plan: tuple[Axis, ...]) -> TensorType:
        """Return the output type. Raises InvalidGraph for unknown modes."""
        how = self.filter()
        if how.mode not in MODES or how.coordinates not in COORDINATES or how.nearest not in (*NEAREST, "simple"):
            self.fail("supported modes", how)
        if how.antialias and how.mode == "nearest":
            self.fail("mode 'linear' or 'cubic' with antialias", "'nearest'")
        if how.mode != "nearest" and x.dtype.carrier in ("object", "complex64", "complex128"):
            self.fail("mode 'nearest' for this type", f"{how.mode!r}, {x.dtype.type_string}")
        shape = list(x.shape)
        for axis in plan:
            shape[axis.axis] = axis.output
        return x.with_shape(*shape)

    def tables(self, plan: tuple[Axis, ...]) -> list[AxisTable]:
        """Return the tables of the axes that change."""
        return [table_of(axis, self.filter()) for axis in plan if not axis.is_identity]

    def resized(self, x: Array, plan: tuple[Axis, ...]) -> Array:
        """Return the output in x's type."""
        shape = list(x.shape)
        for axis in plan:
            shape[axis.axis] = axis.output
        if not x.size or not math.prod(shape):
            return np.zeros(shape, x.dtype)
        tables = self.tables(plan)
        lead = min((t.axis for t in tables), default=0)
        if lead:  # in parts that fit the CPU cache
            maps, tables = x.reshape(-1, *x.shape[lead:]), [replace(t, axis=t.axis - lead + 1) for t in tables]
            step = max(1, CACHED // math.prod(shape[lead:]))
            y = np.empty((len(maps), *shape[lead:]), x.dtype)
            for first in range(0, len(maps), step):
                part = slice(first, first + step)
                y[part] = self._resampled(maps[part], tables)
            return y.reshape(shape)
        return self._resampled(x, tables)

    def _resampled(self, x: Array, tables: list[AxisTable]) -> Array:
        """Return `resampled` in x's type."""
        y = resampled(x, tables, self.extrapolation_value)
        if y.dtype == x.dtype or x.dtype.kind == "f":
            return y.astype(x.dtype, copy=False)
        if x.dtype.kind == "b":
            return np.asarray(y > 0.5)
        limits = np.iinfo(x.dtype)
        return np.clip(np.rint(y), limits.min, limits.max).astype(x.dtype)

    def dispatches(self, target: Target, x: TensorType, plan: tuple[Axis, ...]) -> tuple[Dispatch, ...]:
        """Return the dispatches that compute `resized` on the GPU."""
        y = self.result(x, plan)
        moving = [axis for axis in plan if not axis.is_identity]
        steps = [steps_of(axis, self.filter()) for axis in moving] if any(a.is_open for a in moving) else []
        computed = [s for s in steps if s is not None]
        is_open = bool(steps) and len(computed) == len(steps)
        tables = [] if is_open else self.tables(plan)
        if any(s.is_weighted for s in computed) if is_open else any(t.weight is not None for t in tables):
            refuse_float64(x)
            if x.dtype.is_integer and x.dtype.bits > 16:
                raise Unsupported(f"sums of {x.dtype.onnx_name} are exact on the host; float32 is not")
        if is_open:
            return interpolate(target, out(0, y), inp(0, x), computed)
        if not tables:
            tables = [AxisTable(0, np.arange(x.shape[0])[:, None])] if x.rank else []
        return resample(target, out(0, y), inp(0, x), tables, self.extrapolation_value)

    @staticmethod
    def unchanged(plan: tuple[Axis, ...]) -> int | None:
        """Return 0, the index of x, if no axis is resized."""
        return 0 if all(axis.is_identity for axis in plan) else None

    def by_scales(self, x: tuple[int, ...], axes: tuple[int, ...], scales: Numbers, crop: Numbers) -> tuple[Axis, ...]:
        """Return the resized axes, given the scales (outputs per input)."""
        if len(scales) != len(axes) or any(not s > 0 for s in scales):
            self.fail(f"{len(axes)} scales above 0", list(scales))
        lengths = [_scaled(x[a], s) for a, s in zip(axes, scales, strict=True)]
        return self.plan(x, axes, lengths, scales, crop)

    def plan(
        self,
        x: tuple[int, ...],
        axes: tuple[int, ...],
        lengths: list[int],
        scales: Sequence[float | None],
        crop: Numbers,
    ) -> tuple[Axis, ...]:
        """Return one Axis for each of `axes`.

        Args:
            lengths: output sizes.
            crop: all starts, then all ends; empty: no crop.
        """
        count = len(axes)
        if any(not is_dim(x[a]) and not x[a] and n for a, n in zip(axes, lengths, strict=True)):
            self.fail("an output without elements along axes without elements", f"{lengths} for {[x[a] for a in axes]}")
        if crop and len(crop) != 2 * count:
            self.fail(f"{2 * count} numbers in roi", list(crop))
        starts, ends = (crop[:count], crop[count:]) if crop else ((0.0,) * count, (1.0,) * count)
        return tuple(
            Axis(a, x[a], n, s if s is None else float(s), float(b), float(e))
            for a, n, s, b, e in zip(axes, lengths, scales, starts, ends, strict=True)
        )


def _scaled(length: Any, scale: float) -> Any:
    """Return floor(length * scale) in float32."""
    exact = Fraction(scale)
    if is_dim(length) and max(exact.numerator, exact.denominator) <= 64:  # exact in float32 up to 2^18 elements
        return length * exact.numerator // exact.denominator
    return int(np.float32(int(length)) * np.float32(scale))


class _ScalesInput(_Resize):
    """Base of versions with scales for all axes as their only input, and asymmetric coordinates.

    scales: float32 [rank of x].
    """

    mode: str

    def filter(self) -> Filter:
        mode = {"bilinear": "linear"}.get(self.mode, self.mode)
        return Filter(mode, "asymmetric", "simple")

    def scaled(self, x: tuple[int, ...], scales: Numbers) -> tuple[Axis, ...]:
        return self.by_scales(x, tuple(range(len(x))), scales, ())

    def infer(self, x: TensorType, scales: TensorType) -> tuple[TensorType, ...]:
        return (self.result(x, self.scaled(x.shape, _numbers(scales.value()))),)

    def evaluate(self, x: Array, scales: Array) -> tuple[Array, ...]:
        return (self.resized(x, self.scaled(x.shape, _numbers(scales))),)

    def alias(self, x: TensorType, scales: TensorType) -> int | None:
        return self.unchanged(self.scaled(x.shape, _numbers(scales.value())))

    def lower(self, target: Target, x: TensorType, scales: TensorType) -> tuple[Dispatch, ...]:
        return self.dispatches(target, x, self.scaled(x.shape, _numbers(scales.value())))


def _numbers(values: Array | None) -> Numbers:
    return () if values is None else tuple(float(v) for v in values.reshape(-1))


@op("Upsample", opsets=range(7, 9))
class Upsample7(Decomposed):
    """Upsample with scales as an attribute."""

    mode: str = "nearest"
    scales: tuple[float, ...]

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        scales = body.constant(np.array(self.scales, np.float32), DType.FLOAT)
        return body.apply(Upsample(mode=self.mode), x, scales)


@op("Upsample", opsets=range(9, 10))
class Upsample(_ScalesInput):
    """Upsample with scales as an input. Resize replaced it in opset 10."""

    mode: str = "nearest"


@op("Resize", opsets=range(10, 11))
class Resize10(_ScalesInput):
    """Upsample that may also shrink, where the nearest pixel is rounded up."""

    mode: str = "nearest"


@op(
    "Resize",
    opsets=range(18, LATEST + 1),
    earlier={range(11, 18): "antialias axes keep_aspect_ratio_policy"},
)
class Resize(_Resize):
    """Resize from opset 11 on: x, roi, scales or sizes. Empty tensors count as absent."""

    operands = named("x", optional="roi scales sizes")

    antialias: int = 0
    axes: tuple[int, ...] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: Annotated[str, "stretch", "not_larger", "not_smaller"] = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"

    def filter(self) -> Filter:
        return Filter(
            self.mode,
            self.coordinate_transformation_mode,
            self.nearest_mode,
            self.cubic_coeff_a,
            bool(self.exclude_outside),
            bool(self.antialias),
        )

    def axes_plan(
        self, x: tuple[int, ...], roi: Array | None, scales: Array | None, sizes: Array | None
    ) -> tuple[Axis, ...]:
        """Return the resized axes. Raises InvalidGraph unless exactly one of scales and sizes is given."""
        axes = tuple(range(len(x))) if self.axes is None else tuple(self.axis_of(a, len(x)) for a in self.axes)
        if len(set(axes)) != len(axes):
            self.fail("distinct axes", list(axes))
        crop = _numbers(roi) if self.coordinate_transformation_mode == "tf_crop_and_resize" else ()
        given = _numbers(scales)
        lengths: list[Any] = [] if sizes is None else [n if is_dim(n) else int(n) for n in sizes.reshape(-1)]
        if bool(given) == bool(lengths) and len(axes):
            self.fail("either scales or sizes", "both" if given else "neither")
        if given or not axes:
            return self.by_scales(x, axes, given, crop)
        if len(lengths) != len(axes) or min(lengths) < 0:
            self.fail(f"{len(axes)} sizes of at least 0", lengths)
        if self.keep_aspect_ratio_policy == "stretch":
            return self.plan(x, axes, lengths, [ratio(n, x[a]) for a, n in zip(axes, lengths, strict=True)], crop)
        ratios = tuple(int(n) / int(x[a]) if x[a] else 1.0 for a, n in zip(axes, lengths, strict=True))
        common = min(ratios) if self.keep_aspect_ratio_policy == "not_larger" else max(ratios)
        lengths = [math.floor(common * x[a] + 0.5) for a in axes]
        return self.plan(x, axes, lengths, (common,) * len(axes), crop)

    def planned(self, inputs: tuple[Any, ...]) -> tuple[Axis, ...]:
        x, roi, scales, sizes = self.operands(*inputs)
        crop = self.coordinate_transformation_mode == "tf_crop_and_resize"
        known = (None if t is None or not t.size else t.value() for t in (roi if crop else None, scales, sizes))
        return self.axes_plan(x.shape, *known)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        return (self.result(inputs[0], self.planned(inputs)),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        x, roi, scales, sizes = self.operands(*inputs)
        return (self.resized(x, self.axes_plan(x.shape, roi, scales, sizes)),)

    def alias(self, *inputs: Any) -> int | None:
        return self.unchanged(self.planned(inputs))

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        return self.dispatches(target, inputs[0], self.planned(inputs))
