"""Models compiled ahead of time: which sizes and values their plans are for, and what is refused with which reason."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from pyruntime.cli import main
from pyruntime.compiler.plan import GpuSegment, Transfer, Unread
from pyruntime.compiler.saved import SavedProgram, read
from pyruntime.errors import EPFail, InvalidArgument
from pyruntime.ir import evaluate
from pyruntime.session.aot.compile_ahead import compile_model
from tests import open_models

SIZES = 1, 2, 3, 4, 5, 8, 16
BRANCHES = """
<ir_version: 9, opset_import: ["" : 17]>
voice (float[B, N] x, int64 sr) => (float[B, M] y) <int64 wide = {16000}> {
  is_wide = Equal (sr, wide)
  y = If (is_wide) <
    then_branch = then () => (float[B, M] a) { a = Relu (x) },
    else_branch = other () => (float[B, M] b) { t = Neg (x) b = Exp (t) }
  >
}
"""
SHAPED = """
<ir_version: 9, opset_import: ["" : 17]>
shaped (float[6] x, int64[K] shape, float[2] scale) => (float[M, N] y) { t = Reshape (x, shape) y = Exp (t) }
"""
TABLE = '<ir_version: 9, opset_import: ["" : 17]> table (float[A, B] x) => (float[A, B] y) { y = Relu (x) }'


def saved(folder: Path, model: str | bytes) -> Path:
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(model) if isinstance(model, str) else onnx.load_from_string(model), path)
    return path


def takes(program: SavedProgram, name: str, shape: Sequence[int], **numbers: int) -> bool:
    """Whether a program is for this shape of an input that has all dynamic sizes, and these numbers of others."""
    if any(np.frombuffer(raw, np.int64)[0] != numbers[n] for n, raw in program.values.items()):
        return False
    (segment,) = program.plan.steps
    assert isinstance(segment, GpuSegment)
    fed: list[Transfer | Unread] = [*segment.uploads, *program.plan.unread]
    (given,) = [t for t in fed if t.name == name]
    scaled = given.scaled or (-1,) * given.type.rank
    if any(n < 0 and d != s for n, d, s in zip(scaled, given.type.shape, shape, strict=True)):
        return False
    if program.sizes is None:
        return True
    # An input's dimension is a size itself: [[1, [number]]].
    found = {program.plan.expressions[n][0][1][0]: s for n, s in zip(scaled, shape, strict=True) if n >= 0}
    found |= {number: numbers[n] for n, number in program.sizes["values"].items()}
    sizes = [found[n] for n in range(len(program.sizes["ranges"]))]
    held = all(
        (evaluate(e, sizes) < 0 if c == "<" else evaluate(e, sizes) == 0) == a for e, c, a in program.sizes["guards"]
    )
    return held and all(low <= s <= high for s, (low, high) in zip(sizes, program.sizes["ranges"], strict=True))


@pytest.mark.parametrize(("first", "second"), list(itertools.product(SIZES, SIZES)))
def test_command__each_pair_of_sizes__makes_plans_for_both(tmp_path: Path, first: int, second: int) -> None:
    path, out = saved(tmp_path, TABLE), tmp_path / "x.plan"
    shapes = [f"--shape=x={n},4" for n in (first, second)]
    assert main(["compile", str(path), "-o", str(out), *shapes]) == 0
    programs = read(out.read_bytes()).programs
    for size in (first, second):
        assert any(takes(p, "x", (size, 4)) for p in programs)
    dynamic_dimensions = {n for n in (first, second) if n > 1}
    if len(dynamic_dimensions) > 1:
        assert all(any(takes(p, "x", (n, 4)) for p in programs) for n in range(2, max(dynamic_dimensions) + 1))


@pytest.mark.parametrize(
    "shapes",
    [
        [(1, 4), (2, 8)],
        [(2, 5), (5, 2)],
        [(1, 1), (3, 16)],
        [(1, 2), (2, 1)],
        [(0, 4), (1, 4), (2, 4)],
        [(2, 2), (3, 3), (16, 16), (1, 1)],
        [(16, 16), (2, 2)],
        [(4000, 2), (2, 2)],
        [(n, n + 1) for n in range(20)],
    ],
    ids=str,
)
def test_compile__several_axes__makes_plans_for_all_shapes(tmp_path: Path, shapes: list[tuple[int, ...]]) -> None:
    programs = read(compile_model(saved(tmp_path, TABLE), {"x": shapes})).programs
    for shape in shapes:
        assert any(takes(p, "x", shape) for p in programs), shape


@pytest.mark.parametrize("shapes", [[(2, 8), (2, 12)], [(2, 12), (2, 8)]])
def test_compile__number_of_a_size_is_needed__is_refused_with_the_dimension_and_why(
    tmp_path: Path, shapes: list[tuple[int, ...]]
) -> None:
    path = saved(tmp_path, open_models.fourier())
    with pytest.raises(EPFail, match=r"needs its sizes when it is planned \(length: .*DFT"):
        compile_model(path, {"x": shapes})


@pytest.mark.parametrize(("sr", "operators"), [("16000", {"Relu"}), ("8000", {"Neg", "Exp"})])
def test_command__value_that_decides_a_branch__makes_the_plan_of_that_branch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sr: str, operators: set[str]
) -> None:
    path, out = saved(tmp_path, BRANCHES), tmp_path / "x.plan"
    arguments = ["--shape", "x=1,512", "--value", f"sr={sr}"]
    assert main(["compile", str(path), "-o", str(out), *arguments]) == 0
    assert "for the stated values of sr alone" in capsys.readouterr().out
    (program,) = read(out.read_bytes()).programs
    assert program.values == {"sr": np.int64(sr).tobytes()}
    (segment,) = program.plan.steps
    assert isinstance(segment, GpuSegment)
    ran = {a.op_type for a in program.plan.assignments if a.placement == "gpu"}
    assert operators <= set(re.findall("[A-Z][a-z]+", " ".join(ran)))


def test_compile__two_values_with_two_shapes__makes_a_plan_for_each(tmp_path: Path) -> None:
    path = saved(tmp_path, BRANCHES)
    programs = read(compile_model(path, {"x": [(1, 512), (1, 256)]}, values={"sr": [16000, 8000]})).programs
    wide, narrow = ([p for p in programs if takes(p, "x", (1, n), sr=sr)] for n, sr in ((512, 16000), (256, 8000)))
    assert ["Exp" in str(p.plan.assignments) for p in wide] == [False] * len(wide) != []
    assert ["Exp" in str(p.plan.assignments) for p in narrow] == [True] * len(narrow) != []


@pytest.mark.parametrize("stated", [[2, 3], (2, 3), np.array([2, 3])])
def test_compile__value_is_a_list__is_the_shape_of_the_plan(tmp_path: Path, stated: Any) -> None:
    (program,) = read(compile_model(saved(tmp_path, SHAPED), values={"shape": [stated]})).programs
    assert program.values == {"shape": np.array([2, 3], np.int64).tobytes()}
    (segment,) = program.plan.steps
    assert isinstance(segment, GpuSegment) and segment.downloads[0].type.shape == (2, 3)


def test_command__values_of_an_input_that_decides_nothing__leave_the_plan_as_it_is(tmp_path: Path) -> None:
    path = saved(tmp_path, SHAPED)
    one, two = tmp_path / "one.plan", tmp_path / "two.plan"
    assert main(["compile", str(path), "-o", str(one), "--value", "shape=[3, 2]"]) == 0
    assert main(["compile", str(path), "-o", str(two), "--value", "shape=3,2", "--value", "scale=1,2.5"]) == 0
    assert read(one.read_bytes()).programs[0].values == read(two.read_bytes()).programs[0].values


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("sr", "expected INPUT=16000"),
        ("=3", "expected INPUT=16000"),
        ("sr=fast", "expected INPUT=16000"),
        ("rate=3", r"no input \['rate'\]; its inputs: \['x', 'sr'\]"),
        ("sr=1.5", r"tensor\(int64\); expected integers, got 1.5"),
        ("sr=true", r"tensor\(int64\); expected integers, got True"),
        ("sr=null", r"tensor\(int64\); expected integers, got None"),
        ('sr="16000"', r"tensor\(int64\); expected integers, got 16000"),
        ("sr=9223372036854775808", "from -9223372036854775808 to 9223372036854775807"),
        ("sr=1,2", r"is .*, not of shape \[2\]"),
        ("sr=[[1],[2,3]]", "lists of equal lengths"),
    ],
)
def test_command__value_that_does_not_fit__is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str, told: str
) -> None:
    path = saved(tmp_path, BRANCHES)
    assert main(["compile", str(path), "-o", str(tmp_path / "x.plan"), "--value", value]) == 1
    assert re.search(told, capsys.readouterr().err)


def test_compile__one_number_for_an_input_of_one_element__has_its_shape(tmp_path: Path) -> None:
    path = saved(tmp_path, SHAPED)
    (program,) = read(compile_model(path, {"shape": [(1,)]}, values={"shape": [6]})).programs
    assert program.values == {"shape": np.array([6], np.int64).tobytes()}
    with pytest.raises(InvalidArgument, match=r"not of shape \[3\]"):
        compile_model(path, {"shape": [(2,)]}, values={"shape": [[1, 2, 3]]})


def test_compile__value_that_decides_is_not_stated__is_refused_and_says_how_to_state_it(tmp_path: Path) -> None:
    with pytest.raises(EPFail, match=r"'sr'.*--value"):
        compile_model(saved(tmp_path, BRANCHES), {"x": [(1, 512)]})


def test_command__several_models__each_plan_is_next_to_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    first, second = saved(tmp_path, TABLE), saved(tmp_path / "other", TABLE)
    assert main(["compile", str(first), str(second), "--shape", "x=3,4"]) == 0
    plans = [path.with_suffix(".plan") for path in (first, second)]
    assert plans[0].read_bytes() == plans[1].read_bytes() == compile_model(first, {"x": [(3, 4)]})
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [str(path) for path in plans]
    assert main(["compile", str(first), str(second), "-o", str(tmp_path / "x.plan")]) == 1
    assert "--output names the plan of one model" in capsys.readouterr().err


SCALED = """
<ir_version: 9, opset_import: ["" : 17]>
scaled (float s, float[N] x) => (float[M] y) { y = Mul (s, x) }
"""
BOTH = """
<ir_version: 9, opset_import: ["" : 17]>
scaled (float s, float[N] x) => (float[M] y, float z) { y = Mul (s, x) z = Neg (s) }
"""


def fed_shapes(program: SavedProgram, name: str) -> tuple[Any, ...]:
    (segment,) = program.plan.steps
    assert isinstance(segment, GpuSegment)
    return next(t.type.shape for t in (*segment.uploads, *segment.downloads) if t.name == name)


@pytest.mark.parametrize("sizes", [[(4,)], [(4,), (8,)]], ids=["one size", "dynamic"])
def test_compile__scalar_whose_shape_changes_no_output__one_plan_takes_shape_1_too(
    tmp_path: Path, sizes: list[tuple[int, ...]]
) -> None:
    (program,) = read(compile_model(saved(tmp_path, SCALED), {"x": sizes})).programs
    assert program.scalars == ["s"] and fed_shapes(program, "s") == ()


def test_compile__scalar_that_decides__one_plan_takes_shape_1_too(tmp_path: Path) -> None:
    (program,) = read(compile_model(saved(tmp_path, BRANCHES), {"x": [(1, 512)]}, values={"sr": [16000]})).programs
    assert program.scalars == ["sr"]


@pytest.mark.parametrize("sizes", [[(4,)], [(4,), (8,)]], ids=["one size", "dynamic"])
def test_compile__scalar_whose_shape_an_output_has__has_a_plan_for_each(
    tmp_path: Path, sizes: list[tuple[int, ...]]
) -> None:
    one, scalar = read(compile_model(saved(tmp_path, BOTH), {"x": sizes})).programs
    assert one.scalars == scalar.scalars == []
    assert [fed_shapes(one, n) for n in "sz"] == [(1,), (1,)]
    assert [fed_shapes(scalar, n) for n in "sz"] == [(), ()]  # the last: a session compiles it first


def test_compile__shape_of_a_scalar_is_stated__alone(tmp_path: Path) -> None:
    (program,) = read(compile_model(saved(tmp_path, BOTH), {"x": [(4,)], "s": [(1,)]})).programs
    assert [fed_shapes(program, n) for n in "sz"] == [(1,), (1,)]
    with pytest.raises(InvalidArgument, match=r"not of shape \[2\]"):
        compile_model(saved(tmp_path, BOTH), {"x": [(4,)], "s": [(2,)]})


def test_compile__shape_1_does_not_fit_the_model__scalars_alone(tmp_path: Path) -> None:
    model = """
    <ir_version: 9, opset_import: ["" : 17]>
    gathered (int64 i, float[4, 3] x) => (float[3] y) { t = Gather (x, i) y = Transpose <perm = [0]> (t) }
    """
    (program,) = read(compile_model(saved(tmp_path, model))).programs
    assert program.scalars == [] and fed_shapes(program, "i") == ()
