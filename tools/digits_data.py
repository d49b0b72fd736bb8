"""The digits model's input, for training, tests, the demo and pages (`web/ui/draw/raster.js`).

A model input is float32 `[N, 1, 16, 16]`: ink in [0, 1], 0 is paper, the digit centered and its longer side filling the
image. There are two ways to compute one:

* **from scikit-learn's digits** (`from_counts`): 8x8 counts 0..16, divided by 16 and enlarged twice by bilinear
  interpolation between pixel centers, edges clamped;
* **from pen strokes** (`rasterize`): the bounding box of the pen's path is scaled, keeping its aspect, until its longer
  side spans `SIZE - 2 * PEN_RADIUS` pixels, and centered; a pixel whose center is `d` pixels from the path has ink
  `clamp(PEN_RADIUS + 0.5 - d, 0, 1)`.

    python -m tools.digits_data DIRECTORY     # writes digits_heldout.json and digits_heldout.bin there
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

SIZE = 16
"""Side of a model input in pixels."""

PEN_RADIUS = 1.5
"""Half the width of a stroke in a model input, in pixels."""

MINIMUM_EXTENT = 0.15
"""A path smaller than this part of the drawing area is not enlarged to fill the image: a dot stays a dot."""

HELDOUT_PART = 0.2
SPLIT_SEED = 0

Floats: TypeAlias = npt.NDArray[np.float32]
Stroke: TypeAlias = Sequence[tuple[float, float]] | npt.NDArray[np.float64]


class Split(NamedTuple):
    """Counts are uint8 `[N, 8, 8]` in 0..16, labels int64 `[N]`."""

    train_counts: npt.NDArray[np.uint8]
    train_labels: npt.NDArray[np.int64]
    heldout_counts: npt.NDArray[np.uint8]
    heldout_labels: npt.NDArray[np.int64]


def load_split() -> Split:
    """Split scikit-learn's 1,797 digits into 1,437 for training and 360 held out: stratified and deterministic."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    train, heldout, train_labels, heldout_labels = train_test_split(
        digits.images.astype(np.uint8),
        digits.target.astype(np.int64),
        test_size=HELDOUT_PART,
        random_state=SPLIT_SEED,
        stratify=digits.target,
    )
    return Split(train, train_labels, heldout, heldout_labels)


def from_counts(counts: npt.NDArray[np.uint8]) -> Floats:
    """Convert counts `[N, 8, 8]` in 0..16 to model inputs `[N, 1, 16, 16]`; exact, as values are multiples of 1/256."""
    ink = counts.astype(np.float32) / 16
    for axis in (1, 2):
        side = ink.shape[axis]
        centre = (np.arange(2 * side) + 0.5) / 2 - 0.5
        low = np.floor(centre)
        weight = (centre - low).astype(np.float32)
        weight = weight[:, None] if axis == 1 else weight
        first = ink.take(np.clip(low, 0, side - 1).astype(int), axis)
        second = ink.take(np.clip(low + 1, 0, side - 1).astype(int), axis)
        ink = first * (1 - weight) + second * weight
    return ink[:, None].astype(np.float32, copy=False)


def rasterize(strokes: Sequence[Stroke], pen_radius: float = PEN_RADIUS) -> Floats:
    """Convert pen strokes, points in [0, 1] with y down, to one model input `[1, 16, 16]`; no points give no ink."""
    paths = [np.asarray(stroke, dtype=np.float64).reshape(-1, 2) for stroke in strokes if len(stroke)]
    if not paths:
        return np.zeros((1, SIZE, SIZE), np.float32)
    low = np.min([path.min(0) for path in paths], 0)
    high = np.max([path.max(0) for path in paths], 0)
    scale = (SIZE - 2 * pen_radius) / max(MINIMUM_EXTENT, *(high - low))
    paths = [(path - (low + high) / 2) * scale for path in paths]
    start = np.concatenate([path[:-1] if len(path) > 1 else path for path in paths])
    end = np.concatenate([path[1:] if len(path) > 1 else path for path in paths])
    along = end - start
    pixel = np.arange(SIZE) + 0.5 - SIZE / 2
    grid = np.stack(np.meshgrid(pixel, pixel), -1).reshape(-1, 1, 2)
    length2 = np.maximum((along**2).sum(-1), 1e-12)
    t = np.clip(((grid - start) * along).sum(-1) / length2, 0, 1)
    distance = np.linalg.norm(grid - start - t[..., None] * along, axis=-1).min(1)
    ink: Floats = np.clip(pen_radius + 0.5 - distance, 0, 1).astype(np.float32)
    return ink.reshape(1, SIZE, SIZE)


def write_heldout(directory: Path) -> None:
    """Writes the held-out images for the page: `digits_heldout.bin` (uint8 counts, `[N, 8, 8]` in row-major order) and
    `digits_heldout.json` (`count`, `shape`, `maximum`, `labels`)."""
    split = load_split()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "digits_heldout.bin").write_bytes(np.ascontiguousarray(split.heldout_counts).tobytes())
    about = {
        "source": "scikit-learn load_digits (UCI Optical Recognition of Handwritten Digits), held-out part",
        "count": len(split.heldout_labels),
        "shape": [8, 8],
        "maximum": 16,
        "labels": split.heldout_labels.tolist(),
    }
    (directory / "digits_heldout.json").write_text(json.dumps(about) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_heldout(Path(sys.argv[1]))
