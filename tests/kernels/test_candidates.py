"""Candidates: which one runs, and how near that is to the best of those measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pyruntime.kernels import Limits, Target
from pyruntime.kernels.attention.candidates import ATTENTIONS
from pyruntime.kernels.attention.description import AttentionProblem
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS, ConvProblem
from pyruntime.kernels.ir.costs import ERROR, Work, microseconds
from pyruntime.kernels.products.candidates import PRODUCTS, TILES, ProductProblem, Way, sum_work
from pyruntime.kernels.products.packed_dot import DOTS
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Candidate, Choice, Family, Noted
from pyruntime.kernels.variants import VARIANTS
from pyruntime.kernels.windows import Window
from pyruntime.target import H200, SHADER_F16, SOFTWARE_ADAPTER, SWIFTSHADER, Winners

GPU = Target(Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")

ONES = ((1, 1, 1),) * 3

TUNING = Path(__file__).parents[2] / "bench/results/tuning"
RECORDED = {"few_rows": "skinny"}
"""Names of candidates in files of measurements, and in code, where they differ."""
MEASURED = {
    key.removeprefix("product "): {RECORDED.get(name, name): us for name, us in row["us"].items()}
    for key, row in json.loads((TUNING / "2026-11-26-nvidia-h200.json").read_text())["problems"].items()
    if key.startswith("product ")
}
ON_SOFTWARE = json.loads((TUNING / "2026-11-24-google-swiftshader.json").read_text())


def problem_of(key: str) -> ProductProblem:
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)(?:x(\d+))?(t?)(norm)?", key)
    assert found is not None
    m, n, k, batches = (int(v or 1) for v in found.groups()[:4])
    return ProductProblem(m, n, k, batches, trans_b=bool(found[5]), norm_follows=bool(found[6]))


def test_choose__problems_measured_on_the_assumed_gpu__near_the_best() -> None:
    """Single measurements are off by up to a half: times below 0.7 of the cost count as that."""
    losses = {}
    for key, us in MEASURED.items():
        choice = PRODUCTS.rank(problem_of(key), GPU)
        costs = {c.name: c.cost for c in choice.others if c.cost is not None}
        took = {name: max(took, 0.7 * costs[name]) for name, took in us.items() if name in costs}
        losses[key] = took.get(choice.chosen, costs[choice.chosen]) / min(took.values())
    assert len(losses) == 97
    assert sum(losses.values()) / len(losses) < 1.05
    assert sorted(losses.values())[-5] < 1.2


def packed(m: int, k: int, n: int) -> ProductProblem:
    """A product with 4-bit weights."""
    return ProductProblem(m, n, k, trans_b=True, bits=4)


def test_choose__products_of_8_bits_measured_on_the_assumed_gpu__near_the_best() -> None:
    """Measured without the dispatch that adds shares."""
    rows = json.loads((TUNING / "2026-11-27-nvidia-h200-packed-dot.json").read_text())["times"]
    took: dict[ProductProblem, dict[str, float]] = {}
    names = {c.name for c in DOTS.candidates}
    for row in rows:
        if row.get("candidate") in names:
            problem = packed(*map(int, row["problem"].split("x")))
            splits = DOTS.named(row["candidate"]).way.splits
            adding = microseconds(H200, sum_work(problem.m * problem.n, splits)) if splits > 1 else 0.0
            took.setdefault(problem, {})[row["candidate"]] = row["us"] + adding
    losses = []
    for problem, us in took.items():
        costs = {c.name: c.cost for c in DOTS.rank(problem, GPU).others if c.cost is not None and c.name in us}
        losses.append(us[min(costs, key=lambda name: costs[name])] / min(us.values()))
    assert len(losses) == 44
    assert sum(losses) / len(losses) < 1.03
    assert max(losses) < 1.25


def software_problem(family: str, data: dict[str, Any]) -> Choice:
    """What costs choose on a processor for a problem of `ON_SOFTWARE`."""
    target = Target(Limits(storage_buffers=10, workgroup_bytes=32768), vendor="google")
    if family == "product":
        return PRODUCTS.rank(ProductProblem(**data), target)
    if family == "attention":
        return ATTENTIONS.rank(AttentionProblem(**data), target)
    axes = {name: tuple(v) if isinstance(v, list) else v for name, v in data["window"].items()}
    return CONVOLUTIONS.rank(ConvProblem(**{**data, "window": Window(**axes)}), target)


@pytest.mark.parametrize(("family", "count"), [("product", 56), ("convolution", 87), ("attention", 26)])
def test_choose__problems_measured_on_a_processor__near_the_best(family: str, count: int) -> None:
    losses = []
    for key, row in ON_SOFTWARE["problems"].items():
        if key.startswith(f"{family} "):
            losses.append(row["us"][software_problem(family, row["data"]).chosen] / min(row["us"].values()))
    assert len(losses) == count
    assert sum(losses) / count < 1.05


@pytest.mark.parametrize("key", MEASURED)
def test_choose__processor__no_workgroup_memory(key: str) -> None:
    problem = replace(problem_of(key), norm_follows=False)
    assert PRODUCTS.choose(problem, Target(Limits(), vendor="google")).name.startswith("direct_")


def test_rank__cheapest_first_and_reasons_last() -> None:
    choice = PRODUCTS.rank(ProductProblem(512, 512, 512), GPU)
    costs = [c.cost for c in choice.others if c.cost is not None]
    least = next(c for c in choice.others if c.name == choice.chosen)
    assert least.cost is not None
    assert least.cost <= 1.07 * costs[0]
    assert costs == sorted(costs)
    assert all(c.reason for c in choice.others[len(costs) :])
    assert {c.name: c.reason for c in choice.others}["skinny"] == "for at most 8 rows"


def test_choose__large_tiles__where_k_is_long() -> None:
    """Measured: 3136 x 512 x 64 in tiles of 64 x 64 9.8 us, in large ones 10.9; 257 x 3072 x 768 50.8 and 46.6."""
    few, many = (PRODUCTS.rank(ProductProblem(*sizes), GPU) for sizes in ((3136, 512, 64), (257, 3072, 768)))
    assert {c.name: c.reason for c in few.others}["l1"] == "k is too short"
    assert (few.chosen, many.chosen) == ("m1", "l1")


def test_choose__long_texts__where_they_are_cheaper_by_more_than_the_costs_are_off() -> None:
    """They take longer to compile than the others."""

    def family(more: float) -> Family[ProductProblem, Way]:
        def candidate(name: str, nbytes: float, text: float) -> Candidate[ProductProblem, Way]:
            work = (Work(10_000, 256, 0.0, nbytes, stops=0),)
            return Candidate(name, Way("direct"), lambda p, target: "", lambda p, target: work, (), text)

        both = candidate("long", 1e10, 1.5), candidate("short", 1e10 * (1 + more), 1.0)
        return Family("family", both, MappingProxyType({}))

    near, far = (family(more).rank(ProductProblem(9, 9, 9), GPU) for more in (0.7 * ERROR, 1.5 * ERROR))
    costs = {c.name: c.cost for c in near.others if c.cost is not None}
    assert costs["long"] < costs["short"] < (1 + ERROR) * costs["long"]
    assert (near.chosen, far.chosen) == ("short", "long")


def test_choose__rates_of_the_device__other_kernel() -> None:
    problem = ProductProblem(512, 512, 512)
    few_units = replace(H200, units=8, flops=H200.flops * 8 / H200.units)
    wide, narrow = (PRODUCTS.choose(problem, replace(GPU, rates=r)).way.tiling for r in (H200, few_units))
    assert wide is not None
    assert narrow is not None
    assert narrow.splits == 1  # eight units are busy without
    assert wide.groups(problem.product) > narrow.groups(problem.product)
    assert PRODUCTS.choose(problem, replace(GPU, rates=SWIFTSHADER)).way.kernel == "direct"


def test_choose__measured_winner__before_the_cheapest() -> None:
    problem = ProductProblem(512, 512, 512)
    won = replace(GPU, winners=Winners({("product", problem.key): "s1"}))
    assert PRODUCTS.rank(problem, won).reason == "measured"
    assert PRODUCTS.choose(problem, won).name == "s1"
    assert TILES.choose(problem, won).name != "s1"
    # One that does not apply, or is not known any more, says nothing.
    for name in ("skinny", "s9"):
        gone = replace(GPU, winners=Winners({("product", problem.key): name}))
        assert PRODUCTS.choose(problem, gone).name == PRODUCTS.choose(problem, GPU).name


def test_choose__nothing_applies__reasons() -> None:
    off = replace(GPU, disabled=frozenset({"matmul_tiled", "matmul_skinny"}))
    assert PRODUCTS.choose(ProductProblem(1, 1, 64), off).way.kernel == "direct"
    tiny = Target(Limits(workgroup_bytes=1024))
    with pytest.raises(LookupError, match="no kernel of tiles for 9x9x9: s1: it takes 4,608 bytes"):
        TILES.choose(ProductProblem(9, 9, 9), tiny)


def test_switches__of_candidates__are_the_variants() -> None:
    named = {s for c in PRODUCTS.candidates for s in c.switches}
    assert named == PRODUCTS.switches.keys()
    assert named <= VARIANTS.keys()
    assert {s for c in TILES.candidates for s in c.switches} == TILES.switches.keys()
    named = {s for c in CONVOLUTIONS.candidates for s in c.switches}
    assert CONVOLUTIONS.switches.keys() <= named <= VARIANTS.keys()


CONVS = {
    "pointwise": ConvProblem(1, 1, 64, 256, Window.over((1, 56, 56), *ONES, (0,) * 6), pointwise=True),
    "deep": ConvProblem(1, 1, 512, 512, Window.over((1, 7, 7), (1, 3, 3), *ONES[1:], (0, 1, 1) * 2)),
    "wide": ConvProblem(1, 1, 64, 64, Window.over((1, 224, 224), (1, 3, 3), *ONES[1:], (0, 1, 1) * 2)),
    "depthwise": ConvProblem(1, 96, 1, 1, Window.over((1, 56, 56), (1, 7, 7), *ONES[1:], (0, 3, 3) * 2), shared=True),
    "few": ConvProblem(1, 32, 4, 4, Window.over((1, 56, 56), (1, 3, 3), *ONES[1:], (0, 1, 1) * 2)),
}


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("pointwise", "matmul_m1"),
        ("deep", "gemm_s4_split8"),
        ("wide", "gemm_m1"),
        ("depthwise", "depthwise"),
        ("few", "direct_four"),
    ],
)
def test_choose__convolution__by_the_device(name: str, gpu: str) -> None:
    assert CONVOLUTIONS.choose(CONVS[name], GPU).name == gpu
    software = CONVOLUTIONS.choose(CONVS[name], Target(Limits(), vendor="google")).name
    assert software.startswith("depthwise" if name == "depthwise" else "direct_")


def test_choose__convolution_on_few_units__nothing_is_split() -> None:
    laptop = replace(GPU, rates=replace(H200, units=8, flops=H200.flops * 8 / H200.units))
    way = CONVOLUTIONS.choose(CONVS["deep"], laptop).way
    assert way.tiling is not None and way.tiling.splits == 1


def test_choose__all_switched_off__something_runs() -> None:
    off = replace(GPU, disabled=frozenset({"conv_gemm", "conv_direct", "conv_matmul"}))
    assert CONVOLUTIONS.choose(CONVS["deep"], off).name


@pytest.mark.parametrize("name", CONVS)
def test_sample__convolution__runs_the_candidate(name: str) -> None:
    for candidate in CONVOLUTIONS.rank(CONVS[name], GPU).others:
        if candidate.cost is not None:
            made = sample(Noted(CONVOLUTIONS, CONVS[name]), candidate.name, GPU)
            assert len(made) == candidate.dispatches
            kind = {"gemm": "implicit_gemm"}.get(candidate.name.split("_")[0], candidate.name.split("_")[0])
            assert made[0].kernel.name.startswith(f"conv_{kind}")


def test_sample__product_of_8_bits__runs_the_candidate() -> None:
    for m, k, n in ((128, 896, 1152), (9, 100, 30), (512, 64, 4096)):
        problem = packed(m, k, n)
        for candidate in DOTS.rank(problem, GPU).others:
            if candidate.cost is not None:
                rounded, product, *added = sample(Noted(DOTS, problem), candidate.name, GPU)
                assert rounded.kernel.name.startswith("quantize_chunks")
                assert product.kernel.name.startswith("matmul_dot_4bits_")
                assert product.kernel.name.removeprefix("matmul_dot_4bits_") in candidate.name
                assert 1 + len(added) == candidate.dispatches


def test_target__software_adapter_of_no_vendor__is_a_processor_as_swiftshader_is() -> None:
    named, unnamed = Target(vendor="google"), Target(features=frozenset({SOFTWARE_ADAPTER, SHADER_F16}))
    assert unnamed.is_software and not unnamed.has_f16 and unnamed.speed == named.speed
    off = replace(unnamed, disabled=frozenset({"software"}))
    assert off.is_processor and not off.is_software and off.has_f16 and off.speed == Target().speed
