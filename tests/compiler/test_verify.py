"""The verifier of plans: right plans pass, each way to destroy what is still needed is named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from pyruntime.compiler.build import build_plan
from pyruntime.compiler.lifetimes import Lifetimes, Step
from pyruntime.compiler.plan import Command, GpuSegment, Plan, Space
from pyruntime.compiler.verify import PlanError, complaints, verify
from pyruntime.ir import Constant, DType, TensorType
from pyruntime.kernels import Target
from pyruntime.passes import optimize
from tests.compiler.graphs import node, typed_graph

TARGETS = {"gpu": Target(vendor="nvidia"), "software": Target(vendor="google")}


def residual_plan(target: Target) -> Plan:
    """y = relu(conv(t) + t), t = tanh(x): the convolution reads what a careless plan overwrites."""
    x = {"x": TensorType(DType.FLOAT, (1, 8, 13, 13))}
    w = {"w": Constant.from_array(np.ones((8, 8, 3, 3), np.float32))}
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("Conv", ["t", "w"], ["c"], kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
        node("Add", ["c", "t"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    graph = typed_graph(nodes, x, ["y"], w)
    optimize(graph, target)
    return build_plan(graph, target)


def last(plan: Plan) -> tuple[GpuSegment, Command]:
    segment = plan.steps[-1]
    assert isinstance(segment, GpuSegment)
    return segment, segment.commands[-1]


def changed(plan: Plan, **fields: object) -> list[str]:
    """What is wrong with `plan` once its last command has other fields."""
    segment, command = last(plan)
    segment.commands[-1] = replace(command, **fields)  # type: ignore[arg-type]
    return list(complaints(plan))


@pytest.mark.parametrize("target", TARGETS)
def test_plan__residual_is_the_operators_own_input__is_not_overwritten(target: str) -> None:
    plan = residual_plan(TARGETS[target])
    _, command = last(plan)
    assert [a.value for a in command.accesses if not a.write].count("t") == 2, "the residual is fused"
    (y,) = [a.region for a in command.accesses if a.write]
    assert y not in [a.region for a in command.accesses if not a.write]
    assert not list(complaints(plan))


@pytest.mark.parametrize("target", TARGETS)
def test_build__operands_that_are_not_listed_may_be_overwritten__is_refused(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Takes the rule of `share_in_place` away: the plan as it was before there was one."""
    real = Lifetimes.share_in_place

    def careless(self: Lifetimes, steps: Iterable[Step]) -> int:
        def all_listed(step: Step) -> Step:
            pairs = tuple((i, written) for _, written in step.dispatch.inplace for i in range(len(step.values)))
            return replace(step, dispatch=replace(step.dispatch, inplace=(*step.dispatch.inplace, *pairs)))

        return real(self, map(all_listed, steps))

    monkeypatch.setattr(Lifetimes, "share_in_place", careless)
    with pytest.raises(PlanError, match="overwrites 't' with 'y' while other invocations read it"):
        residual_plan(TARGETS[target])


def test_complaints__region_moved_onto_another_value__names_both() -> None:
    plan = residual_plan(TARGETS["gpu"])
    _, command = last(plan)
    (written,) = [a for a in command.accesses if a.write]
    (read,) = {a.region for a in command.accesses if a.value == "t"}
    regions = list(command.regions)
    regions[written.region] = regions[read]
    assert any("overwrites 't' with 'y'" in text for text in changed(plan, regions=tuple(regions)))


def test_complaints__value_that_nothing_wrote__is_named() -> None:
    plan = residual_plan(TARGETS["gpu"])
    segment, _ = last(plan)
    del segment.commands[0]
    segment.uploads.clear()
    found = list(complaints(plan))
    assert found and all("reads 't': nothing wrote it" in text for text in found)


def test_complaints__value_overwritten_before_its_last_use__is_named() -> None:
    plan = residual_plan(TARGETS["gpu"])
    segment, _ = last(plan)
    segment.commands.insert(1, replace(segment.commands[0], accesses=tuple(
        replace(a, value="intruder") if a.write else a for a in segment.commands[0].accesses
    )))  # fmt: skip
    assert any("reads 't': its bytes hold 'intruder'" in text for text in complaints(plan))


