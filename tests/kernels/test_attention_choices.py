"""Which kernel of attention runs for what models ask for: what costs choose, written down, and what was measured."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Limits, Target, inp, out
from pyruntime.kernels.attention.attention import attend
from pyruntime.kernels.attention.candidates import ATTENTIONS
from pyruntime.kernels.attention.description import AttentionForm, AttentionProblem, AttentionTensors, HeadView, Reach
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Noted
from pyruntime.target import H200

GPU = Target(Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")
PROCESSOR = Target(Limits(storage_buffers=10, workgroup_bytes=32768), vendor="google")

CHOICES = Path(__file__).parent / "choices" / "attention.txt"
TUNING = Path(__file__).parents[2] / "bench" / "results" / "tuning"


def listed() -> Iterator[tuple[str, str, str]]:
    """Problem, what was chosen on an H200, and on SwiftShader."""
    for line in CHOICES.read_text().splitlines():
        if not line.startswith("#"):
            problem, gpu, processor = (part.strip() for part in line.split("|"))
            yield problem, gpu, processor


def form_of(text: str) -> AttentionForm:
    """Batch, heads, queries, keys, components, those of values; g: heads that share keys; w: keys seen before."""
    sizes, *more = text.split()
    batch, heads, queries, keys, size, *values = map(int, sizes.split("x"))
    v_size = values[0] if values else size
    told = {part[0]: int(part[1:]) for part in more}
    group, before = told.get("g", 1), told.get("w", -1)

    def view(n: int, positions: int, components: int) -> HeadView:
        return HeadView(0, (n * positions * components, positions * components, components, 1))

    shared = heads // group
    views = (
        view(heads, queries, size),
        view(shared, keys, size),
        view(shared, keys, v_size),
        view(heads, queries, v_size),
    )
    reach = Reach(before, 0) if before >= 0 else Reach()
    return AttentionForm((batch, heads, queries, keys, size, v_size), *views, 0.1, False, group, reach=reach)


def lowered(target: Target, form: AttentionForm) -> tuple[Dispatch, ...]:
    batch, heads, queries, keys, size, v_size = form.sizes
    shared = heads // form.group
    shapes = (heads, queries, size), (shared, keys, size), (shared, keys, v_size), (heads, queries, v_size)
    q, k, v, y = (TensorType(DType.FLOAT, (batch, *shape)) for shape in shapes)
    return attend(target, form, AttentionTensors(inp(0, q), inp(1, k), inp(2, v), out(0, y)))


def told(made: tuple[Dispatch, ...]) -> str:
    """'tiled_64/4': kernel, rows of a workgroup (x keys of a step, where these are not 32), shares of the keys."""
    name = made[0].kernel.name
    kind = name.removeprefix("attention_").split("_dim")[0].replace("few_queries", "few")
    rows, keys = re.search(r"_rows(\d+)", name), re.search(r"_keys(\d+)", name)
    shares = made[1].operands[0].type.shape[0] if len(made) > 1 else 1
    tile = f"_{rows[1]}" if rows and kind in ("flash", "tiled") else ""
    wide = f"x{keys[1]}" if keys and kind == "tiled" and keys[1] != "32" else ""
    return f"{kind}{tile}{wide}" + (f"/{shares}" if shares > 1 else "")


def test_attend__what_models_ask_for__is_what_is_listed() -> None:
    chosen = {problem: told(lowered(GPU, form_of(problem))) for problem, _, _ in listed()}
    assert len(chosen) > 250
    assert chosen == {problem: gpu for problem, gpu, _ in listed()}


@pytest.mark.parametrize("device", ["h200", "h100"])
def test_rank__what_was_measured__costs_choose_the_fastest_within_3_percent(device: str) -> None:
    measured = json.loads((TUNING / f"2026-11-24-nvidia-{device}-attention.json").read_text())["problems"]
    for key, row in measured.items():
        assert row["us"][_cheapest(key, row["us"])] <= 1.03 * min(row["us"].values()), key


def _cheapest(key: str, measured: dict[str, float]) -> str:
    """Which of those that were measured costs least."""
    considered = ATTENTIONS.rank(AttentionProblem.of(form_of(f"1x{key}")), GPU).others
    return min((c for c in considered if c.name in measured), key=lambda c: c.cost or math.inf).name


@pytest.mark.parametrize(("date", "count"), [("2026-11-25", 25), ("2026-11-26", 14)])
def test_rank__what_was_measured__costs_choose_within_10_percent_of_the_fastest_on_average(
    date: str, count: int
) -> None:
    measured = json.loads((TUNING / f"{date}-nvidia-h200-attention.json").read_text())["problems"]
    losses = [row["us"][_cheapest(key, row["us"])] / min(row["us"].values()) for key, row in measured.items()]
    assert len(losses) == count and statistics.geometric_mean(losses) <= 1.1


def _chosen(key: str) -> str:
    return ATTENTIONS.rank(AttentionProblem.of(form_of(f"1x{key}")), GPU).chosen


def test_rank__fewer_workgroups_than_half_the_units__deals_keys_out_so_that_each_has_a_unit() -> None:
    assert _chosen("6x197x197x64") == _chosen("6x257x257x64") == _chosen("4x256x256x36") == "tiled_32x64_split2"
    assert _chosen("6x384x384x64") == _chosen("12x257x257x64") == _chosen("16x256x256x36") == "tiled_32x64"


@pytest.mark.parametrize("units", [108, 132, 216])
def test_rank__a_workgroup_a_unit__takes_64_keys_a_step_whatever_the_rates(units: int) -> None:
    """The same on a device whose clock was low while it was measured."""
    for flops in (H200.flops, H200.flops / 3):
        target = replace(GPU, rates=replace(H200, units=units, flops=flops))
        for keys in (50, 128, 197, 257):
            chosen = ATTENTIONS.rank(AttentionProblem.of(form_of(f"1x12x{keys}x{keys}x64")), target).chosen
            assert chosen.removesuffix("_split2") == "tiled_32x64"


def test_attend__what_models_ask_for_on_a_processor__is_what_is_listed() -> None:
    """A row an invocation, or tiles for many keys."""
    assert {processor for _, _, processor in listed()} == {"rows", "tiled_32", "tiled_64"}
    for problem, _, processor in listed():
        assert told(lowered(PROCESSOR, form_of(problem))) == processor


@pytest.mark.parametrize("text", ["1x12x128x128x64", "1x32x1x4096x128 g4", "1x6x1500x1500x64", "1x4x3x300x256 g4"])
def test_sample__attention__runs_the_candidate(text: str) -> None:
    problem = AttentionProblem.of(form_of(text))
    assert AttentionProblem.of(problem.form) == problem
    names = set()
    for candidate in ATTENTIONS.rank(problem, GPU).others:
        if candidate.cost is not None:
            made = sample(Noted(ATTENTIONS, problem), candidate.name, GPU)
            assert len(made) == candidate.dispatches
            kernel = candidate.name.split("_")[0]
            assert made[0].kernel.name.startswith(f"attention_{kernel}")
            names.add(f"{told(made)}")
    assert len(names) > 1


def test_rank__attention__reasons_of_those_that_do_not_apply() -> None:
    wide = ATTENTIONS.rank(AttentionProblem.of(form_of("1x4x100x64x256")), GPU)
    reasons = {c.name: c.reason for c in wide.others}
    assert wide.chosen.startswith("few")
    assert "more than 128 components" in reasons["flash_16"]
    assert "components" in reasons["tiled_32"]
    bert = {c.name: c.reason for c in ATTENTIONS.rank(AttentionProblem.of(form_of("1x12x128x128x64")), GPU).others}
    assert "16 queries" in bert["few"]
    assert "too short" in bert["tiled_64_split4"]
    off = Target(GPU.limits, vendor="nvidia", disabled=frozenset({"attention_tiled"}))
    whisper = {c.name: c.reason for c in ATTENTIONS.rank(AttentionProblem.of(form_of("1x6x1500x1500x64")), off).others}
    assert whisper["tiled_64_split4"] == "attention_tiled is switched off"
