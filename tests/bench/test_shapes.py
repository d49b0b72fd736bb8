"""The models for tuning hold the problems they were written for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import cases, shapes


def test_model__problems_listed__are_those_of_its_plan(tmp_path: Path) -> None:
    listed = [k for k in shapes.listed()["convolution"] if not k.endswith(("integer", "bytes"))]
    keys = [*listed[::40], *(k for k in listed if " d" in k or k.endswith("transposed"))][:24]
    made = shapes.model([part for part in map(shapes.convolution, keys) if part is not None])
    (tmp_path / "some.onnx").write_bytes(made)
    case = cases.Case("some", tmp_path / "some.onnx", {"x": {"dtype": "float32", "shape": [1]}})
    found = list(shapes.problems([case]))
    assert {key for family, key in found if family == "convolution"} == set(keys)


def test_convolution__unknown_key__says_so() -> None:
    with pytest.raises(ValueError, match="no problem of convolutions"):
        shapes.convolution("12 apples")
