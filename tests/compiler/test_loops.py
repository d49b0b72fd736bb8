"""Scan and Loop of known trips: bodies that the GPU repeats, on the software adapter; onnxruntime is the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime as ort
from tests.desktop import on_desktop
from tests.loop_models import HALF, LOOPS, floats, gated_delta
from tests.models import compare, text_model
from tests.oracle import OPTIONS

GROWING = """
agraph (float[n, 3] x) => (p) {
  trips = Constant <value = int64 {3}> ()
  p = Loop (trips, , x) <body = step (int64 i, bool c, float[m, 3] s) => (bool c2, float[k, 3] s2) {
    c2 = Identity (c)
    s2 = Concat <axis = 0> (s, x)
  }>
}"""

UNTIL = """
agraph (float[3] a) => (p) {
  p = Loop ( , , a) <body = step (int64 i, bool c, float[3] s) => (bool c2, float[3] s2) {
    two = Constant <value_float = 2.0> ()
    s2 = Mul (s, two)
    sum = ReduceSum <keepdims = 0> (s2)
    most = Constant <value_float = 100.0> ()
    c2 = Less (sum, most)
  }>
}"""


DOUBLE = HALF.replace("float16", "double")


def check(session: ort.InferenceSession, text: str, feeds: dict[str, Any]) -> None:
    """Compare a run with onnxruntime's."""
    oracle = onnxruntime.InferenceSession(
        text_model(text).SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"]
    )
    for mine, theirs in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
        rtol, atol = (2e-3, 1e-3) if theirs.dtype == np.float16 else (1e-5, 1e-6)
        compare(mine, theirs, rtol, atol)


def opened(text: str) -> ort.InferenceSession:
    return ort.InferenceSession(text_model(text).SerializeToString())


def placements(session: ort.InferenceSession, *kinds: str) -> Sequence[str]:
    return [node.placement for node in session.explain().nodes if node.op_type in kinds]


@pytest.mark.parametrize("lengths", [(5, 9, 3, 5), (9, 5, 12), (1, 4, 1, 7)], ids=str)
@pytest.mark.parametrize("name", LOOPS)
def test_loops__of_any_length__as_onnxruntime_without_a_host_step(
    name: str, lengths: Sequence[int], desktop_gpu: None
) -> None:
    text, feeds = LOOPS[name]
    session = opened(text)
    for length in lengths:
        check(session, text, feeds(length))
    assert set(placements(session, "Scan", "Loop")) <= {"gpu"}
    assert "host" not in {node.placement for node in session.explain().nodes}


@pytest.mark.parametrize("name", LOOPS)
def test_loops__on_the_host__as_onnxruntime(name: str) -> None:
    text, feeds = LOOPS[name]
    session = opened(text)
    for length in (4, 1):
        check(session, text, feeds(length))


@pytest.mark.parametrize("name", LOOPS)
def test_loops__of_no_trip__leave_the_states_and_give_no_rows(name: str, desktop_gpu: None) -> None:
    text, feeds = LOOPS[name]
    session = opened(text)
    for length in (4, 0, 2, 0):  # onnxruntime 1.32 refuses Scan without steps
        given = feeds(length)
        results = session.run(None, given)
        if length == 0:
            states = [given[k] for k in ("a", "b") if k in given]
            for mine, state in zip(results, states, strict=False):
                np.testing.assert_array_equal(mine, state)
            assert all(0 in y.shape for y in results[len(states) :])


@pytest.mark.parametrize("name", LOOPS)
def test_loops__in_memory_of_their_own__give_the_same_bits(name: str, desktop_gpu: None) -> None:
    text, feeds = LOOPS[name]
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.sanitize", "1")
    session = ort.InferenceSession(text_model(text).SerializeToString(), options)
    check(session, text, feeds(3))


@pytest.mark.parametrize("text", [GROWING, UNTIL], ids=["growing", "until"])
def test_loops__that_grow_or_ask_a_run__stay_on_the_host(text: str, desktop_gpu: None) -> None:
    feeds = {"x": floats(2, 3)} if text is GROWING else {"a": np.array([1, 2, 3], np.float32)}
    session = opened(text)
    check(session, text, feeds)
    assert placements(session, "Loop") == ["host"]


def test_loop__of_float64__is_a_host_step_for_each_length(desktop_gpu: None) -> None:
    session = opened(DOUBLE)
    for length in (4, 6, 3, 4):
        check(session, DOUBLE, {"a": floats(3, dtype=np.float64), "x": floats(length, 3, dtype=np.float64)})
    (scan,) = (node for node in session.explain().nodes if node.op_type == "Scan")
    assert scan.placement == "host" and "float64" in scan.reason


def test_loop__whose_outputs_stay_on_the_device__as_onnxruntime(desktop_gpu: None) -> None:
    text, feeds = LOOPS["states"]
    session, given = opened(text), feeds(6)
    expected = onnxruntime.InferenceSession(text_model(text).SerializeToString(), OPTIONS).run(None, given)
    for _ in range(3):
        binding = session.io_binding()
        for name, value in given.items():
            binding.bind_cpu_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name, "webgpu")
        session.run_with_iobinding(binding)
        for mine, theirs in zip(binding.get_outputs(), expected, strict=True):
            compare(mine.numpy(), theirs, 1e-5, 1e-6)


def test_loop__profiled__counts_each_dispatch_once(desktop_gpu: None) -> None:
    text, feeds = LOOPS["states"]
    session = opened(text)
    session.run(None, feeds(5))
    plan = session.explain()
    assert plan.dispatches < 25
    assert len(session.profile(feeds(5)).rows) > 0


def test_loop__of_many_trips__is_planned_once() -> None:
    with on_desktop():
        text, feeds = LOOPS["states"]
        session = opened(text)
        counts = []
        for length in (3, 300):
            session.run(None, feeds(length))
            counts.append(session.explain().dispatches)
        assert counts[0] == counts[1]


@pytest.mark.parametrize(("disabled", "dispatches"), [("", 13 * 24), ("fuse_linear_attention", 30 * 24)])
def test_layers__of_the_gated_delta_rule__are_one_run_without_a_host_step(
    disabled: str, dispatches: int, desktop_gpu: None
) -> None:
    model, x = gated_delta(24, 64, 2, 32), floats(20, 64)
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.disable", disabled)
    session = ort.InferenceSession(model, options)
    (expected,) = onnxruntime.InferenceSession(model, OPTIONS).run(None, {"x": x})
    compare(session.run(None, {"x": x})[0], expected, 1e-3, 1e-3)
    (plan,) = (stage.executable.plan for stage in session._program.roots)  # type: ignore[union-attr]
    assert len(plan.steps) == 1 and not plan.host_steps
    assert len(plan.commands) <= dispatches
