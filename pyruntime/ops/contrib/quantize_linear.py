"""QuantizeLinear and DequantizeLinear of com.microsoft: ONNX's, from before it had types of 16 and 4 bits."""

from __future__ import annotations

from typing import Any

from pyruntime.ir import DType
from pyruntime.ops._composite import Composite, Runner
from pyruntime.ops.base import op
from pyruntime.ops.registry import newest


@op("QuantizeLinear", opsets=range(1, 2), domain="com.microsoft")
class QuantizeLinear(Composite):
    """y = saturate(round(x / scale) + zero point), a scale for all or for each index of an axis (1 where not given)."""

    axis: int | None = None

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        x, scale, zero = (*inputs, None)[:3]
        to = runner.type_of(zero).dtype if zero is not None else DType.UINT8
        made = newest("QuantizeLinear", axis=1 if self.axis is None else self.axis, output_dtype=to.code)
        return runner.run(made, x, scale, zero)


@op("DequantizeLinear", opsets=range(1, 2), domain="com.microsoft")
class DequantizeLinear(Composite):
    """y = (x - zero point) · scale, a scale for all or for each index of an axis (1 where not given)."""

    axis: int | None = None

    def compose(self, runner: Runner, *inputs: Any) -> tuple[Any, ...]:
        x, scale, zero = (*inputs, None)[:3]
        return runner.run(newest("DequantizeLinear", axis=1 if self.axis is None else self.axis), x, scale, zero)
