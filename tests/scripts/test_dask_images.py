"""examples/dask_images.py: a folder of images over a Dask cluster, one session a worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from tests.desktop import on_desktop
from tools.digits_data import from_counts, load_split

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "digits.onnx"
COUNT = 24


def test_folder_of_digits__two_workers__classes_are_those_of_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.round(from_counts(load_split().heldout_counts[:COUNT]) * 255).astype(np.uint8)
    for number, image in enumerate(images):
        Image.fromarray(image[0]).save(tmp_path / f"{number:03}.png")
    (tmp_path / "readme.txt").write_text("no image")
    session = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    scores = session.run(None, {"image": images.astype(np.float32) / 255})[0]
    expected = [f"{number:03}.png {int(best)}" for number, best in enumerate(scores.argmax(1))]
    with on_desktop():
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        command = [sys.executable, str(ROOT / "examples" / "dask_images.py"), str(MODEL), str(tmp_path)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert ran.stdout.splitlines() == expected
    assert "CPUExecutionProvider" not in ran.stderr  # what is logged where a session has no GPU
