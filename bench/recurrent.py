"""A recurrent language model's layers as exporters write them: 24 Scans of the gated delta rule, with random weights.

    python bench/recurrent.py OUT [--tiny]

writes `gated_delta.onnx` (1.6 GB) to the folder OUT. Its input is x, float32 [length, 2048]; 252 positions are usual.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.loop_models import gated_delta


def main(folder: str, *options: str) -> None:
    sizes = (2, 64, 2, 32) if "--tiny" in options else (24, 2048, 16, 128)
    path = Path(folder) / "gated_delta.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gated_delta(*sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])
