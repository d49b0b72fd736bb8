"""If, Loop, Scan, SequenceMap on the host: bodies, captures, limits. Models are written in ONNX's text form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyruntime import errors
from pyruntime.ir import Array, DType, Graph, SequenceType, TensorType
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import Limits, RunContext
from tests.models import check_model, run_model, run_model_typed
from tests.models import text_model as model


def check(text: str, feeds: dict[str, Any], opset: int = 21) -> list[Any]:
    """Outputs, after comparing them with onnxruntime's."""
    return check_model(model(text, opset), feeds)


def f32(numbers: Any) -> Array:
    return np.array(numbers, np.float32)


BRANCHES = """
agraph (bool c, float[n] x) => (y) {
  y = If (c) <
    then_branch = yes () => (float[n] a) { two = Constant <value_float = 2.0> ()  a = Mul (x, two) },
    else_branch = no () => (float[] b) { b = ReduceSum <keepdims = 0> (x) }
  >
}"""


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_if__branches_of_different_shapes__as_onnxruntime(condition: bool, shape: tuple[int, ...]) -> None:
    check(BRANCHES, {"c": np.full(shape, condition), "x": f32([1, 2, 3])})


def test_if__branch_not_taken__not_run() -> None:
    text = """
    agraph (bool c, float[n] x) => (y) {
      y = If (c) <
        then_branch = yes () => (float[n] a) { a = Identity (x) },
        else_branch = no () => (float[n] b) { i = Constant <value_ints = [99]> ()  b = Gather (x, i) }
      >
    }"""
    assert run_model(model(text), {"c": np.array(True), "x": f32([5])})[0].tolist() == [5]
    with pytest.raises(errors.OrtError, match=r"\(If\).*\(Gather\)"):
        run_model(model(text), {"c": np.array(False), "x": f32([5])})


def test_if__condition_of_two_elements__invalid_graph() -> None:
    with pytest.raises(errors.InvalidGraph, match="bool with one element"):
        run_model(model(BRANCHES), {"c": np.array([True, False]), "x": f32([1])})


def test_if__nested_captures__values_of_every_level() -> None:
    text = """
    agraph (bool c, float[n] x, float[n] z) => (y) {
      w = Add (x, z)
      y = If (c) <
        then_branch = yes () => (float[n] a) {
          v = Mul (w, z)
          a = If (c) <
            then_branch = inner () => (float[n] a2) { u = Sub (v, x)  a2 = Add (u, w) },
            else_branch = inner2 () => (float[n] a3) { a3 = Identity (x) }
          >
        },
        else_branch = no () => (float[n] b) { b = Identity (z) }
      >
    }"""
    for condition in (True, False):
        check(text, {"c": np.array(condition), "x": f32([1, 2]), "z": f32([3, 5])})


SUMS = """
agraph (int64 m, bool c, float[2] start, float[2] step) => (last, all) {
  last, all = Loop (m, c, start) <
    body = trip (int64 i, bool go, float[2] v) => (bool again, float[2] w, float[2] out) {
      again = Identity (go)
      w = Add (v, step)
      f = Cast <to = 1> (i)
      out = Mul (w, f)
    }
  >
}"""


@pytest.mark.parametrize("opset", [10, 11, 13, 16, 19, 21])
@pytest.mark.parametrize(("trips", "going"), [(4, True), (1, True), (0, True), (4, False)])
def test_loop__trip_count_and_condition__as_onnxruntime(opset: int, trips: int, going: bool) -> None:
    feeds = {"m": np.array(trips), "c": np.array(going), "start": f32([1, 2]), "step": f32([0.5, -1])}
    last, every = check(SUMS, feeds, opset)
    assert every.shape == (trips if going else 0, 2)
    assert last.shape == (2,)


WHILE = """
agraph (int64 {trips}, float start, float bound) => (last, all) {{
  last, all = Loop ({m}, {c}, start) <
    body = trip (int64 i, bool go, float v) => (bool again, float w, float out) {{
      two = Constant <value_float = 2.0> ()
      w = Mul (v, two)
      again = Less (w, bound)
      out = Identity (v)
    }}
  >
}}"""


