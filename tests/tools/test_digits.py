"""The digits model and its data, with onnxruntime's CPU as the judge."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from tools.digit_strokes import random_digit
from tools.digits_data import SIZE, Floats, from_counts, load_split, rasterize, write_heldout

MODEL = Path(__file__).parents[2] / "models" / "digits.onnx"


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])


def predict(session: onnxruntime.InferenceSession, images: Floats) -> Floats:
    (probabilities,) = session.run(None, {"image": images})
    return np.asarray(probabilities, np.float32)


def test_model__held_out_images__98_percent_right(session: onnxruntime.InferenceSession) -> None:
    split = load_split()
    probabilities = predict(session, from_counts(split.heldout_counts))
    assert (probabilities.argmax(1) == split.heldout_labels).mean() >= 0.98
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)


def test_model__drawings_with_other_pens__95_percent_right(session: onnxruntime.InferenceSession) -> None:
    rng = np.random.default_rng(1234)
    labels = np.repeat(np.arange(10), 30)
    for radius in (1.1, 1.5, 2.0):
        images = np.stack([rasterize(random_digit(int(digit), rng), radius) for digit in labels])
        assert (predict(session, images).argmax(1) == labels).mean() >= 0.95, f"pen radius {radius}"


def test_model__file__is_small_and_describes_itself() -> None:
    assert MODEL.stat().st_size < 300_000
    model = onnx.load(MODEL)
    onnx.checker.check_model(model, full_check=True)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(properties["labels"]) == [str(digit) for digit in range(10)]
    assert str(SIZE) in properties["preprocessing"]
    (image,) = model.graph.input
    shape = [dim.dim_param or dim.dim_value for dim in image.type.tensor_type.shape.dim]
    assert shape == ["N", 1, SIZE, SIZE]


def test_split__every_time__is_the_same_and_apart() -> None:
    first, second = load_split(), load_split()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(first.train_labels) + len(first.heldout_labels) == 1797
    train = {image.tobytes() for image in first.train_counts}
    assert not any(image.tobytes() in train for image in first.heldout_counts)


def test_from_counts__linear_ramp__stays_linear_between_centres() -> None:
    ramp = np.broadcast_to(np.arange(0, 16, 2, dtype=np.uint8), (1, 8, 8))
    row = from_counts(ramp)[0, 0, 5]
    np.testing.assert_array_equal(row[1:-1], (np.arange(1, 15) - 0.5) / 16)
    assert (row[0], row[-1]) == (0, 14 / 16)


def test_rasterize__moved_and_scaled_drawing__same_image() -> None:
    stroke = np.array([(0.2, 0.1), (0.6, 0.3), (0.4, 0.9)])
    np.testing.assert_allclose(rasterize([stroke]), rasterize([stroke * 0.5 + 0.3]), atol=1e-6)


def test_rasterize__vertical_line__is_a_bar_as_wide_as_the_pen() -> None:
    image = rasterize([[(0.5, 0.1), (0.5, 0.9)]])[0]
    np.testing.assert_array_equal(image[8], np.clip(2 - np.abs(np.arange(SIZE) + 0.5 - 8), 0, 1))
    assert image[0, 7] > 0
    assert image[:, :6].sum() == image[:, 10:].sum() == 0


def test_rasterize__tap__stays_a_dot() -> None:
    image = rasterize([[(0.3, 0.7)]])[0]
    assert 0 < image.sum() < 12
    assert rasterize([]).sum() == rasterize([[]]).sum() == 0


def test_write_heldout__files__hold_the_held_out_part(tmp_path: Path) -> None:
    write_heldout(tmp_path)
    about = json.loads((tmp_path / "digits_heldout.json").read_text())
    counts = np.frombuffer((tmp_path / "digits_heldout.bin").read_bytes(), np.uint8)
    split = load_split()
    assert about["labels"] == split.heldout_labels.tolist()
    np.testing.assert_array_equal(counts.reshape(about["count"], *about["shape"]), split.heldout_counts)
