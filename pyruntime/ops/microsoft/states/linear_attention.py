"""LinearAttention with state windows. Source: com.microsoft operator LinearAttention."""

from __future__ import annotations

from typing import ClassVar

from pyruntime.ir import TensorType
from pyruntime.ops.attention.linear_attention import LinearAttentionBase, States
from pyruntime.ops.base import op


@op("LinearAttention", opsets=range(1, 2), domain="com.microsoft")
class LinearAttention(LinearAttentionBase):
    """ONNX's LinearAttention, in which several state heads may also share a query or key head.

    y has at least as many heads as the states. Gates that the rule does not use are ignored. With `state_window` W,
    states are [W, B, H, K, V]: those after each of the last W tokens, zeros where there were fewer. Of such a
    past_state the last one is read.
    """

    shares: ClassVar[bool] = True

    state_window: int = 0

    @property
    def window(self) -> int:
        return self.state_window

    def sizes(self, q: TensorType, k: TensorType, v: TensorType) -> States:
        if not 0 <= self.state_window <= 8:
            self.fail("state_window from 0 to 8", self.state_window)
        return super().sizes(q, k, v)