@pytest.mark.parametrize(("m", "trips"), [("", 0), ("m", np.iinfo(np.int64).max), ("m", 3)])
def test_loop__until_the_condition_fails__as_onnxruntime(m: str, trips: int) -> None:
    text = WHILE.format(trips="m", m=m or '""', c='""')
    feeds = {"m": np.array(trips), "start": f32(1), "bound": f32(100)}
    last, every = check(text, feeds)
    assert last == (8 if trips == 3 else 128)
    assert len(every) == (3 if trips == 3 else 7)


def test_loop__no_trip__unknown_dimensions_are_zero() -> None:
    text = SUMS.replace("float[2] out", "float[k,2] out").replace(
        "out = Mul (w, f)", "g = Mul (w, f)  out = Unsqueeze (g, z)"
    )
    text = text.replace("f = Cast", "z = Constant <value_ints = [0]> ()  f = Cast")
    feeds = {"m": np.array(0), "c": np.array(True), "start": f32([1, 2]), "step": f32([1, 1])}
    assert run_model(model(text), feeds)[1].shape == (0, 0, 2)
    feeds["m"] = np.array(3)
    assert run_model(model(text), feeds)[1].shape == (3, 1, 2)


@pytest.mark.parametrize(
    ("m", "c", "made"),
    [(0, True, "Neg (x)"), (3, False, "Transpose (x)"), (-1, True, "Identity (s)"), (0, True, "Cast <to = 1> (i)")],
)
def test_loop__no_trip_and_no_declared_row__type_is_that_of_a_trip(m: int, c: bool, made: str) -> None:
    text = f"""
    agraph (int64 m, bool c, float[2,3] x) => (last, rows) {{
      last, rows = Loop (m, c, x) <
        body = trip (int64 i, bool go, float[2,3] s) => (bool again, float[2,3] t, row) {{
          again = Identity (go)
          t = Add (s, x)
          row = {made}
        }}
      >
    }}"""
    check(text, {"m": np.array(m), "c": np.array(c), "x": f32([[1, 2, 3], [4, 5, 6]])})


def test_loop__rank_1_counter_and_condition__as_the_body_declares() -> None:
    text = SUMS.replace("int64 i, bool go", "int64[1] i, bool[1] go").replace("bool again", "bool[1] again")
    text = text.replace("bool c", "bool[1] c").replace("int64 m", "int64[1] m")
    feeds = {"m": np.array([3]), "c": np.array([True]), "start": f32([1, 2]), "step": f32([1, 1])}
    check(text, feeds)


def test_loop__scan_outputs_of_different_shapes__invalid_graph() -> None:
    text = SUMS.replace("out = Mul (w, f)", "j = Unsqueeze (i, z)  out = Expand (f, j)")
    text = text.replace("f = Cast", "z = Constant <value_ints = [0]> ()  f = Cast").replace(
        "float[2] out", "float[k] out"
    )
    feeds = {"m": np.array(4), "c": np.array(True), "start": f32([1, 2]), "step": f32([1, 1])}
    with pytest.raises(errors.InvalidGraph, match=r"every trip's scan output to be float\[0\], got float\[1\]"):
        run_model(model(text), feeds)


def test_loop__for_ever__ends_at_the_limit() -> None:
    text = SUMS.replace("Loop (m, c, start)", 'Loop ("", "", start)')
    feeds = {"m": np.array(0), "c": np.array(True), "start": f32([1, 2]), "step": f32([0, 0])}
    with pytest.raises(errors.RuntimeException, match=r"\(Loop\).*at most 50 trips \(limit `loop_trips`\)"):
        run_model(model(text), feeds, RunContext(Limits(loop_trips=50)))


def test_loop__checked_every_trip__can_be_stopped() -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 40:
            raise errors.Fail("cancelled")

    text = SUMS.replace("Loop (m, c, start)", 'Loop ("", "", start)')
    feeds = {"m": np.array(0), "c": np.array(True), "start": f32([1, 2]), "step": f32([0, 0])}
    with pytest.raises(errors.Fail, match="cancelled"):
        run_model(model(text), feeds, RunContext(check=check))
    assert calls == 41


