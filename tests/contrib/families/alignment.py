"""What Whisper's word timestamps take: windows of attention for a median, and the path of least cost."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.contrib.drawing import BFLOAT16, F16, F32, chance, floats, pick, shape_of

_KERNELS = (F32, np.float64, np.int32, np.int64)
"""Types of onnxruntime's CPU."""
_OTHERS = (F16, BFLOAT16, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.uint64, np.bool_)


def draw_unfold_tensor(rng: np.random.Generator) -> Case:
    """Windows that overlap, touch or leave gaps, along every dimension; texts, too."""
    shape = shape_of(rng, 1, 4)
    kind = pick(rng, "own", "own", "other", "text")
    if kind == "text":
        x = np.array([f"t{i}" for i in range(int(np.prod(shape)))], object).reshape(shape)
    else:
        x = np.abs(floats(rng, shape, F32, 9)).astype(pick(rng, *(_KERNELS if kind == "own" else _OTHERS)))
    dim = int(rng.integers(-x.ndim, x.ndim))
    size, step = int(rng.integers(1, shape[dim] + 1)), int(rng.integers(1, 5))
    attributes = {"size": size}
    if step > 1 or chance(rng):
        attributes["step"] = step
    if dim != -1 or chance(rng):
        attributes["dim"] = dim

    def reference(x: Array) -> tuple[Array, ...]:
        axis = dim % x.ndim
        starts = range(0, x.shape[axis] - size + 1, step)
        windows = [np.moveaxis(np.take(x, range(s, s + size), axis), axis, -1) for s in starts]
        return (np.stack(windows, axis),)

    return Case("UnfoldTensor", [x], 1, attributes, reference=reference if kind != "own" else None, host=kind == "text")


def draw_dynamic_time_warping(rng: np.random.Generator) -> Case:
    """Costs with many ties, or none; negative ones, infinity, NaN."""
    shape = tuple(int(n) for n in rng.integers(1, pick(rng, 4, 12, 40), 2))
    x = rng.integers(-1, 3, shape).astype(F32) if chance(rng) else floats(rng, shape)
    if chance(rng, 0.3):
        strange = rng.choice([np.inf, -np.inf, np.nan, 3e38], shape).astype(F32)
        x = np.where(rng.random(shape) < 0.2, strange, x)
    return Case("DynamicTimeWarping", [x[None] if chance(rng, 0.3) else x], host=True)


DRAWS: dict[str, Draw] = {"UnfoldTensor": draw_unfold_tensor, "DynamicTimeWarping": draw_dynamic_time_warping}
