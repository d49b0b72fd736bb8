"""Fallback kernels in plans (`kernels.ir.fallback`): which texts have them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from pyruntime.compiler.memory import MemoryReport
from pyruntime.compiler.plan import Command, GpuSegment, Plan
from pyruntime.device.desktop.implementations import installed
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.kernels.attention.candidates import LARGE, SMALL, WIDE
from pyruntime.kernels.attention.few_queries import MOST_ROWS
from pyruntime.kernels.ir.fallback import DEFINES, LITTLE_WORK, MOST_WORK, fallback_flag, without_fallback
from pyruntime.kernels.ir.template import part, template
from pyruntime.kernels.wgsl.library import shader_names
from pyruntime.kernels.wgsl.module import Module
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program
from tests.compiler.test_prefetch import Listening
from tests.desktop import desktop_device
from tests.kernels.template_variants import variants_of

GPU = Target(vendor="nvidia")


def products() -> bytes:
    """Two products of matrices of 64 x 64, in sequence."""
    weights = [helper.make_tensor(n, TensorProto.FLOAT, [64, 64], np.zeros(64 * 64)) for n in ("v", "w")]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])]
    nodes = [helper.make_node("MatMul", ["x", "v"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "g", given, made, weights)).SerializeToString()  # type: ignore[no-any-return]


def planned(model: bytes, target: Target, sanitize: bool = False) -> tuple[Listening, list[str]]:
    device = Listening(target)
    graph = import_model(read_model(model)).graph
    types = {v.name: TensorType(v.type.dtype, (64, 64)) for v in graph.inputs}  # type: ignore[union-attr]
    program = Program(graph, device, sanitize=sanitize, disabled=target.disabled)
    stage = asyncio.run(program.prepare(types, ["y"], strict=True))
    assert stage is not None
    return device, stage.compiled.plan.shaders


def has_fallback(texts: list[str]) -> bool:
    return any("// <fallback>" in text for text in texts)


def test_plan__of_little_work__begins_with_fallback_kernels() -> None:
    device, shaders = planned(products(), GPU)
    assert has_fallback(shaders)
    assert set(device.asked) == device.wanted == set(shaders)


def test_plan__of_much_work__has_optimized_kernels_alone_and_prefetches_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyruntime.compiler.prefetch.MOST_WORK", 1.5 * 2 * 64**3)
    device, shaders = planned(products(), GPU)
    assert not has_fallback(shaders)
    assert device.wanted == set(shaders) <= set(device.asked)


def test_most_work__an_image_model__is_below_and_a_long_prompt_of_a_large_decoder_above() -> None:
    assert 2 * 17.6e9 < MOST_WORK < 2 * 128 * 1e9, "ViT-B/16; 128 tokens of a billion weights"


@pytest.mark.parametrize(
    "target",
    [Target(vendor="google"), replace(GPU, disabled=frozenset({"fallback_kernels"}))],
    ids=["processor", "disabled"],
)
def test_plan__processors_and_switched_off__has_none(target: Target) -> None:
    assert fallback_flag(target) == {}
    assert not has_fallback(planned(products(), target)[1])


def test_plan__sanitized__has_none_as_results_are_compared_bit_by_bit() -> None:
    assert not has_fallback(planned(products(), GPU, sanitize=True)[1])


def test_without_fallback__a_text__is_that_of_the_kernel_without_the_entry_point() -> None:
    both, whole = (planned(products(), t)[1] for t in (GPU, replace(GPU, disabled=frozenset({"fallback_kernels"}))))
    bare = [without_fallback(text) for text in both]
    assert [text.split() for text in bare] == [text.split() for text in whole]
    assert [without_fallback(text) for text in bare] == bare


TILE = frozenset(
    ("TILE_M", "TILE_N", "TILE_K", "ROWS", "SLICES", "THREADS", "KEYS", "TALL", "SIDE", "HIGH", "LANES", "WG")
)
"""Constants of templates that say how large a tile is, and how many invocations make it."""

FALLBACK = [
    (name, number)
    for name in shader_names()
    for number, (defines, _) in enumerate(variants_of(name))
    if defines.get("FALLBACK")
]


def fallback_text(name: str, number: int) -> str:
    """A variant of a template without its optimized kernel."""
    defines, types = variants_of(name)[number]
    whole = template(name, types, **defines).wgsl()
    return re.sub(r"^// <optimized>\n.*?^// </optimized>\n", "", whole, flags=re.M | re.S)


@pytest.mark.parametrize(("name", "number"), FALLBACK, ids=[f"{name}-{number}" for name, number in FALLBACK])
def test_fallback_kernel__knows_no_size_of_a_tile__so_all_tiles_have_one_text(name: str, number: int) -> None:
    text = fallback_text(name, number)
    used = Module.of("\n".join(line for line in text.splitlines() if not line.startswith("const "))).names
    assert "fn fallback(" in text and not TILE.intersection(used)


@pytest.mark.parametrize(("name", "number"), FALLBACK, ids=[f"{name}-{number}" for name, number in FALLBACK])
def test_fallback_kernel__without_the_optimized_one__compiles(name: str, number: int, desktop_gpu: None) -> None:
    (wgpu,) = installed()
    text = fallback_text(name, number).replace("enable chromium_experimental_subgroup_matrix;", "")
    wgpu.module(desktop_device().gpu_device, text, False)


def test_fallback_attention__workgroups_have_as_many_invocations_as_the_largest_tile_has_rows() -> None:
    assert max(LARGE.rows, SMALL.rows, WIDE.rows) == 64 and MOST_ROWS == 8
    for name, size in (("attention_tiled", 64), ("attention_few_queries", 8)):
        assert f"@compute @workgroup_size({size})\nfn fallback(" in part(f"{name}_fallback")


def test_fallback_flag__of_little_work__has_less_code() -> None:
    assert fallback_flag(GPU, int(LITTLE_WORK), LIGHT=1) == {"FALLBACK": 1, "LIGHT": 1}
    assert fallback_flag(GPU, int(LITTLE_WORK) + 1, LIGHT=1) == {"FALLBACK": 1}


def test_without_fallback__kernels_that_differ_in_their_fallback_alone__are_one_shader() -> None:
    vectors = {"VEC_A": 1, "VEC_B": 1, "VEC_Y": 1}
    defines = [vectors | fallback_flag(GPU, int(flops), FALLBACK_ROWS=1) for flops in (8e6, 268e6)]
    texts = [template("matmul_tiled", DType.FLOAT, **each).wgsl() for each in defines]
    commands = [Command(shader, (), None, (1, 1, 1), "matmul", 0) for shader in (1, 0, 2, 1)]
    memory = MemoryReport(0, 0, 0, 0, (), 0)
    plan = Plan([GpuSegment(commands=commands)], ["other", *texts], [], [], b"", memory, [], {})
    made = plan.without_fallback()
    assert made.shaders == ["other", without_fallback(texts[0])]
    assert [c.shader for c in made.commands] == [1, 0, 1, 1]
    assert [c.shader for c in plan.commands] == [1, 0, 2, 1]


@pytest.mark.parametrize(("name", "number"), FALLBACK, ids=[f"{name}-{number}" for name, number in FALLBACK])
def test_optimized_kernel__of_a_text_with_both__is_that_of_a_text_without_the_fallback(name: str, number: int) -> None:
    defines, types = variants_of(name)[number]
    alone = {key: value for key, value in defines.items() if key not in DEFINES}
    both, whole = (template(name, types, **each) for each in (defines, alone))
    assert both.name == whole.name
    # Before the name are functions of the library, of which the fallback kernel has perhaps more.
    parts = [text.partition(f"// {whole.name}\n")[2].split() for text in (without_fallback(both.wgsl()), whole.wgsl())]
    assert parts[0] == parts[1] != []
