"""PackRows and SpreadRows: reorder quantized weights and their scales for the kernels of packed products.

    PackRows      y[n] = x[n step_n + (c // share) step_c] for c < columns, packed as `bits` bits each, low bits first
    SpreadRows    y[n, c] = x[n step_n + (c // share) step_c]

For constant weights the result is computed once, on the GPU where the weights are large. Passes of
`passes/quantization/` create these operators for weights of MatMul or Gemm that DequantizeLinear produces.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Source, Target, gather_map, inp, out
from pyruntime.ops.base import Op, attributes, op
from pyruntime.ops.microsoft.products.packed import pack
from pyruntime.ops.quantization.parameters import RANGES

__all__ = ["PackRows", "SpreadRows"]


@attributes
class _Rows(Op):
    """Base of PackRows and SpreadRows: maps element (n, c) of the result to an element of x."""

    rows: int
    columns: int
    step_n: int
    step_c: int
    share: int = 1

    def source(self) -> Array:
        """Return the indices into x, [rows, columns]."""
        n, c = np.arange(self.rows)[:, None], np.arange(self.columns)[None]
        index: Array = n * self.step_n + c // self.share * self.step_c
        return index

    def values(self) -> dict[str, int]:
        """Return the uniforms of the kernels."""
        return {"columns": self.columns, "step_n": self.step_n, "step_c": self.step_c, "share": self.share}


@op("PackRows", opsets=range(1, 2), domain="pyruntime")
class PackRows(_Rows):
    """x: integers of `bits` bits, offset by 2^(bits - 1) if signed. y: uint8 [rows, pitch], zero-padded."""

    pitch: int
    bits: int

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype not in RANGES or x.dtype.bits != self.bits:
            self.fail(f"integers of {self.bits} bits", x)
        return (TensorType(DType.UINT8, (self.rows, self.pitch)),)

    def alias(self, x: TensorType) -> int | None:
        whole = self.columns * self.bits == 8 * self.pitch and x.size == self.rows * self.columns
        same = self.step_c == 1 and self.share == 1 and (self.step_n == self.columns or self.rows == 1)
        return 0 if whole and same and not x.dtype.is_signed else None

    def evaluate_typed(self, types: object, x: Array) -> tuple[Array, ...]:
        offset = (1 << (self.bits - 1)) if x.dtype.kind == "i" else 0
        made = np.zeros((self.rows, self.pitch), np.uint8)
        # In blocks of rows, because the indices need many times the memory of the weights.
        step = max(1, (1 << 20) // max(1, self.columns))
        flat, columns = x.reshape(-1), np.arange(self.columns)[None] // self.share * self.step_c
        for first in range(0, self.rows, step):
            n = np.arange(first, min(first + step, self.rows))[:, None]
            packed = pack((flat[n * self.step_n + columns].astype(np.int16) + offset).astype(np.uint8), self.bits)
            made[first : first + step, : packed.shape[1]] = packed
        return (made,)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x)
        per, mask = 8 // self.bits, (1 << self.bits) - 1
        flip = (1 << (self.bits - 1)) if x.dtype.is_signed else 0
        lines = [f"let n = i / params.pitch;\n  let c = (i - n * params.pitch) * {per}u;\n  var packed = 0u;"]
        for k in range(per):
            at = f"n * params.step_n + (c + {k}u) / params.share * params.step_c"
            number = f"((u32(load_x({at})) ^ {flip}u) & {mask}u) << {self.bits * k}u"
            lines.append(f"if (c + {k}u < params.columns) {{ packed |= {number}; }}")
        values = {**self.values(), "pitch": self.pitch}
        code = "\n  ".join([*lines, "return packed;"])
        name = f"pack_rows_{x.dtype.onnx_name}"
        return (gather_map(target, name, out(0, y), [Source("x", inp(0, x))], code, values),)


@op("SpreadRows", opsets=range(1, 2), domain="pyruntime")
class SpreadRows(_Rows):
    """x: floats; y: [rows, columns] of the same type."""

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(x.dtype, (self.rows, self.columns)),)

    def alias(self, x: TensorType) -> int | None:
        same = self.step_c == 1 and self.share == 1 and (self.step_n == self.columns or self.rows == 1)
        return 0 if same and x.size == self.rows * self.columns else None

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (x.reshape(-1)[self.source()],)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(x)
        code = (
            "let n = i / params.columns;\n"
            "  return load_x(n * params.step_n + (i - n * params.columns) / params.share * params.step_c);"
        )
        values = self.values()
        return (gather_map(target, "spread_rows", out(0, y), [Source("x", inp(0, x))], code, values),)
