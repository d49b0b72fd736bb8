"""VarlenCausalConvWithState: CausalConvWithState over packed sequences. Source: com.microsoft."""

from __future__ import annotations

from typing import Any

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.microsoft.states.causal_conv_with_state import CausalConvWithState
from pyruntime.ops.microsoft.states.requests import joined, requests_of, rows_of
from pyruntime.ops.operands import named


@op("VarlenCausalConvWithState", opsets=range(1, 2), domain="com.microsoft")
class VarlenCausalConvWithState(Decomposed):
    """input: [tokens, C]; weight: [C, 1, k]; bias: [C]; states: [B, C, (k - 1) · dilation].

    cumulative_sequence_length: int32 [B + 1], whose value planning needs. Attributes of onnxruntime's CUDA provider and
    `state_update_capacity` are not supported.
    """

    operands = named(
        "input weight cumulative_sequence_length bias? initial_state?",
        optional="capture_count kernel_delta previous_mask",
    )

    activation: str = "none"
    delta_offset: int = 0
    dilation: int = 1
    group_size: int = 1
    state_update_capacity: int = 0

    def expand(self, body: Expansion, *inputs: Any) -> tuple[TensorType | None, ...]:
        given = self.operands(*inputs)
        x, state = given.input, given.initial_state
        if self.state_update_capacity or self.wants(2) or given.kernel_delta is not None:
            self.fail("no state_update and no kernel_delta", f"state_update_capacity {self.state_update_capacity}")
        if x.rank != 2 or state is None or state.rank != 3:
            self.fail("an input [tokens, C] and an initial_state [B, C, before]", f"{x} and {state}")
        conv = CausalConvWithState(activation=self.activation, dilation=self.dilation, present=(True, True))
        columns = body("Unsqueeze", body("Transpose", x, perm=(1, 0)), body.ints(0))
        made = []
        for i, (begin, end) in enumerate(requests_of(self, given.cumulative_sequence_length, x.shape[0], state)):
            part, before = rows_of(body, columns, begin, end, 2), rows_of(body, state, i, i + 1, 0)
            made.append(body.apply(conv, part, given.weight, given.bias, before))
        y = body("Squeeze", joined(body, [m[0] for m in made], 2), body.ints(0))
        return body("Transpose", y, perm=(1, 0)), joined(body, [m[1] for m in made], 0), None
