"""Of kernels that cost nearly the same a plan takes one that it has already."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.kernels.candidates import SHARED, Kernels
from pyruntime.kernels.matmul_candidates import PRODUCTS, ProductProblem
from pyruntime.onnx.importer import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.plan.plan import Plan
from pyruntime.session.program import Program
from tests.open_models import F, Writer

LIMITS = Limits(storage_buffers=10, workgroup_bytes=49152, invocations=1024, workgroup_x=1024)
GPU = Target(LIMITS, frozenset({"subgroups", "subgroup_size_32"}), "nvidia")
ALONE = replace(GPU, disabled=frozenset({"shared_kernels"}))
NARROW, WIDE = ProductProblem(784, 128, 256), ProductProblem(784, 256, 128)
"""m, n, k. The cheapest kernels of these differ, but each is nearly the cheapest of the other."""


def products(*activations: str) -> bytes:
    """x: [784, 128] -> y: products of 256 and of 128 columns by turns, an activation behind each."""
    w, x = Writer(1), "x"
    for i, activation in enumerate(activations):
        last = i == len(activations) - 1
        k, n = (256, 128) if i % 2 else (128, 256)
        x = w.add(activation, w.linear(x, k, n), out="y" if last else "")
    return w.model({"x": (F, [784, 128])}, ["y"])


def planned(model: bytes, target: Target) -> tuple[Plan, list[str]]:
    """The plan, and why each of its products has its kernel."""
    program = Program(import_model(read_model(model)).graph, NullDevice(target), disabled=target.disabled)
    stage = asyncio.run(program.prepare({"x": TensorType(DType.FLOAT, (784, 128))}, ["y"]))
    assert stage is not None
    plan = stage.executable.plan
    return plan, [n.rank(target).reason for a in plan.assignments for n in a.choices]


def test_preferred__nearly_as_cheap__the_one_that_is_there() -> None:
    cheap, other = PRODUCTS.rank(NARROW, GPU), PRODUCTS.rank(WIDE, GPU)
    assert cheap.chosen != other.chosen
    costs = {c.name: c.cost for c in cheap.others if c.cost is not None}
    assert costs[other.chosen] <= (1 + SHARED) * costs[cheap.chosen]
    kernels = Kernels()
    assert kernels.preferred(other, "Relu") == other.chosen
    assert kernels.preferred(cheap, "Relu") == other.chosen
    assert kernels.preferred(cheap, "Erf") == cheap.chosen, "its text is another"


def test_preferred__dearer_measured_or_with_another_dispatch__not() -> None:
    choice = PRODUCTS.rank(ProductProblem(1500, 1536, 384), GPU)
    costed = {c.name: c.cost for c in choice.others if c.cost is not None}
    dear = [c for c in choice.others if c.cost is not None and c.cost > (1 + SHARED) * costed[choice.chosen]]
    assert dear
    for considered in dear:
        kernels = Kernels()
        kernels.preferred(replace(choice, chosen=considered.name, reason="measured"), "Relu")
        assert kernels.preferred(choice, "Relu") == choice.chosen
    kernels = Kernels()
    kernels.preferred(PRODUCTS.rank(WIDE, GPU), "Relu")
    measured = replace(PRODUCTS.rank(NARROW, GPU), reason="measured")
    assert kernels.preferred(measured, "Relu") == measured.chosen


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid"])
def test_plan__products_of_one_kind__one_pipeline(activation: str) -> None:
    model = products(*[activation] * 4)
    (shared, reasons), (alone, without) = planned(model, GPU), planned(model, ALONE)
    assert len(shared.commands) == len(alone.commands) == 4
    assert (len(shared.shaders), len(alone.shaders)) == (1, 2)
    assert "shared" in reasons and set(without) == {"cost"}


def test_plan__made_twice__the_same() -> None:
    model = products("Relu", "Sigmoid", "Relu", "Sigmoid")
    first, second = (planned(model, GPU)[0] for _ in range(2))
    assert first.shaders == second.shaders and first.commands == second.commands
