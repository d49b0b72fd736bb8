"""Candidates: which one runs, and that the benchmark's products keep theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyruntime.kernels import Limits, Target
from pyruntime.kernels.costs import H200, SWIFTSHADER
from pyruntime.kernels.dispatch import Winners
from pyruntime.kernels.matmul_candidates import PRODUCTS, TILES, ProductProblem
from pyruntime.kernels.variants import VARIANTS

GPU = Target(Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")

NINE = [
    # resnet50
    ((1, 1000, 2048, True), "few_rows"),
    # mobilenetv2
    ((1, 1000, 1280, True), "few_rows"),
    # vit
    ((197, 768, 3072, False), "m1_split8"),
    ((197, 3072, 768, False), "m4"),
    ((197, 768, 768, False), "m1_split8"),
    ((197, 2304, 768, False), "m1_split4"),
    # bert, gpt2
    ((128, 768, 3072, False), "m1_split8"),
    ((128, 3072, 768, False), "m4"),
    ((128, 768, 768, False), "m1_split8"),
    ((128, 2304, 768, False), "m1_split8"),
    # minilm
    ((128, 384, 1536, False), "m1_split8"),
    ((128, 1536, 384, False), "m1_split4"),
    ((128, 384, 384, False), "s4"),
    ((128, 1152, 384, False), "m1_split4"),
    # gpt2
    ((128, 50257, 768, False), "l1"),
    # whisper_enc
    ((1500, 384, 1536, False), "m1_split4"),
    ((1500, 1536, 384, False), "m1"),
    ((1500, 384, 384, False), "m1_split4"),
    ((1500, 1152, 384, False), "m1"),
    # convnext
    ((1, 1000, 768, True), "few_rows"),
    ((49, 768, 3072, False), "m1_split8"),
    ((49, 3072, 768, False), "m1_split8"),
    ((196, 384, 1536, False), "m1_split8"),
    ((196, 1536, 384, False), "m4"),
    ((784, 192, 768, False), "m1_split8"),
    ((784, 768, 192, False), "m1_split2"),
    ((3136, 96, 384, False), "m4"),
    ((3136, 384, 96, False), "m1"),
    # segformer
    ((256, 256, 256, False), "s4"),
    ((1024, 256, 160, False), "s2"),
    ((4096, 256, 64, False), "m1"),
    ((16384, 256, 32, False), "l1"),
    ((256, 256, 1024, False), "m1_split8"),
    ((256, 1024, 256, False), "m1_split2"),
    ((256, 768, 256, False), "s4"),
    ((1024, 160, 640, False), "m1_split4"),
    ((1024, 640, 160, False), "m1"),
    ((1024, 160, 160, False), "s2"),
    ((256, 320, 160, False), "s2"),
    ((4096, 64, 256, False), "m1_split2"),
    ((4096, 64, 64, False), "s1"),
    ((256, 128, 64, False), "s1"),
    ((16384, 32, 128, False), "s2"),
    ((16384, 128, 32, False), "m1"),
    ((16384, 32, 32, False), "s1"),
    ((256, 64, 32, False), "s1"),
]
"""m, n, k, trans_b of the products of the benchmark's nine models, and what its figures were measured with."""


@pytest.mark.parametrize(("sizes", "name"), NINE)
def test_products__of_the_benchmark__kernel(sizes: tuple[int, int, int, bool], name: str) -> None:
    m, n, k, trans_b = sizes
    problem = ProductProblem(m, n, k, trans_b=trans_b)
    assert PRODUCTS.choose(problem, GPU).name == name
    # A processor takes no workgroup memory.
    software = PRODUCTS.choose(problem, Target(Limits(), vendor="google")).name
    assert software == ("few_columns" if n == 1 else f"direct_{software.rpartition('_')[2]}")


def test_rank__cheapest_first_and_reasons_last() -> None:
    choice = PRODUCTS.rank(ProductProblem(512, 512, 512), GPU)
    costs = [c.cost for c in choice.others if c.cost is not None]
    least = next(c for c in choice.others if c.name == choice.chosen)
    assert least.cost is not None
    assert least.cost <= 1.07 * costs[0]
    assert costs == sorted(costs)
    assert all(c.reason for c in choice.others[len(costs) :])
    assert {c.name: c.reason for c in choice.others}["few_rows"] == "for at most 8 rows"


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
    for name in ("few_rows", "s9"):
        gone = replace(GPU, winners=Winners({("product", problem.key): name}))
        assert PRODUCTS.choose(problem, gone).name == PRODUCTS.choose(problem, GPU).name


def test_choose__nothing_applies__reasons() -> None:
    off = replace(GPU, disabled=frozenset({"matmul_tiled", "matmul_few_rows"}))
    assert PRODUCTS.choose(ProductProblem(1, 1, 64), off).way.kernel == "direct"
    tiny = Target(Limits(workgroup_bytes=1024))
    with pytest.raises(LookupError, match="no kernel of tiles for 9x9x9: s1: it takes 4,608 bytes"):
        TILES.choose(ProductProblem(9, 9, 9), tiny)


def test_switches__of_candidates__are_the_variants() -> None:
    named = {s for c in PRODUCTS.candidates for s in c.switches}
    assert named == PRODUCTS.switches.keys()
    assert named <= VARIANTS.keys()
    assert {s for c in TILES.candidates for s in c.switches} == TILES.switches.keys()
    assert PRODUCTS.held.keys() == TILES.held.keys()
    assert {PRODUCTS.named(n).name for n in PRODUCTS.held.values()} == set(TILES.held.values())
