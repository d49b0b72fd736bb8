"""The folder of a model repository as transformers.js reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["Json", "labels", "write_repository"]

Json = dict[str, Any]


def write_repository(folder: Path, files: dict[str, Json], models: dict[str, bytes]) -> None:
    """Write `files` as NAME.json and `models` as onnx/NAME.onnx."""
    (folder / "onnx").mkdir(parents=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    for name, model in models.items():
        (folder / "onnx" / f"{name}.onnx").write_bytes(model)


def labels(names: list[str]) -> Json:
    """What a configuration says of the names of classes."""
    return {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}
