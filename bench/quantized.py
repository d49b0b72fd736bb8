"""Eight-bit forms of models that `bench/models.py` wrote, made by onnxruntime.

    python bench/quantized.py MODELS OUT

reads minilm, resnet50 and whisper_enc in MODELS and writes NAME_q8.onnx and NAME_q8.json below OUT: MiniLM and
Whisper's encoder by dynamic quantisation, ResNet-50 with quantised activations (QDQ, both signed, calibrated on random
images). Runs in the environment of bench/requirements.txt.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

DYNAMIC = ("minilm", "whisper_enc")
STATIC = ("resnet50",)
IMAGES = 4


class RandomInputs(CalibrationDataReader):  # type: ignore[misc]
    """A few inputs from normal distributions, as the benchmark feeds: `inputs` are those of NAME.json."""

    def __init__(self, inputs: dict[str, dict[str, Any]]) -> None:
        draw = np.random.default_rng(0).standard_normal
        shapes = {name: entry["shape"] for name, entry in inputs.items()}
        self._feeds: Iterator[dict[str, np.ndarray]] = iter(
            [{name: draw(shape, np.float32) for name, shape in shapes.items()} for _ in range(IMAGES)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next feed; None at the end, as onnxruntime asks for."""
        return next(self._feeds, None)


def quantize(source: Path, target: Path) -> None:
    """Write `target` and its description from the model `source`."""
    described = source.with_suffix(".json")
    if source.stem in DYNAMIC:
        quantize_dynamic(source, target, weight_type=QuantType.QInt8)
    else:
        kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
        feeds = RandomInputs(json.loads(described.read_text())["inputs"])
        quantize_static(source, target, feeds, quant_format=QuantFormat.QDQ, **kinds)
    shutil.copyfile(described, target.with_suffix(".json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in (*DYNAMIC, *STATIC):
        target = args.out / f"{name}_q8.onnx"
        quantize(args.models / f"{name}.onnx", target)
        print(target.name, target.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