def test_loop__nodes_of_the_body__reported_before_the_loop() -> None:
    seen: list[str] = []
    context = RunContext(on_node=lambda node, made, seconds: seen.append(node.op.op_type))
    feeds = {"m": np.array(2), "c": np.array(True), "start": f32([1, 2]), "step": f32([0, 0])}
    run_model(model(SUMS), feeds, context)
    assert seen == ["Identity", "Add", "Cast", "Mul"] * 2 + ["Loop"]


def test_loop__carried_shape_grows__follows() -> None:
    text = """
    agraph (int64 m, float[n] x) => (y) {
      y = Loop (m, "", x) <
        body = trip (int64 i, bool go, float[k] v) => (bool again, float[l] w) {
          again = Identity (go)
          w = Concat <axis = 0> (v, x)
        }
      >
    }"""
    assert run_model(model(text), {"m": np.array(3), "x": f32([1, 2])})[0].tolist() == [1, 2] * 4


def test_loop__carried_sequence__as_onnxruntime() -> None:
    text = """
    agraph (int64 m, float[n] x) => (y, count) {
      none = SequenceEmpty <dtype = 1> ()
      yes = Constant <value = bool {1}> ()
      all = Loop (m, yes, none) <
        body = trip (int64 i, bool go, seq(float[k]) v) => (bool again, seq(float[l]) w) {
          again = Identity (go)
          f = Cast <to = 1> (i)
          e = Mul (x, f)
          w = SequenceInsert (v, e)
        }
      >
      count = SequenceLength (all)
      y = ConcatFromSequence <axis = 0, new_axis = 1> (all)
    }"""
    feeds = {"m": np.array(3), "x": f32([1, 2])}
    got = run_model(model(text, 17), feeds)
    assert got[0].tolist() == [[0, 0], [1, 2], [2, 4]]
    assert got[1] == 3


def test_loop__bfloat16_carried__rounded_every_trip() -> None:
    text = """
    agraph (int64 m, bfloat16[n] x, bfloat16[n] d) => (y) {
      y = Loop (m, "", x) <
        body = trip (int64 i, bool go, bfloat16[n] v) => (bool again, bfloat16[n] w) {
          again = Identity (go)
          w = Add (v, d)
        }
      >
    }"""
    x, d = np.array([256], ml_dtypes.bfloat16), np.array([1], ml_dtypes.bfloat16)
    (y,) = run_model_typed(model(text), {"m": np.array(5), "x": x, "d": d})
    assert y == TensorType(DType.BFLOAT16, (1,))
    assert y.value().tolist() == [256]  # 257 is no bfloat16: each trip rounds back


def test_loop__error_in_the_body__names_the_way_to_it() -> None:
    text = SUMS.replace("w = Add (v, step)", "k = Constant <value_ints = [7]> ()  w = Reshape (v, k)")
    feeds = {"m": np.array(2), "c": np.array(True), "start": f32([1, 2]), "step": f32([1, 1])}
    with pytest.raises(errors.OrtError, match=r"\(Loop\), opset 1: .*\(Reshape\), opset"):
        run_model(model(text), feeds)


CUMULATE = """
agraph (float[2] start, float[{shape}] x) => (last, sums) {{
  last, sums = Scan <num_scan_inputs = 1 {more},
    body = step (float[2] s, float[2] e) => (float[2] t, float[2] out) {{ t = Add (s, e)  out = Identity (t) }}
  > (start, x)
}}"""


@pytest.mark.parametrize("opset", [9, 11, 16, 21])
@pytest.mark.parametrize(
    ("shape", "more"),
    [
        ("4,2", ""),
        ("2,4", ", scan_input_axes = [1]"),
        ("4,2", ", scan_input_directions = [1]"),
        ("4,2", ", scan_output_directions = [1], scan_output_axes = [-1]"),
        ("2,4", ", scan_input_axes = [-1], scan_input_directions = [1], scan_output_axes = [1]"),
    ],
)
def test_scan__axes_and_directions__as_onnxruntime(opset: int, shape: str, more: str) -> None:
    dims = tuple(map(int, shape.split(",")))
    feeds = {"start": f32([10, 20]), "x": np.arange(8).reshape(dims).astype(np.float32)}
    if opset == 9 and "-1" in more:
        more = more.replace("[-1]", "[1]")
    check(CUMULATE.format(shape=shape, more=more), feeds, opset)


