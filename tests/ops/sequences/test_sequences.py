"""Sequences and optionals on the host. Models are written in ONNX's text form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from pyruntime import errors
from pyruntime.ir import Array, DType, OptionalType, SequenceType
from tests.models import check_model, run_model, run_model_typed
from tests.models import text_model as model


def f32(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


BUILD = """
agraph (float[a] x, float[b] y, float[c] z, int64 i) => ({outputs}) {{
  s = SequenceConstruct (x, y)
  {body}
}}"""


@pytest.mark.parametrize("position", [-2, -1, 0, 1, 2])
def test_sequence_insert__positions__as_onnxruntime(position: int) -> None:
    text = BUILD.format(
        outputs="a, n",
        body="t = SequenceInsert (s, z, i)  a = ConcatFromSequence <axis = 0> (t)  n = SequenceLength (t)",
    )
    check_model(model(text), {"x": f32(1, 2), "y": f32(3), "z": f32(4, 5, 6), "i": np.array(position)})


@pytest.mark.parametrize("position", [-2, -1, 0, 1])
def test_sequence_at_and_erase__positions__as_onnxruntime(position: int) -> None:
    body = "a = SequenceAt (s, i)  e = SequenceErase (s, i)  b = ConcatFromSequence <axis = 0> (e)"
    feeds = {"x": f32(1, 2), "y": f32(3), "z": f32(), "i": np.array(position, np.int64)}
    check_model(model(BUILD.format(outputs="a, b", body=body)), feeds)


def test_sequence_insert_and_erase__no_position__at_the_end() -> None:
    body = "t = SequenceInsert (s, z)  e = SequenceErase (s)  a = ConcatFromSequence <axis = 0> (t)"
    body += "  b = ConcatFromSequence <axis = 0> (e)"
    feeds = {"x": f32(1, 2), "y": f32(3), "z": f32(9), "i": np.array(0)}
    check_model(model(BUILD.format(outputs="a, b", body=body)), feeds)


@pytest.mark.parametrize("op", ["SequenceAt", "SequenceErase"])
@pytest.mark.parametrize("position", [-3, 2])
def test_sequence_position__outside__runtime_exception(op: str, position: int) -> None:
    feeds = {"x": f32(1), "y": f32(3), "z": f32(9), "i": np.array(position)}
    with pytest.raises(
        errors.RuntimeException, match=rf"\({op}\).*position in \[-2, 1\] of a sequence of 2, got {position}"
    ):
        run_model(model(BUILD.format(outputs="a", body=f"a = {op} (s, i)")), feeds)


def test_sequence_insert__another_type__invalid_graph() -> None:
    feeds = {"x": f32(1), "y": f32(3), "z": f32(9), "i": np.array(0)}
    with pytest.raises(errors.InvalidGraph, match=r"element type of seq\(tensor\(float\)\), got int64\[\]"):
        run_model(model(BUILD.format(outputs="a", body="a = SequenceInsert (s, i)")), feeds)


def test_sequence_construct__bfloat16__refused_as_in_onnxruntime() -> None:
    made = model("agraph (bfloat16[n] x, int64 i) => (s, a) { s = SequenceConstruct (x, x)  a = SequenceAt (s, i) }")
    with pytest.raises(Exception, match="Type Error"):
        onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(errors.InvalidGraph, match=r"expected input 1 .*, got tensor\(bfloat16\)"):
        run_model_typed(made, {"x": np.array([1, 2], ml_dtypes.bfloat16), "i": np.array(1)})


@pytest.mark.parametrize("split", [None, 2, 7, [1, 3, 1], [5, 0]])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [1, -2])
def test_split_to_sequence__sizes__as_onnxruntime(split: Any, keepdims: int, axis: int) -> None:
    if split is None:
        text = f"agraph (float[2,5,3] x) => (s) {{ s = SplitToSequence <axis = {axis}, keepdims = {keepdims}> (x) }}"
        feeds: dict[str, Any] = {}
    else:
        kind = "int64" if isinstance(split, int) else f"int64[{len(split)}]"
        text = f"agraph (float[2,5,3] x, {kind} n) => (s) {{ s = SplitToSequence <axis = {axis}> (x, n) }}"
        feeds = {"n": np.array(split, np.int64)}
    check_model(model(text), {"x": np.arange(30).reshape(2, 5, 3).astype(np.float32), **feeds})


@pytest.mark.parametrize(("split", "message"), [([1, 1], "add up to 5"), (0, "positive"), ([-1, 6], "add up")])
def test_split_to_sequence__sizes_that_do_not_fit__runtime_exception(split: Any, message: str) -> None:
    kind = "int64" if isinstance(split, int) else "int64[2]"
    text = f"agraph (float[5] x, {kind} n) => (s) {{ s = SplitToSequence (x, n) }}"
    with pytest.raises(errors.RuntimeException, match=message):
        run_model(model(text), {"x": f32(*range(5)), "n": np.array(split)})


def test_split_to_sequence__empty_axis__no_parts() -> None:
    text = "agraph (float[n] x) => (s, t) { s = SplitToSequence (x)  t = SplitToSequence <keepdims = 0> (x) }"
    assert run_model(model(text), {"x": f32()}) == [[], []]


@pytest.mark.parametrize("axis", [-2, 0, 1])
@pytest.mark.parametrize("new_axis", [0, 1])
def test_concat_from_sequence__axes__as_onnxruntime(axis: int, new_axis: int) -> None:
    text = f"""
    agraph (float[2,3] x) => (y) {{
      s = SequenceConstruct (x, x, x)
      y = ConcatFromSequence <axis = {axis}, new_axis = {new_axis}> (s)
    }}"""
    check_model(model(text), {"x": np.arange(6).reshape(2, 3).astype(np.float32)})


def test_concat_from_sequence__nothing_or_misfits__invalid_graph() -> None:
    text = "agraph (seq(float[n]) s) => (y) { y = ConcatFromSequence <axis = 0, new_axis = 1> (s) }"
    with pytest.raises(errors.InvalidGraph, match="at least one tensor"):
        run_model(model(text), {"s": []})
    with pytest.raises(errors.InvalidGraph, match="differ along axis 0 only"):
        run_model(model(text), {"s": [f32(1), f32(1, 2)]})


OPTIONALS = """
agraph (float[n] x) => (has, empty_has, tensor_has, back) {
  o = Optional (x)
  e = Optional <type = float[n]> ()
  has = OptionalHasElement (o)
  empty_has = OptionalHasElement (e)
  tensor_has = OptionalHasElement (x)
  back = OptionalGetElement (o)
}"""


def test_optional__full_empty_and_tensor__told_apart() -> None:
    made = model(OPTIONALS.replace(" <type = float[n]>", ""), 18)
    attribute = made.graph.node[1].attribute.add()
    attribute.name, attribute.type = "type", 13
    attribute.tp.tensor_type.elem_type = 1
    has, empty, tensor, back = run_model(made, {"x": f32(1, 2)})
    assert (bool(has), bool(empty), bool(tensor)) == (True, False, True)
    assert back.tolist() == [1, 2]


def test_optional__neither_input_nor_type__invalid_graph() -> None:
    with pytest.raises(errors.InvalidGraph, match="input or the attribute `type`"):
        run_model(model("agraph () => (e) { e = Optional () }", 18), {})


def test_optional_get_element__empty__runtime_exception() -> None:
    text = "agraph (optional(float[n]) o) => (y) { y = OptionalGetElement (o) }"
    with pytest.raises(errors.RuntimeException, match=r"expected a value, got an empty optional\(tensor\(float\)\)"):
        run_model(model(text, 18), {"o": None})


def test_optional_has_element__absent_input__false() -> None:
    assert not run_model(model('agraph () => (y) { y = OptionalHasElement ("") }', 18), {})[0]


def test_optional__of_a_sequence__its_type() -> None:
    text = "agraph (seq(float[n]) s) => (o) { o = Optional (s) }"
    (o,) = run_model_typed(model(text, 18), {"s": [f32(1)]})
    assert o == OptionalType(SequenceType(DType.FLOAT))
    assert str(o) == "optional(seq(tensor(float)))"
