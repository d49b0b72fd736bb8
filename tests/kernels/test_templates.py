"""Every variant of a template that tests list can be made; one that cannot would put its operator on the host."""

from __future__ import annotations

import pytest

from pyruntime.ir import DType
from pyruntime.kernels.ir.template import template, tensors_of
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
