"""Runs of much work: submitted in slices, with progress, ended between two of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import pyruntime as ort
from pyruntime.device.desktop.long_runs import GROWTH, SLICE_S, Pace
from tests.desktop import desktop_device

SIZE, LAYERS = 64, 12
WORK = 2 * SIZE**3
"""Operations of a layer, its bytes left out."""


def chain() -> ModelProto:
    """Products with a matrix that turns the columns, one after another: each is a dispatch."""
    turned = numpy_helper.from_array(np.roll(np.eye(SIZE, dtype=np.float32), 1, 1), "w")
    names = ["x", *(f"h{k}" for k in range(1, LAYERS)), "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in "xy")
    graph = helper.make_graph(nodes, "test", [x], [y], [turned])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def slow(desktop_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device takes every run for a long one, and does a layer in each slice."""
    monkeypatch.setattr("pyruntime.device.desktop.long_runs.GROWTH", 1)
    monkeypatch.setattr(desktop_device(), "_pace", Pace(WORK / SLICE_S))


def run(report: Callable[[ort.RunOptions, int, int], None]) -> None:
    session, options = ort.InferenceSession(chain().SerializeToString()), ort.RunOptions()
    options.on_progress = lambda done, total: report(options, done, total)
    x = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    (y,) = session.run(None, {"x": x}, options)
    np.testing.assert_array_equal(y, np.roll(x, LAYERS, 1))


def test_run__long__right_and_reports_every_slice(slow: None) -> None:
    seen: list[tuple[int, int]] = []
    run(lambda _, done, total: seen.append((done, total)))
    assert len(seen) == LAYERS
    assert seen == sorted(seen) and {total for _, total in seen} == {seen[-1][0]}


def test_run__terminated_while_it_takes__ends_before_the_next_slice(slow: None) -> None:
    seen: list[int] = []

    def report(options: ort.RunOptions, done: int, _: int) -> None:
        seen.append(done)
        options.terminate = len(seen) == 3

    with pytest.raises(ort.Fail, match=r"ended by RunOptions\.terminate"):
        run(report)
    assert len(seen) == 3
    run(lambda *_: None)


def test_run__short__in_one_go_without_progress(desktop_gpu: None) -> None:
    seen: list[int] = []
    run(lambda _, done, __: seen.append(done))
    assert seen == []


def test_pace__slices__have_a_tenth_of_a_second_of_work_and_are_sent_two_at_a_time() -> None:
    pace, sent, done = Pace(rate=1000), list[tuple[int, int]](), list[int]()

    def submit(first: int, end: int) -> Callable[[], None]:
        sent.append((first, end))
        return lambda: done.append(len(sent))

    assert not pace.is_long([400]) and not pace.is_long([100, 300]) and pace.is_long([60, 60, 500])
    pace.run([60, 30, 60, 500, 1], submit, None)
    assert sent[:2] == [(0, 2), (2, 3)] and sent[-1][1] == 5
    assert done[0] == 2
    assert pace.rate > 1000 * GROWTH