def test_scan__no_steps__declared_shape() -> None:
    feeds = {"start": f32([10, 20]), "x": np.zeros((0, 2), np.float32)}
    last, sums = run_model(model(CUMULATE.format(shape="0,2", more="")), feeds)
    assert last.tolist() == [10, 20]
    assert sums.shape == (0, 2)


def test_scan__inputs_of_different_lengths__invalid_graph() -> None:
    text = """
    agraph (float[3] x, float[2] z) => (y) {
      y = Scan <num_scan_inputs = 2, body = step (float a, float b) => (float c) { c = Add (a, b) }> (x, z)
    }"""
    with pytest.raises(errors.InvalidGraph, match="one length"):
        run_model(model(text), {"x": f32([1, 2, 3]), "z": f32([1, 2])})


@pytest.mark.parametrize("lengths", ["", "n"])
@pytest.mark.parametrize("backward", [0, 1])
def test_scan_8__batches_and_lengths__as_onnxruntime(lengths: str, backward: int) -> None:
    name = lengths or '""'
    text = f"""
    agraph (int64[2] n, float[2,3] start, float[2,4,3] x) => (last, sums) {{
      last, sums = Scan <num_scan_inputs = 1, directions = [{backward}],
        body = step (float[3] s, float[3] e) => (float[3] t, float[3] out) {{ t = Add (s, e)  out = Identity (t) }}
      > ({name}, start, x)
    }}"""
    x = np.arange(24).reshape(2, 4, 3).astype(np.float32)
    check(text, {"n": np.array([2, 4]), "start": np.ones((2, 3), np.float32), "x": x}, 8)


MAPPED = """
agraph (seq(float[n]) xs, {second} z) => (sums, sizes) {{
  sums, sizes = SequenceMap (xs, z) <
    body = each (float[n] x, float[m] w) => (float[k] sum, int64[1] size) {{
      c = Constant <value_float = 0.5> ()
      h = Mul (x, c)
      sum = Add (h, w)
      size = Shape (x)
    }}
  >
}}"""


def test_sequence_map__tensor_goes_to_every_element__two_outputs() -> None:
    xs = [f32([2, 4]), f32([6]), f32([])]
    got = run_model(model(MAPPED.format(second="float[m]")), {"xs": xs, "z": f32([1])})
    assert [a.tolist() for a in got[0]] == [[2, 3], [4], []]
    assert [a.tolist() for a in got[1]] == [[2], [1], [0]]


def test_sequence_map__two_sequences__element_by_element() -> None:
    feeds = {"xs": [f32([2, 4]), f32([6])], "z": [f32([1, 2]), f32([3])]}
    got = run_model(model(MAPPED.format(second="seq(float[m])")), feeds)
    assert [a.tolist() for a in got[0]] == [[2, 4], [6]]


def test_sequence_map__sequences_of_different_lengths__invalid_graph() -> None:
    with pytest.raises(errors.InvalidGraph, match="sequences of one length"):
        run_model(model(MAPPED.format(second="seq(float[m])")), {"xs": [f32([2])], "z": []})


def test_sequence_map__no_elements__typed_by_the_body() -> None:
    got = run_model_typed(model(MAPPED.format(second="float[m]")), {"xs": [], "z": f32([1])})
    assert got == [SequenceType(DType.FLOAT), SequenceType(DType.INT64)]
    assert [v.value() for v in got] == [[], []]


def graph_of(text: str) -> Graph:
    return import_model(read_model(model(text).SerializeToString())).graph


def test_body_op__random_numbers_inside__not_pure() -> None:
    def pure(graph: Graph) -> bool:
        op = graph.nodes[-1].op
        assert isinstance(op, Op)
        return op.pure

    assert pure(graph_of(BRANCHES))
    assert not pure(graph_of(BRANCHES.replace("a = Mul (x, two)", "a = RandomNormalLike (x)")))


def test_run_context__bodies_within_bodies_beyond_the_depth__refused() -> None:
    context = RunContext(Limits(depth=0))
    with pytest.raises(errors.RuntimeException, match="at most 0 bodies within bodies"):
        run_model(model(BRANCHES), {"c": np.array(True), "x": f32([1])}, context)
