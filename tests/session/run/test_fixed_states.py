"""States that do not grow, fed back from the device: what the operator writes is all that moves (null device)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from pyruntime.session import InferenceSession
from tests.session.doubles import run_on
from tests.session.run.test_dynamic_sizes import Counting

F = TensorProto.FLOAT


@dataclass(frozen=True)
class Stepped:
    """A model of one operator with states: `states` input by output; `feeds` others, one step."""

    node: NodeProto
    states: dict[str, str]
    shapes: dict[str, list[int]]
    weights: dict[str, tuple[int, ...]]
    opset: int = 17

    def model(self) -> bytes:
        """The model's bytes."""
        random = np.random.default_rng(0)
        weights = {n: random.normal(size=s).astype(np.float32) for n, s in self.weights.items()}
        graph = helper.make_graph(
            [self.node],
            "stepped",
            [helper.make_tensor_value_info(n, F, s) for n, s in self.shapes.items()],
            [helper.make_tensor_value_info(n, F, None) for n in self.node.output if n],
            [numpy_helper.from_array(w, n) for n, w in weights.items()],
        )
        opset = helper.make_opsetid("", self.opset)
        return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString())


def recurrent(op: str, gates: int) -> Stepped:
    states = {"h2": "h", "c2": "c"} if op == "LSTM" else {"h2": "h"}
    node = helper.make_node(op, ["x", "w", "r", "", "", *states.values()], ["y", *states], hidden_size=8)
    shapes = {"x": [1, 1, 4], **{n: [1, 1, 8] for n in states.values()}}
    return Stepped(node, states, shapes, {"w": (1, gates * 8, 4), "r": (1, gates * 8, 8)})


STEPPED = {
    "LSTM": recurrent("LSTM", 4),
    "GRU": recurrent("GRU", 3),
    "RNN": recurrent("RNN", 1),
    "CausalConvWithState": Stepped(
        helper.make_node("CausalConvWithState", ["x", "w", "", "past"], ["y", "present"]),
        {"present": "past"},
        {"x": [1, 8, 1], "past": [1, 8, 3]},
        {"w": (8, 1, 4)},
        27,
    ),
    "LinearAttention": Stepped(
        helper.make_node(
            "LinearAttention", ["q", "k", "v", "past"], ["y", "present"],
            q_num_heads=2, kv_num_heads=2, update_rule="linear",
        ),
        {"present": "past"},
        {"q": [1, 1, 16], "k": [1, 1, 16], "v": [1, 1, 16], "past": [1, 2, 8, 8]},
        {},
        27,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPPED)
def test_state__fed_back__costs_no_copy_and_no_dispatch_and_meets_the_same_two_buffers(name: str) -> None:
    case, device = STEPPED[name], Counting()
    others = {n: np.ones(s, np.float32) for n, s in case.shapes.items() if n not in case.states.values()}

    async def main() -> None:
        session = await InferenceSession.create(case.model())
        program = session._program
        assert program is not None
        outputs = [o.name for o in session.get_outputs()]
        state: dict[str, Any] = {n: np.zeros(case.shapes[n], np.float32) for n in case.states.values()}
        await session.run_async(None, {**others, **state})
        alone = len(program.roots[-1].executable.plan.commands)
        met: set[int] = set()
        for step in range(40):
            made = await session._run_values({**others, **state}, outputs, None, dict.fromkeys(case.states))
            state = {case.states[n]: made[n] for n in case.states}
            if step == 8:
                counts, copies = device.counts, sum(call == "copy" for call, _ in device.calls)
            met |= {t.buffer for t in state.values()} if step > 8 else set()
        assert copies == sum(call == "copy" for call, _ in device.calls) == 0
        assert device.counts == counts and len(met) <= 2 * len(state)
        assert len(program.roots[-1].executable.plan.commands) == alone
        del state, made
        session.release()

    run_on(device, main)
