"""Shares of invocations joined by shuffles: the same bits as in workgroup memory, whatever the size of subgroups."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.kernels import Dispatch, Target
from pyruntime.kernels.ir.fallback import without_fallback
from pyruntime.kernels.ir.kernel import Kernel
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.wgsl.module import Module
from tests.harness import run_op
from tests.kernels.lane_cases import CASES, of_size, shuffles

SIZES = (2, 8, 16, 32, 64, 128)
"""Of subgroups that are imitated; SwiftShader's have 4."""


@pytest.mark.parametrize("name", CASES)
def test_shuffles__of_this_device__same_bits_as_without(gpu: Gpu, name: str) -> None:
    op, inputs = CASES[name]
    assert gpu.target.subgroup == 4
    with_shuffles, without = (_with(gpu, of_size(gpu.target, size)) for size in (4, 0))
    assert shuffles(op, inputs, with_shuffles.target) == (not name.startswith("attention"))
    _equal(run_op(op, inputs, with_shuffles), run_op(op, inputs, without))


@pytest.mark.parametrize("name", CASES)
def test_shuffles__of_other_sizes__same_bits_as_without(gpu: Gpu, name: str) -> None:
    op, inputs = CASES[name]
    wanted = run_op(op, inputs, _with(gpu, of_size(gpu.target, 0)))
    for size in SIZES:
        other = _Imitating(gpu, size)
        assert shuffles(op, inputs, other.target) or size < 16
        _equal(run_op(op, inputs, other), wanted)


@pytest.mark.parametrize("name", CASES)
def test_shuffles__texts_for_other_sizes__are_compiled(gpu: Gpu, name: str) -> None:
    """Their results are anything: no subgroup here has so many invocations."""
    op, inputs = CASES[name]
    for size in (8, 32, 128):
        run_op(op, inputs, _with(gpu, of_size(gpu.target, size)))


def _equal(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


def _with(gpu: Gpu, target: Target) -> Gpu:
    other = copy.copy(gpu)
    other.target = target
    return other


class _Imitating(Gpu):
    """A GPU whose subgroups have another size: shuffles go through workgroup memory, with barriers, which are an error
    where not all invocations come by. What a shuffle may not be asked for, it answers with a wrong number."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.__dict__.update(gpu.__dict__)
        self.target = of_size(gpu.target, size)

    def run(self, dispatches: Sequence[Dispatch], *args: Any) -> list[Array]:
        legal = legalize(self.target, [d for d in dispatches if not d.is_empty])
        size = self.target.subgroup
        return super().run([replace(d, kernel=_imitated(d.kernel, size)) for d in legal], *args)


def _imitated(kernel: Kernel, size: int) -> Kernel:
    """The kernel without shuffles."""
    module = kernel.module
    if "reduced_lanes" not in module.functions:
        return kernel
    moved = f"fn moved(share: Share, by: u32) -> Share {{ return passed_on(share, place_in_all % {size}u + by); }}"
    text = without_fallback(module.with_function("moved", moved).text)
    text = re.sub(r"\bsubgroupShuffle\(", "passed_on(", text)
    text = re.sub(r"(@builtin\(local_invocation_index\) (\w+): u32,?\s*\) \{)", r"\1\n  place_in_all = \2;", text)
    assert text.count("place_in_all =") == 1 and not re.search(r"subgroup[A-Z]\w*\(", text)
    text += f"""
var<private> place_in_all: u32;
var<workgroup> on_the_way: array<Share, {module.invocations}>;

fn passed_on(share: Share, from_place: u32) -> Share {{
  on_the_way[place_in_all] = share;
  workgroupBarrier();
  let begin = place_in_all - place_in_all % {size}u;
  let other = select(place_in_all ^ 1u, begin + from_place, from_place < {size}u);
  let found = on_the_way[min(other, {module.invocations - 1}u)];
  workgroupBarrier();
  return found;
}}
"""
    return replace(kernel, body=Module.of(text).text)
