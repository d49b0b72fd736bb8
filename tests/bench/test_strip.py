"""bench/strip.py and bench/refill.py: a model without its large weights, and one with others in their place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench import refill as refilling
from bench.refill import refill
from bench.strip import holes, strip, strip_folder


def model(tmp_path: Path) -> Path:
    """Weights of every kind: large and random, small, constant, of one dimension, of integers, not finite."""
    rng = np.random.default_rng(0)
    mask = np.zeros((64, 64), np.float32)
    mask[0, 1] = -np.inf
    weights = {
        "large": 0.25 * rng.standard_normal((64, 128), np.float32),
        "small": rng.standard_normal((8, 8), np.float32),
        "constant": np.full((64, 64), 3, np.float32),
        "bias": rng.standard_normal(5000, np.float32),
        "indices": rng.integers(0, 9, (64, 64)),
        "mask": mask,
    }
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "large"], ["y"])],
        "weights",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 128])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), path)
    return path


def read(path: Path) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def test_strip__weights_of_every_kind__takes_out_the_large_random_one(tmp_path: Path) -> None:
    path = model(tmp_path)
    (hole,) = holes(memoryview(path.read_bytes()))
    offset, length, scale = hole[0], hole[1], hole[3]
    assert np.frombuffer(path.read_bytes()[offset : offset + length], np.float32) == pytest.approx(
        read(path)["large"].ravel()
    )
    assert scale == pytest.approx(0.25, rel=0.05)


def test_refill__stripped_model__is_whole_again(tmp_path: Path) -> None:
    path, stripped, again = model(tmp_path), tmp_path / "model.stripped", tmp_path / "again.onnx"
    strip(path, stripped)
    refill(stripped, again)
    assert again.stat().st_size == path.stat().st_size
    before, after = read(path), read(again)
    assert np.std(after["large"]) == pytest.approx(np.std(before["large"]), rel=0.05)
    assert not np.array_equal(after.pop("large"), before.pop("large"))
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array, err_msg=name)


def test_refill__twice__gives_the_same_bytes(tmp_path: Path) -> None:
    stripped, models = tmp_path / "model.stripped", [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    strip(model(tmp_path), stripped)
    for path in models:
        refill(stripped, path)
    assert models[0].read_bytes() == models[1].read_bytes()


def test_refill__file_that_was_cut__is_refused(tmp_path: Path) -> None:
    stripped = tmp_path / "model.stripped"
    header = json.dumps({"size": 100, "holes": [[10, 40, 1, 0.5]]}).encode()
    stripped.write_bytes(gzip.compress(header + b"\n" + bytes(50)))
    with pytest.raises(ValueError, match="90 bytes, not 100"):
        refill(stripped, tmp_path / "model.onnx")


def test_strip__weights_next_to_the_model__are_taken_out_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out" / "decoder"
    whole.mkdir()
    made = onnx.load(model(tmp_path))
    onnx.save(made, whole / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    (whole / "genai_config.json").write_text("{}")
    strip_folder(whole, out)
    assert sorted(p.name for p in out.iterdir()) == ["genai_config.json", "model.onnx", "model.onnx.data.stripped"]
    assert (out / "model.onnx.data.stripped").stat().st_size < (whole / "model.onnx.data").stat().st_size
    monkeypatch.setattr("sys.argv", ["refill.py", str(out.parent)])
    refilling.main()
    assert sorted(p.name for p in out.iterdir()) == ["genai_config.json", "model.onnx", "model.onnx.data"]
    before, after = read(whole / "model.onnx"), read(out / "model.onnx")
    assert np.std(after["large"]) == pytest.approx(np.std(before["large"]), rel=0.05)
    assert not np.array_equal(after.pop("large"), before.pop("large"))
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array, err_msg=name)
