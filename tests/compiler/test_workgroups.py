"""Kernels that need more workgroup memory than a device has are not sent to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.compiler.build import build_plan
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.kernels.ir.template import template
from pyruntime.kernels.wgsl.expressions import layout_of, value_of
from pyruntime.kernels.wgsl.library import shader_names
from pyruntime.kernels.wgsl.module import Module
from pyruntime.ops.registry import newest, op_class
from pyruntime.passes import optimize
from pyruntime.session.tuning.ceilings import stream_kernel
from pyruntime.target.named import read_target
from tests.compiler.graphs import node, typed_graph
from tests.harness import typed
from tests.kernels.template_variants import variants_of
from tests.kernels.variant_cases import CASES, lowered, target_of

OFFERED = [Limits(), Limits(workgroup_bytes=32768), read_target("compatibility").limits]
OFFERED_IDS = ["default", "32 KiB", "compatibility"]
LITTLE = [Limits(workgroup_bytes=64), Limits(invocations=32), Limits(workgroup_x=32)]


@pytest.mark.parametrize("limits", LITTLE, ids=["memory", "invocations", "x"])
def test_placement__kernel_that_takes_too_much__is_on_the_host_and_says_why(limits: Limits) -> None:
    x = {"x": TensorType(DType.FLOAT, (4, 1000))}
    graph = typed_graph(
        [node("LayerNormalization", ["x", "s"], ["y"])], {**x, "s": TensorType(DType.FLOAT, (1000,))}, ["y"]
    )
    for offered, placement in ((Limits(), "gpu"), (limits, "host")):
        target = Target(offered)
        optimize(graph, target)
        (made,) = build_plan(graph, target).assignments
        assert made.placement == placement
    assert "workgroup" in made.reason and ("64" in made.reason or "32" in made.reason)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("limits", OFFERED, ids=OFFERED_IDS)
def test_kernels__of_every_variant__fit_the_device_they_are_made_for(name: str, limits: Limits) -> None:
    case = CASES[name]
    target = replace(target_of(Target(), case), limits=limits)
    for dispatch in lowered(target, case, [typed(x) for x in case.inputs()]):
        module = dispatch.kernel.module
        assert module.workgroup_bytes <= limits.workgroup_bytes
        assert 0 < module.invocations <= limits.invocations


@pytest.mark.parametrize("limits", OFFERED, ids=OFFERED_IDS)
@pytest.mark.parametrize("features", [(), ("subgroups", "subgroup_size_32")], ids=["plain", "subgroups"])
def test_products__of_any_size__fit_the_device_they_are_made_for(features: tuple[str, ...], limits: Limits) -> None:
    """Which kernel and how large its tiles are depends on sizes: drawn ones, always the same."""
    rng = np.random.default_rng(9)
    sizes = (1, 2, 3, 4, 5, 8, 9, 17, 33, 64, 128, 257, 512, 1000, 2048)
    packed: Any = op_class("MatMulNBits", "com.microsoft", 1)
    for vendor in ("nvidia", "google"):
        target = Target(limits, frozenset(features), vendor)
        for _ in range(60):
            m, k, n = map(int, rng.choice(sizes, 3))
            bits, block = int(rng.choice((2, 4, 8))), int(rng.choice((16, 32, 64, 128)))
            codes = TensorType(DType.UINT8, (n, -(-k // block), block * bits // 8))
            rows, scales = TensorType(DType.FLOAT, (m, k)), TensorType(DType.FLOAT, codes.shape[:2])
            cases: list[tuple[Any, tuple[TensorType, ...]]] = [
                (newest("MatMul"), (rows, TensorType(DType.FLOAT, (k, n)))),
                (newest("MatMulInteger"), (TensorType(DType.UINT8, (m, k)), TensorType(DType.INT8, (k, n)))),
                (packed(K=k, N=n, bits=bits, block_size=block), (rows, codes, scales)),
            ]
            for op, types in cases:
                for dispatch in op.lower(target, *types):
                    module = dispatch.kernel.module
                    assert module.workgroup_bytes <= limits.workgroup_bytes, (dispatch.kernel.name, m, k, n)
                    assert 0 < module.invocations <= target.limits.invocations, (dispatch.kernel.name, m, k, n)


@pytest.mark.parametrize("name", shader_names())
def test_templates__every_variant__says_its_workgroup_in_numbers(name: str) -> None:
    for defines, types in variants_of(name):
        module = template(name, types, **defines).module
        assert module.invocations > 0
        assert (module.workgroup_bytes > 0) == bool(module.workgroup)


SIZES = [
    ("u32", 4, 4),
    ("f16", 2, 2),
    ("bool", 4, 4),
    ("vec2<f32>", 8, 8),
    ("vec3<f32>", 12, 16),
    ("vec3h", 6, 8),
    ("vec4<f16>", 8, 8),
    ("atomic<u32>", 4, 4),
    ("array<vec3<f32>, 3>", 48, 16),
    ("array<array<f32, N>, max(N, 2u)>", 100, 4),
    ("S", 32, 16),
    ("T", 16, 16),
    ("array<S, 2>", 64, 16),
]
"""By the table of section 14.4.1 of the WGSL specification."""


@pytest.mark.parametrize(("kind", "size", "align"), SIZES)
def test_layout_of__type__is_that_of_the_specification(kind: str, size: int, align: int) -> None:
    named = {"S": ["f32", "vec3<f32>"], "T": "vec4<i32>"}
    assert layout_of(kind, {"N": "3u + M", "M": "2u"}, named) == (size, align)


@pytest.mark.parametrize("kind", ["mat4x4<f32>", "array<f32>", "array<f32, K>", "U", "vec4"])
def test_layout_of__what_it_does_not_know__is_an_error(kind: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        layout_of(kind, {}, {})


@pytest.mark.parametrize("text", ["1u << 3u", "2 +", "(1", "max(1", "A", "1 / 0", "1 2", "", "x.y", "-", "B"])
def test_value_of__what_is_no_such_expression__is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        value_of(text, {"B": "B + 1"})


def test_value_of__expressions__are_those_of_python() -> None:
    rng = np.random.default_rng(3)
    constants = {"A": "7u", "B": "A * 3u + 1u"}
    for _ in range(300):
        terms = rng.choice(["A", "B", "5u", "12", "(3u + A)", "max(2u, B)", "min(A, 4u, 9i)"], 4)
        text = "".join(f"{term} {sign} " for term, sign in zip(terms, rng.choice(list("+*/%"), 4), strict=True))
        python = text.replace("/", "//").replace("B", "(A * 3 + 1)").replace("A", "7")
        for number in ("5u", "3u", "2u", "4u", "9i"):
            python = python.replace(number, number[:-1])
        assert value_of(f"{text} 11u", constants) == eval(f"{python} 11")


def test_module__sizes_said_in_other_ways__are_0() -> None:
    text = "@compute @workgroup_size({}) fn main() {{ }} override wide = 4; var<workgroup> a: array<f32, {}>;"
    assert Module.of(text.format("8, 4", "8 * 4")).workgroup_size == (8, 4, 1)
    assert Module.of(text.format("8, 4", "8 * 4")).invocations == 32
    assert Module.of(text.format("8, 4", "8 * 4")).workgroup_bytes == 128
    unread = Module.of(text.format("wide", "1u << 3u"))
    assert (unread.invocations, unread.workgroup_bytes) == (0, 0)


@pytest.mark.parametrize("limits", OFFERED, ids=OFFERED_IDS)
def test_stream__kernel_that_measures_memory__has_workgroups_that_the_device_takes(limits: Limits) -> None:
    made = stream_kernel(Target(limits), 1 << 20)
    assert made.kernel.module.invocations <= limits.invocations
    assert made.grid[0] * made.kernel.module.invocations * 2 * 16 == 1 << 20
