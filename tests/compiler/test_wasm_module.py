"""Models compiled to WebAssembly: the module in the plan, run where the plan says that everything is."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.compiler.saved import WASM_MAGIC, open_plan, read, write
from pyruntime.errors import InvalidArgument
from pyruntime.ir import Array
from pyruntime.onnx.formats.source import open_file
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.target.named import read_target
from tests.compiler.test_saved import DIGITS, SHAPES, saved_model
from tests.loop_models import LOOPS
from tests.models import text_model
from tests.wasm import PAGE, Host

WASM = read_target("wasm")


def answers(plan: bytes, feeds: Mapping[str, Array], program: int = 0) -> dict[str, Any]:
    """What a plan with its weights inside computes."""
    if shutil.which("node") is None:
        pytest.skip("needs Node")
    header, sections = open_plan(plan)
    module, host = header["module"], Host()
    host.grow((module["pages"] - 2) * PAGE)
    for _, at, nbytes, buffer, place in header["constants"]:
        host.write(module["buffers"][buffer] + place, sections, at, nbytes)
    at, nbytes = module["code"]
    number = host.load(bytes(sections[at : at + nbytes]))
    host.run(number, ["computed"])
    data, arenas = header["programs"][program]["plan"], module["arenas"][program]
    for t in data["uploads"]:
        _, index, offset, _ = t["region"]
        host.write(arenas[index] + offset, feeds[t["name"]].tobytes(), 0, feeds[t["name"]].nbytes)
    host.run(number, [f"run{program}"])
    made = {}
    for t in data["downloads"]:
        _, index, offset, _ = t["region"]
        dtype = np.dtype(t["type"])
        raw = host.read(arenas[index] + offset, int(np.prod(t["dims"])) * dtype.itemsize)
        made[t["name"]] = np.frombuffer(raw, dtype).reshape(t["dims"])
    host.close()
    return made


@pytest.mark.parametrize("name", ["digits", "enlarge3", "computed weights"])
def test_plan__for_webassembly__onnxruntimes_answer(tmp_path: Path, name: str) -> None:
    path, _ = saved_model(tmp_path, name)
    (value,) = onnx.load(path).graph.input
    shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
    feeds = {value.name: np.random.default_rng(1).random(shape, np.float32)}
    session = onnxruntime.InferenceSession(path)
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    found = answers(compile_model(path, target=WASM, inside=True), feeds)
    assert found.keys() == expected.keys()
    for output, wanted in expected.items():
        np.testing.assert_allclose(found[output], wanted, rtol=1e-3, atol=1e-4)


def test_plan__two_values_of_a_condition__a_function_for_each(tmp_path: Path) -> None:
    x, yes = helper.make_tensor_value_info("x", 1, [3]), helper.make_tensor_value_info("yes", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", 1, [3])
    bodies = {
        f"{branch}_branch": helper.make_graph(
            [helper.make_node(kind, ["x"], ["z"])], branch, [], [y.__class__.FromString(y.SerializeToString())]
        )
        for branch, kind in (("then", "Neg"), ("else", "Abs"))
    }
    for body in bodies.values():
        body.output[0].name = "z"
    graph = helper.make_graph([helper.make_node("If", ["yes"], ["y"], **bodies)], "g", [x, yes], [y])
    path = tmp_path / "if.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    plan = compile_model(path, target=WASM, inside=True, values={"yes": [True, False]})
    header, sections = open_plan(plan)
    given = np.array([-1, 2, -3], np.float32)
    for number, program in enumerate(header["programs"]):
        at, nbytes = program["values"]["yes"]
        expected = -given if any(sections[at : at + nbytes]) else abs(given)
        assert answers(plan, {"x": given}, number)["y"].tolist() == expected.tolist()


def test_plan__a_loop__its_dispatches_are_called_again(tmp_path: Path) -> None:
    path = tmp_path / "loop.onnx"
    text, feeds_of = LOOPS["states"]
    onnx.save(text_model(text), path)
    feeds = feeds_of(3)
    shapes = {name: [value.shape] for name, value in feeds.items()}
    session = onnxruntime.InferenceSession(path)
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    found = answers(compile_model(path, shapes, target=WASM, inside=True), feeds)
    for output, wanted in expected.items():
        np.testing.assert_allclose(found[output], wanted, rtol=1e-5)


def test_plan__for_webassembly__comes_back_and_is_equal() -> None:
    plan = compile_model(DIGITS, target=WASM)
    assert plan.startswith(WASM_MAGIC)
    source = open_file(DIGITS)
    assert write(read(plan, source), source) == plan == compile_model(DIGITS, target=WASM)


def test_plan__dynamic_dimensions__are_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidArgument, match=r"have fixed sizes; compile a plan for each shape \(--shape\)"):
        compile_model(DIGITS, SHAPES, target=WASM)


def test_plan__weights__are_ordered_once(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, 1, [1, 8, 9, 9]) for n in "xy")
    w = numpy_helper.from_array(np.random.default_rng(3).random((8, 8, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", [n, "w"], [m], pads=[1, 1, 1, 1]) for n, m in (("x", "h"), ("h", "y"))]
    path = tmp_path / "conv.onnx"
    onnx.save(
        helper.make_model(
            helper.make_graph(nodes, "g", [x], [y], [w]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ),
        path,
    )
    header, _ = open_plan(compile_model(path, target=WASM))
    kernels = [c["about"][0].partition("_kd")[0] for c in header["programs"][0]["plan"]["commands"]]
    assert kernels == ["conv_panels"] * 2
