"""What the sweep of treated models is made of: treatments, when rounded results agree, the list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tools.zoo.compare import apart
from tools.zoo.definitions import definitions
from tools.zoo.treated import check, fed, line, listed, shared, wrong_of
from tools.zoo.treatments import TREATMENTS, Exported, Treatment, chosen

MODELS = {f"{d.source}/{d.name}": d for d in definitions()}


@pytest.fixture
def model(tmp_path: Path) -> Exported:
    """y = relu(x w) of an open batch."""
    w = helper.make_tensor("w", TensorProto.FLOAT, [3, 2], [1, -2, 3, -4, 5, -6])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], "m"), helper.make_node("Relu", ["m"], ["y"], "r")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 2])
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    runs = [{"x": np.random.default_rng(i).standard_normal((i + 2, 3)).astype(np.float32)} for i in range(2)]
    return Exported(path, runs)


@pytest.mark.parametrize(
    "name",
    [
        *("ort_basic", "ort_all", "external_one", "external_many", "stripped", "prefixed", "branches", "opset_latest"),
        *("dynamic_u8_channels", "qdq_u16u16", "qop_u8u8_then_all", "bnb4_nf4"),
    ],
)
def test_treatment__of_a_product__agrees(name: str, model: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = next(iter(MODELS.values()))
    monkeypatch.setattr(type(definition), "path", property(lambda _: model.path))
    arrays: dict[str, Any] = {f"{i}/{n}": x for i, run in enumerate(model.runs) for n, x in run.items()}
    np.savez(model.path.with_suffix(".npz"), **arrays)
    found = check(definition, TREATMENTS[name], model.path.parent)
    assert not wrong_of(found) and not found.get("tool"), found
    assert found["dispatches"] > 0
    assert "dispatches" in line(found)


def test_wrong__result__is_told(model: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = next(iter(MODELS.values()))
    monkeypatch.setattr(type(definition), "path", property(lambda _: model.path))
    arrays: dict[str, Any] = {"0/x": model.runs[0]["x"]}
    np.savez(model.path.with_suffix(".npz"), **arrays)
    monkeypatch.setattr("tools.zoo.treated._interpreted", lambda graph, feeds, names: [np.ones((2, 2), np.float32)])
    assert "differs" in wrong_of(check(definition, TREATMENTS["stripped"], model.path.parent))


def test_apart__steps__are_measured_by_what_the_rounding_did() -> None:
    exact = np.linspace(-1, 1, 101).astype(np.float32)
    theirs = np.round(exact * 20) / 20
    mine = np.where(np.arange(101) % 20 == 0, theirs + np.float32(0.05), theirs)
    told, far = apart([mine], [[theirs]], [exact], ["y"])
    assert not told
    assert 0 < far <= 1
    assert "from onnxruntime" in apart([theirs + 0.2], [[theirs]], [exact], ["y"])[0]
    assert "not finite" in apart([np.where(exact > 0, np.nan, mine)], [[theirs]], [exact], ["y"])[0]
    assert "[3]" in apart([np.zeros(3)], [[np.zeros(2)]], [np.zeros(2)], ["y"])[0]


def test_fed__inputs__are_of_the_types_that_the_file_declares() -> None:
    made = fed({"x": np.dtype(np.float16), "use_cache_branch": np.dtype(bool)}, {"x": np.ones((3, 1), np.float32)})
    assert made["x"].dtype == np.float16
    assert made["use_cache_branch"].tolist() == [False]


def test_chosen__by_name_and_model__are_those_that_apply() -> None:
    assert {t.name for t in chosen("t5", ["fused_.*_0", "half"])} == {"fused_t5_0", "half"}
    assert Treatment("a", lambda *_: None, models="b.*").applies("bert")
    for treatment in TREATMENTS.values():
        assert any(treatment.applies(d.name) for d in MODELS.values()), treatment.name


def test_shared__percent__is_a_part_that_stays_the_same() -> None:
    pairs = [(d, t) for d in MODELS.values() for t in chosen(d.name)]
    few, more = ({(d.name, t.name) for d, t in pairs if shared(d, t, n)} for n in (5, 20))
    assert few < more
    assert 0.03 < len(few) / len(pairs) < 0.07


def test_listed__each__is_a_model_with_a_treatment_and_a_reason() -> None:
    for key, reason in listed().items():
        name, treatment = key.split()
        assert TREATMENTS[treatment].applies(MODELS[name].name)
        assert reason.strip()
