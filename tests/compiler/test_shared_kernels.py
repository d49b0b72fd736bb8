"""A plan takes a kernel that it has already where its runs take hardly longer so."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pyruntime.compiler.plan import Plan
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.kernels.products.candidates import PRODUCTS, ProductProblem
from pyruntime.kernels.selection.candidates import SAVES, SHARED, SPENT, Choice, Considered, Kernels
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program
from tests.open_models import F, Writer

LIMITS = Limits(storage_buffers=10, workgroup_bytes=49152, invocations=1024, workgroup_x=1024)
GPU = Target(LIMITS, frozenset({"subgroups", "subgroup_size_32"}), "nvidia")
ALONE = replace(GPU, disabled=frozenset({"shared_kernels"}))
NARROW, WIDE = ProductProblem(784, 128, 256), ProductProblem(784, 256, 128)
"""m, n, k. The cheapest kernels of these differ, but each is nearly the cheapest of the other."""


def products(*activations: str) -> bytes:
    """x: [784, 128] -> y: products of 256 and of 128 columns alternating, an activation after each."""
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


def a_choice(
    *costs: float, problem: str = "p", chosen: str = "k0", dispatches: int = 1, reason: str = "cost"
) -> Choice:
    """Candidates k0, k1, ... of these costs, each with a kernel of its own."""
    others = tuple(Considered(f"k{i}", cost, dispatches) for i, cost in enumerate(costs))
    return Choice("family", problem, chosen, reason, others)


def test_preferred__nearly_as_cheap__the_one_that_is_there() -> None:
    cheap, other = PRODUCTS.rank(NARROW, GPU), PRODUCTS.rank(WIDE, GPU)
    assert cheap.chosen != other.chosen
    kernels = Kernels()
    assert kernels.preferred(other, "Relu") == other.chosen
    assert kernels.preferred(cheap, "Relu") == other.chosen
    assert kernels.preferred(cheap, "Erf") == cheap.chosen, "its text is another"


def test_preferred__dearer__where_all_dispatches_together_take_hardly_longer() -> None:
    dear, most = a_choice(10.0, 10.0 * (1 + SHARED)), a_choice(10.0, 10.1 * (1 + SHARED), problem="q")
    alone, shared = Kernels(), Kernels()
    for kernels, times in ((alone, 1), (shared, 100)):
        assert kernels.preferred(a_choice(99.0, 10.0, problem="large", chosen="k1"), "Relu", times) == "k1"
    assert (alone.preferred(dear, "Relu"), shared.preferred(dear, "Relu")) == ("k0", "k1")
    assert shared.preferred(most, "Relu") == "k0"


def test_preferred__many_dearer_ones__no_longer_than_their_share_together() -> None:
    kernels = Kernels()
    kernels.preferred(a_choice(99.0, 1000.0, problem="large", chosen="k1"), "Relu")
    taken = [kernels.preferred(a_choice(10.0, 14.0, problem=str(i)), "Relu") for i in range(20)]
    extra, whole = 4.0 * taken.count("k1"), 1000.0 + 10.0 * len(taken)
    assert 0 < extra <= SPENT * whole


def test_preferred__on_a_processor__another_kernel_has_to_save_what_compiling_it_takes() -> None:
    """A sixth of a dispatch of 479 us is no reason to compile for a third of a second."""
    gpu, processor = Kernels(), Kernels(processor=True)
    for kernels in (gpu, processor):
        kernels.preferred(a_choice(9000.0, 630.0, problem="first", chosen="k1"), "Relu")
        kernels.preferred(a_choice(1000.0, problem="others"), "Erf")
    few, many = a_choice(479.0, 479.0 + 0.7 * SAVES), a_choice(479.0, 479.0 + 1.1 * SAVES, problem="q")
    assert (gpu.preferred(few, "Relu"), processor.preferred(few, "Relu")) == ("k0", "k1")
    assert processor.preferred(many, "Relu") == "k0"


def test_preferred__of_many_nodes__each_counts() -> None:
    once, often = Kernels(), Kernels()
    for kernels in (once, often):
        kernels.preferred(a_choice(99.0, 250.0, problem="large", chosen="k1"), "Relu")
    choice = a_choice(10.0, 14.0)
    assert (once.preferred(choice, "Relu"), often.preferred(choice, "Relu", 9)) == ("k1", "k0")


def test_preferred__measured_or_with_another_dispatch__not() -> None:
    kernels = Kernels()
    kernels.preferred(a_choice(9.0, 1.0, problem="first", chosen="k1"), "Relu")
    assert kernels.preferred(a_choice(1.0, 1.01, reason="measured"), "Relu") == "k0"
    costs = (Considered("k0", 1.0, 1), Considered("k1", 1.01, 2))
    kernels.preferred(replace(a_choice(9.0, 1.0, problem="second", chosen="k1"), others=(costs[1],)), "Relu")
    assert kernels.preferred(Choice("family", "q", "k0", "cost", costs), "Relu") == "k0"


def test_preferred__asked_again__the_same_and_counted_once() -> None:
    kernels = Kernels()
    kernels.preferred(a_choice(99.0, 250.0, problem="large", chosen="k1"), "Relu")
    assert [kernels.preferred(a_choice(10.0, 14.0), "Relu") for _ in range(9)] == ["k1"] * 9
    assert kernels.preferred(a_choice(10.0, 11.2, problem="q"), "Relu") == "k1"


def test_kernels__after_those_of_another_plan__exist() -> None:
    first = Kernels()
    first.preferred(a_choice(10.0, 10.1), "Relu")
    assert Kernels(first).preferred(a_choice(10.1, 10.0, chosen="k1"), "Relu") == "k0"
    assert Kernels().preferred(a_choice(10.1, 10.0, chosen="k1"), "Relu") == "k1"


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
