"""The committed part of the zoo, which needs no torch: python -m tools.zoo.sample writes tests/zoo/sample/.

NAME.stripped has the format of bench/refill.py, with an additional header key "feeds": for each run the inputs,
integers by value, others by shape and seed. So a graph is an exporter's output, with random weights.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.refill import refill
from bench.strip import holes
from tools.zoo.check import Feeds, inputs_of
from tools.zoo.definitions import CACHE

__all__ = ["FOLDER", "MODELS", "load", "names"]

FOLDER = Path(__file__).parents[2] / "tests" / "zoo" / "sample"
MODELS = (
    "transformers/bert",
    "transformers/llama_lm",
    "transformers/gpt2_lm",
    "transformers/glm4",
    "transformers/diffllama",
    "transformers/seamless_m4t_text",
    "transformers/umt5",
    "transformers/vit",
    "transformers/swin",
    "transformers/videomae",
    "transformers/rt_detr",
    "transformers/clip",
    "transformers/wav2vec2_ctc",
    "transformers/whisper",
    "timm/mambaout",
    "timm/vision_transformer_relpos",
    "diffusers/AutoencoderKL",
    "diffusers/DiTTransformer2DModel",
)
SMALLEST = 64
"""Elements of a weight that is left out."""


def names() -> list[str]:
    """Return the names of the committed models."""
    return sorted(path.stem for path in FOLDER.glob("*.stripped"))


def load(name: str) -> tuple[bytes, list[Feeds]]:
    """Return a model's bytes and the inputs of its runs."""
    path = FOLDER / f"{name}.stripped"
    with gzip.open(path) as source:
        header = json.loads(source.readline())
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "model.onnx"
        refill(path, whole)
        model = whole.read_bytes()
    return model, [{n: _made(told) for n, told in run.items()} for run in header["feeds"]]


def _made(told: dict[str, Any]) -> np.ndarray[Any, Any]:
    if "values" in told:
        return np.array(told["values"], told["dtype"]).reshape(told["shape"])
    made: np.ndarray[Any, Any] = (
        np.random.default_rng(told["seed"]).standard_normal(told["shape"]).astype(told["dtype"])
    )
    return made


def plain(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove exporters' metadata: stack traces with paths of the machine, documentation."""
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        graphs += [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
        for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
            del part.metadata_props[:]
            part.doc_string = ""
    for part in (model, *model.functions, *(n for f in model.functions for n in f.node)):
        del part.metadata_props[:]
        part.doc_string = ""
    return model


def write(name: str) -> Path:
    """Write the stripped form of an exported model."""
    model = CACHE / f"{name}.onnx"
    data = memoryview(plain(onnx.load(model)).SerializeToString())
    feeds = []
    for number, run in enumerate(inputs_of(model.with_suffix(".npz"))):
        told: dict[str, Any] = {}
        for key, x in run.items():
            told[key] = {"dtype": str(x.dtype), "shape": list(x.shape)}
            told[key] |= (
                {"seed": zlib.crc32(key.encode()) + number} if x.dtype.kind == "f" else {"values": x.ravel().tolist()}
            )
        feeds.append(told)
    found = holes(data, SMALLEST)
    stripped = FOLDER / f"{name.replace('/', '-')}.stripped"
    parts, position = [json.dumps({"size": len(data), "holes": found, "feeds": feeds}).encode() + b"\n"], 0
    for offset, length, *_ in found:
        parts.append(bytes(data[position:offset]))
        position = offset + length
    parts.append(bytes(data[position:]))
    FOLDER.mkdir(parents=True, exist_ok=True)
    stripped.write_bytes(gzip.compress(b"".join(parts), 9, mtime=0))
    return stripped


def main() -> None:
    for name in sys.argv[1:] or MODELS:
        path = write(name)
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
