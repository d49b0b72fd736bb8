"""Every variant of a template that tests list can be made; one that cannot would put its operator on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyruntime
from pyruntime.ir import DType
from pyruntime.kernels.storage import lanes
from pyruntime.kernels.template import template, tensors_of
from tests.kernels.template_variants import variants_of

FILES = sorted(p.stem for p in (Path(pyruntime.__file__).parent.parent / "shaders").glob("*.wgsl"))


@pytest.mark.parametrize("name", FILES)
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
