"""LinearAttention with windows of states. Source: com.microsoft operator LinearAttention."""

from __future__ import annotations

from typing import ClassVar

from pyruntime.ir import TensorType
from pyruntime.ops.attention.linear_attention import LinearAttentionBase, States
from pyruntime.ops.base import op


@op("LinearAttention", opsets=range(1, 2), domain="com.microsoft")
class LinearAttention(LinearAttentionBase):
    """As ONNX's, and: heads of states may be a multiple of those of queries, and of those of keys, which they share; y
    then has as many. Gates the rule does not use are ignored. With `state_window` W the states are [W, B, H, K, V]:
    those after the last W tokens, zeros for tokens there were not; past_state is read at its last.
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