def test_complaints__weights_written__are_named() -> None:
    plan = residual_plan(TARGETS["gpu"])
    _, command = last(plan)
    weight = next(i for i, r in enumerate(command.regions) if r.space is Space.WEIGHTS)
    accesses = tuple(replace(a, write=True) if a.region == weight else a for a in command.accesses)
    assert any("writes weights ('w')" in text for text in changed(plan, accesses=accesses))


def test_complaints__operand_larger_than_its_region__is_named() -> None:
    plan = residual_plan(TARGETS["gpu"])
    _, command = last(plan)
    accesses = (replace(command.accesses[0], nbytes=1 << 20), *command.accesses[1:])
    assert any("takes 1048576 bytes, more than" in text for text in changed(plan, accesses=accesses))


def test_verify__download_of_what_was_overwritten__raises_with_all_complaints() -> None:
    plan = residual_plan(TARGETS["gpu"])
    segment, command = last(plan)
    other = tuple(replace(a, value="z") if a.write else a for a in command.accesses)
    segment.commands[-1] = replace(command, accesses=other)
    with pytest.raises(PlanError, match="download of 'y': its bytes hold 'z'"):
        verify(plan)


@pytest.mark.parametrize("target", TARGETS)
def test_plan__operands_that_an_epilogue_broadcasts__are_not_listed(target: str) -> None:
    """relu(conv(t) + bias over channels + s): of the epilogue's operands only s may be the result's memory."""
    x = {"x": TensorType(DType.FLOAT, (1, 8, 13, 13))}
    w = {"w": Constant.from_array(np.ones((8, 8, 3, 3), np.float32))}
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("Sigmoid", ["x"], ["s"]),
        node("GlobalAveragePool", ["s"], ["bias"]),
        node("Conv", ["t", "w"], ["c"], kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
        node("Add", ["c", "bias"], ["b"]),
        node("Add", ["b", "s"], ["r"]),
        node("Relu", ["r"], ["y"]),
    ]
    graph = typed_graph(nodes, x, ["y"], w)
    optimize(graph, TARGETS[target])
    _, command = last(build_plan(graph, TARGETS[target]))
    listed = [command.accesses[read].value for read, _ in command.inplace]
    assert {a.value for a in command.accesses} == {"t", "w", "bias", "s", "y"}
    assert listed == ["s"]


def test_complaints__tensor_that_stays_on_the_gpu_gets_another_value__names_both() -> None:
    """y = relu(t), t = tanh(x), with x and y on the GPU."""
    kind = TensorType(DType.FLOAT, (4, 4))
    graph = typed_graph([node("Tanh", ["x"], ["t"]), node("Relu", ["t"], ["y"])], {"x": kind}, ["y"])
    graph.resident = frozenset({"x"})
    plan = build_plan(graph, TARGETS["gpu"], ["y"])
    assert not list(complaints(plan))
    segment = plan.steps[-1]
    assert isinstance(segment, GpuSegment)
    to_y, x = segment.commands[-1], segment.commands[0].regions[0]
    (written,) = [a for a in to_y.accesses if a.write]
    regions = tuple(x if i == written.region else r for i, r in enumerate(to_y.regions))
    assert any("writes 'y' into the memory of 'x'" in text for text in changed(plan, regions=regions))


def test_complaints__value_of_another_size__is_another_tensor() -> None:
    plan = residual_plan(TARGETS["gpu"])
    _, command = last(plan)
    i = next(i for i, a in enumerate(command.accesses) if a.value == "t")
    size = command.accesses[i].nbytes
    smaller = replace(command.accesses[i], nbytes=size - 64)
    accesses = (*command.accesses[:i], smaller, *command.accesses[i + 1 :])
    assert any(
        f"'t' is a tensor of {size} bytes and one of {size - 64}" in text for text in changed(plan, accesses=accesses)
    )
