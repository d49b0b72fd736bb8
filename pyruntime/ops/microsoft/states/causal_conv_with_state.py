"""CausalConvWithState with dilation, channels-last layout and state windows. Source: com.microsoft."""

from __future__ import annotations

from typing import Annotated

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.convolution.causal_conv_with_state import CausalConv

_OF_CUDA = {
    "input_channel_offset": 0,
    "input_channels": 0,
    "state_channels_last": -1,
    "state_length": 0,
    "state_update_capacity": 0,
}


@op("CausalConvWithState", opsets=range(1, 2), domain="com.microsoft")
class CausalConvWithState(CausalConv):
    """CausalConvWithState with all attributes except those of onnxruntime's CUDA provider; `ndim` must be 1."""

    activation: Annotated[str, "none", "silu", "swish"] = "none"
    channels_last: int = 0
    dilation: int = 1
    input_channel_offset: int = 0
    input_channels: int = 0
    ndim: int = 1
    state_channels_last: int = -1
    state_length: int = 0
    state_update_capacity: int = 0
    state_window: int = 0

    def infer(
        self, x: TensorType, w: TensorType, bias: TensorType | None = None, past: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        if self.ndim != 1:
            self.fail("ndim 1, since the specification does not define the padding of more dimensions", self.ndim)
        for name, usual in _OF_CUDA.items():
            if getattr(self, name) != usual:
                self.fail(f"{name} {usual}, since only onnxruntime's CUDA provider has others", getattr(self, name))
        return super().infer(x, w, bias, past)
