"""Dispatches of templates by names and flags, and the directives that templates are written with."""

from __future__ import annotations

import sys

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import inp, out
from pyruntime.kernels.ir.launch import kernel_of, launch
from pyruntime.kernels.ir.template import part, template

FOUR = TensorType(DType.FLOAT, (4,))
TENSORS = {"y": out(0, FOUR), "stats": inp(1, FOUR), "parts": inp(0, FOUR), "sink": None}


def test_kernel_of__conditions_that_are_not_met__are_left_out() -> None:
    flags = {"DIM_V": 0, "VEC": True, "EMPTY_ZERO": False, "SINK": None}
    assert kernel_of("attention_merge", TENSORS, flags) == template("attention_merge", DIM_V=0, VEC=1)
    met = kernel_of("attention_merge", {**TENSORS, "sink": inp(2, FOUR)}, {**flags, "SINK": inp(2, FOUR)})
    assert met == template("attention_merge", DIM_V=0, VEC=1, SINK=1)


def test_launch__tensors_in_any_order__are_bound_as_the_shader_has_them() -> None:
    counts = ("base", "queries", "heads", "rows", "splits", "jobs", "groups")
    values = {"y_strides": [0, 0, 0, 1], **dict.fromkeys(counts, 1)}
    made = launch("attention_merge", TENSORS, (1, 1, 1), {"DIM_V": 4}, values, 7)
    assert [o.index for o in made.operands] == [0, 1, 0] and made.flops == 7
    assert [b.name for b in made.kernel.bindings] == ["parts", "stats", "y"]
    assert made.called("merged").kernel.name == "merged"


@pytest.mark.parametrize(("defines", "kept"), [({"A": 1, "B": 1}, "a"), ({"B": 1}, "b"), ({"C": 1}, "c"), ({}, "none")])
def test_part__chain_of_conditions__keeps_the_first_that_is_met(
    defines: dict[str, int], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "//#if A\na\n//#elif B\nb\n//#elif !C\nnone\n//#else\nc\n//#endif\n"
    monkeypatch.setattr(sys.modules["pyruntime.kernels.ir.template"], "read", {"chain_of_tests": text}.__getitem__)
    assert part("chain_of_tests", **defines).strip() == kept


def test_part__included_with_words__has_them_in_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "outer_of_tests": '// told nowhere\n//#include inner_of_tests x=q from="a + 1u"\nend\n',
        "inner_of_tests": "let $x = load_$x($from);\n",
    }
    monkeypatch.setattr(sys.modules["pyruntime.kernels.ir.template"], "read", files.__getitem__)
    assert part("outer_of_tests").split("\n") == ["let q = load_q(a + 1u);", "end"]
