"""What the zoo's table is made of: when results agree, and when a row is as the strict list says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tools.zoo.compare import complaint
from tools.zoo.definitions import SOURCES, Definition, definitions
from tools.zoo.table import Row, render, verdict

MODEL = Definition("timm", "some", "some", {"x": "normal b 3 h 8"})
AGREES = {"onnxruntime": "", "native": "", "plan": "", "browser": "", "dispatches": 3, "browser_dispatches": 4}
EXPORTED = {"exporter": "new", "opset": 18, "dynamic": True}


def row(**found: str) -> Row:
    return Row(MODEL, EXPORTED, {**AGREES, **found})


@pytest.mark.parametrize(
    ("got", "wanted", "agree"),
    [
        ([1.0, 1000.0], [1.5, 1000.0], True),
        ([1.0, 1000.0], [4.0, 1000.0], False),
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([0.0, 1.0], [np.nan, 1.0], False),
        ([np.nan, 1.0], [0.0, 1.0], False),
        ([np.nan, np.nan], [np.nan, np.nan], False),
    ],
)
def test_complaint__floats__differ_beyond_a_part_of_the_largest(
    got: list[float], wanted: list[float], agree: bool
) -> None:
    assert (complaint([np.array(got, np.float32)], [np.array(wanted, np.float32)], ["y"]) == "") == agree


def test_complaint__other_type_or_shape_or_integer__is_told() -> None:
    assert "float64" in complaint([np.zeros(2)], [np.zeros(2, np.float32)], ["y"])
    assert "[3]" in complaint([np.zeros(3)], [np.zeros(2)], ["y"])
    assert "1 of 2" in complaint([np.array([1, 2])], [np.array([1, 3])], ["y"])


def test_verdict__as_listed__is_nothing() -> None:
    assert not verdict([row()], {})
    assert not verdict([row(browser="differs")], {"timm/some": ("here", "a tie")})
    assert not verdict([Row(MODEL, {"error": "no"}, {})], {"timm/some": ("export", "no")})


def test_verdict__other_than_listed__is_told() -> None:
    assert "not listed" in verdict([row(plan="wrong")], {})
    assert "it works" in verdict([row()], {"timm/some": ("here", "a tie")})
    assert "fails at onnxruntime" in verdict([row(onnxruntime="no")], {"timm/some": ("here", "a tie")})
    assert "not run" in verdict([Row(MODEL, {}, {})], {})


def named(name: str, exported: Mapping[str, object] = EXPORTED, **found: object) -> Row:
    return Row(replace(MODEL, name=name, make=name), exported, {**AGREES, "runs": 2, "open": True, **found})


def test_render__models_that_agree__are_listed_by_their_sizes() -> None:
    text = render([named("b"), named("A"), named("c", open=False), named("d", EXPORTED | {"dynamic": False})], {})
    assert "| timm | 4 | 4 | 4 | 4 | 0 |" in text
    assert "\n\n4 were exported by the new exporter (torch.export) and 0 by the old one (TorchScript), " in text
    assert "### Dynamic axes, one plan for all sizes\n\nA, b.\n" in text
    assert "### Dynamic axes, a plan for each size\n\nc.\n" in text
    assert text.endswith("### Fixed sizes\n\nd.\n")


def test_render__models_with_a_remark__are_rows_of_a_table() -> None:
    table = [
        named("host", host={"Loop": 2, "Bernoulli": 1}, stages=2, open=False),
        named("wrong", browser="differs"),
        Row(replace(MODEL, name="none", make="maker"), {"error": "no"}, {}),
        Row(replace(MODEL, name="later", make="later"), {}, {}),
    ]
    text = render(table, {"timm/none": ("export", "for a reason"), "timm/wrong": ("here", "a tie")})
    assert "| timm | 4 | 2 | 2 | 1 | 1 |" in text
    host = "agrees; on the host: Bernoulli, 2 × Loop; shapes depend on values in 1 place; a plan for each size"
    remarks = [f"| host | {host} |", "| wrong | differs: a tie |", "| none (maker) | not exported: for a reason |"]
    assert text.endswith("\n".join(["", "| model | remark |", "|---|---|", *remarks, "| later | not run yet |", ""]))
    assert "###" not in text.replace("### With a remark", "")


def test_definitions__all__are_unambiguous() -> None:
    every = list(definitions())
    assert len({(d.source, d.name) for d in every}) == len(every)
    assert {d.source for d in every} == set(SOURCES)
    for definition in every:
        assert all(definition.shape(name, run) for name in definition.inputs for run in (0, 1))
        assert {a.exporter for a in definition.attempts()} == {"new", "old"}


def test_shape__letters__are_sizes_of_a_run_and_open_axes() -> None:
    assert [MODEL.shape("x", run) for run in (0, 1)] == [[2, 3, 64, 8], [3, 3, 96, 8]]
    assert MODEL.axes("x") == {0: "b", 2: "h"}
