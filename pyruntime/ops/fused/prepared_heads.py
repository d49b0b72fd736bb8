"""PreparedHeads: normalize, rotate and append to a cache the queries, keys and values of an attention, in one kernel.

    y_p = concat(past_p, rotate(norm(x_p))) along the rows of heads; each step is optional for a part p

norm: x / sqrt(mean(x²) + epsilon) · weight over the components of a head; rotate: rotary embedding (Su et al., 2021).
Results are computed in float32 and rounded once. `passes/decoding/prepare_heads.py` creates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.attention.description import HeadView
from pyruntime.kernels.attention.prepared_heads import Rows, Tables, prepare_heads
from pyruntime.ops.attention.rotary import turned
from pyruntime.ops.base import Unsupported, attributes_of, op
from pyruntime.ops.caches import CacheOp

__all__ = ["Part", "PreparedHeads"]


@dataclass(frozen=True, slots=True)
class Part:
    """Query, key or value heads: how one output is computed.

    Attributes:
        x: index of the input. `view` is its view [B, H, N, D] = `sizes`; D is a multiple of 4, at most 256.
        past: index of the input [B, H, P, D] whose rows precede the new ones; -1: none.
        weight: index of the weight [D] of the norm; -1: no norm.
        angles: strides of the cosine and sine tables over [B, H, N, columns]; None: no rotation.
    """

    x: int
    view: HeadView
    sizes: tuple[Any, Any, Any, int]
    past: int = -1
    weight: int = -1
    angles: tuple[Any, Any, Any, Any] | None = None


@op("PreparedHeads", opsets=range(1, 2), domain="pyruntime")
class PreparedHeads(CacheOp):
    """Split heads, with norm, rotary embedding and cache append where a part has them.

    Attributes:
        parts: one for each output.
        tables: indices of the inputs with cosines and sines.
        turning: number of leading components of a head to rotate.
        width: columns of the tables: `turning`, or half of it with one column per pair.
        interleaved: pairs are (2j, 2j + 1) instead of (j, j + turning / 2).
    """

    parts: tuple[Part, ...]
    tables: tuple[int, int] = (-1, -1)
    turning: int = 0
    width: int = 0
    interleaved: bool = False
    epsilon: float = 0.0

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(*inputs)
        return tuple(TensorType(dtype, self._shape(part, inputs)) for part in self.parts)

    def _shape(self, part: Part, inputs: Any) -> tuple[Any, ...]:
        batch, heads, rows, size = part.sizes
        if part.past >= 0:
            rows = inputs[part.past].shape[2] + rows
        return (batch, heads, rows, size)

    def evaluate(self, *inputs: Array) -> tuple[Array, ...]:
        return tuple(self._placed(i, self._fresh(part, inputs), inputs) for i, part in enumerate(self.parts))

    def _placed(self, index: int, rows: Array, inputs: tuple[Array, ...]) -> Array:
        past = self.parts[index].past
        return rows if past < 0 else np.concatenate((inputs[past], rows), axis=2)

    def _fresh(self, part: Part, inputs: tuple[Array, ...]) -> Array:
        """Compute the new rows of a part."""
        x = inputs[part.x]
        rows = part.view.array(x, part.sizes).astype(np.float32)
        if part.weight >= 0:
            spread = np.mean(np.square(rows, dtype=np.float64), axis=-1, keepdims=True)
            rows = (rows / np.sqrt(spread + self.epsilon) * inputs[part.weight]).astype(np.float32)
        if part.angles is not None:
            rows = self._turned(rows, part, inputs)
        return rows.astype(x.dtype)

    def _turned(self, rows: Array, part: Part, inputs: tuple[Array, ...]) -> Array:
        assert part.angles is not None
        at = HeadView(0, part.angles)
        c, s = (at.array(inputs[i], (*part.sizes[:3], self.width)).astype(np.float32) for i in self.tables)
        return turned(rows, c, s, self.turning, self.interleaved)

    def appends(self, *inputs: TensorType) -> dict[int, tuple[int, int]]:
        return {i: (part.past, 2) for i, part in enumerate(self.parts) if part.past >= 0}

    def append_in_place(self, *inputs: TensorType) -> _AppendsInPlace:
        rows = tuple(inputs[p.past].shape[2] if p.past >= 0 else 0 for p in self.parts)
        return _AppendsInPlace(**attributes_of(self), past_rows=rows)

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        return self._dispatches(target, inputs, False)

    def _first(self, index: int, inputs: tuple[TensorType, ...]) -> Any:
        """Return the number of rows before the new ones."""
        past = self.parts[index].past
        return inputs[past].shape[2] if past >= 0 else 0

    def _dispatches(self, target: Target, inputs: tuple[TensorType, ...], into: bool) -> tuple[Dispatch, ...]:
        if any(not x.dtype.is_float or x.dtype.is_wide for x in inputs):
            raise Unsupported("rows of float, float16 and bfloat16")
        made: list[Rows] = []
        for i, (part, kind) in enumerate(zip(self.parts, self.infer(*inputs), strict=True)):
            has_past = part.past >= 0 and not into and inputs[part.past].size
            made.append(
                Rows(
                    inp(part.x, inputs[part.x]),
                    part.view,
                    out(i, kind),
                    part.sizes[2],
                    self._first(i, inputs),
                    inp(part.past, inputs[part.past]) if has_past else None,
                    inp(part.weight, inputs[part.weight]) if part.weight >= 0 else None,
                    part.angles,
                )
            )
        tables = None
        if self.turning:
            cosines, sines = (inp(i, inputs[i]) for i in self.tables)
            tables = Tables(cosines, sines, self.turning // 2, self.interleaved, self.width != self.turning)
        return prepare_heads(target, made, tables, self.epsilon, into)


@op("PreparedHeadsInPlace", opsets=range(1, 2), domain="pyruntime")
class _AppendsInPlace(PreparedHeads):
    """PreparedHeads with y_p in the memory of past_p [B, H, C, D], of which `past_rows[p]` rows are valid."""

    past_rows: tuple[Any, ...] = ()

    @property
    def overwrites(self) -> dict[int, int]:
        return {i: part.past for i, part in enumerate(self.parts) if part.past >= 0}

    def _shape(self, part: Part, inputs: Any) -> tuple[Any, ...]:
        return part.sizes if part.past < 0 else tuple(inputs[part.past].shape)

    def _placed(self, index: int, rows: Array, inputs: tuple[Array, ...]) -> Array:
        past = self.parts[index].past
        if past < 0:
            return rows
        y, first = inputs[past].copy(), int(self.past_rows[index])
        y[:, :, first : first + rows.shape[2]] = rows
        return y

    def _first(self, index: int, inputs: tuple[TensorType, ...]) -> Any:
        return self.past_rows[index]

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        return self._dispatches(target, inputs, True)
