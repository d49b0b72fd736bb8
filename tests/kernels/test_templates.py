"""Every variant of a template that tests list can be made; one that cannot would put its operator on the host."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.ir import DType, Sizes
from pyruntime.kernels.ir.launch import kernel_of
from pyruntime.kernels.ir.template import params_of, template, tensors_of
from pyruntime.kernels.wgsl.library import shader_names
from pyruntime.kernels.wgsl.storage import lanes
from tests.kernels.template_variants import variants_of


@pytest.mark.parametrize("name", shader_names())
def test_template__its_variants__are_whole_shaders(name: str) -> None:
    for defines, types in variants_of(name):
        kernel = template(name, types, **defines)
        for b in kernel.bindings:
            if "store" in kernel.accessors(b.name) and lanes(b.dtype) > 1:
                # As `legalize` does: single elements of shared words go to 32-bit memory first.
                kernel = kernel.with_dtype(b.name, DType.FLOAT)
        text = kernel.wgsl()
        assert "//#" not in text
        assert "@compute" in text
        assert not kernel.has_params or kernel.module.params
        assert {b.name for b in kernel.bindings if b.write} <= set(tensors_of(name)[1])
        assert any(b.write for b in kernel.bindings)


INDEXED = {"pack_cache": {"past0", "past1"}}
"""Tensors that templates index as arrays, so that they cannot be bound in parts: words of packed rows."""


@pytest.mark.parametrize("name", shader_names())
def test_template__its_tensors__are_read_and_written_by_accessors(name: str) -> None:
    for defines, types in variants_of(name):
        kernel = template(name, types, **defines)
        indexed = {b.name for b in kernel.bindings if kernel.is_indexed(b.name)}
        assert indexed <= INDEXED.get(name, set()), "a local variable of the same name counts, too"


@pytest.mark.parametrize(
    ("defines", "what"),
    [
        ({"NO_SUCH_FLAG": 1}, "has no constant or condition NO_SUCH_FLAG"),
        ({"TILE_M": 2.5}, "constant TILE_M: 2.5 is no u32"),
        ({"TILE_M": -4}, "constant TILE_M: -4 is no u32"),
        ({"TILE_M": 1 << 32}, "constant TILE_M: 4294967296 is no u32"),
    ],
)
def test_template__define_that_does_not_fit__names_template_and_constant(defines: dict[str, float], what: str) -> None:
    with pytest.raises(ValueError, match=f"^shaders/matmul_tiled.wgsl.*{what}$"):
        template("matmul_tiled", DType.FLOAT, **defines)


def test_params_of__field_that_the_template_does_not_declare__is_named() -> None:
    kernel = template("lrn", DType.FLOAT)
    with pytest.raises((KeyError, ValueError), match="gamma"):
        params_of(kernel, size=1, channels=1, inner=1, before=0, after=0, scale=1.0, offset=1.0, beta=1.0, gamma=2.0)


def test_kernel_of__constant_that_is_a_dynamic_dimension__is_the_number_seen() -> None:
    sizes = Sizes()
    size = sizes.add("x[1]", 8, 2, 64)
    told = {"DIM": 8, "DIM_V": np.int64(8), "WG": 64, "VEC": True}
    assert kernel_of("attention_rows", {}, {**told, "DIM": size}) == kernel_of("attention_rows", {}, told)
    assert sizes.hold([8]) and not sizes.hold([16]), "the plan is for this number alone"
