"""Take the large random weights out of models, so that they are small to copy; bench/refill.py puts others in.

    python bench/strip.py MODEL.onnx... --out FOLDER

writes NAME.stripped (see refill.py) and copies NAME.json. What is taken out: initializers of float32 or of 8-bit
integers, of two or more dimensions, 2,048 or more elements, finite and not all the same. Their mean and deviation are
kept (of float32 the root mean square), so that activations have the size they had.

A folder instead of a model is one whose model.onnx has its weights in model.onnx.data, as bench/decoders.py writes it:
FOLDER/NAME gets model.onnx.data.stripped, and everything else as it is.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyruntime.ir import DType
from pyruntime.onnx.formats.external import ExternalFiles
from pyruntime.onnx.reader import read_model

SMALLEST = 2048
EXTERNAL = "model.onnx.data"
"""The file with a model's external data, in the model's folder."""

Hole = tuple[int, int, int, float] | tuple[int, int, int, float, str, float]
"""Offset and length in the file, seed, scale; of integers their type and mean, too."""

_TYPES = {DType.FLOAT: "<f4", DType.INT8: "i1", DType.UINT8: "u1"}


def holes(data: memoryview, smallest: int = SMALLEST, external: memoryview | None = None) -> list[Hole]:
    """What `refill` will fill, ascending: weights of at least `smallest` elements.

    Args:
        data: the model.
        external: its file of external data; the holes are those of that file then.
    """
    graph = read_model(data).graph
    assert graph is not None
    data = data if external is None else external
    files = ExternalFiles({EXTERNAL: data})
    found: list[Hole] = []
    for record in graph.initializer:
        if record.is_external != (external is not None) or record.dtype not in _TYPES or len(record.dims) < 2:
            continue
        if math.prod(record.dims) < smallest or not (record.is_external or record.raw):
            continue
        span = record.raw_span(files)
        assert span is not None
        offset, length = span.offset, span.length
        kind = _TYPES[record.dtype]
        values = np.frombuffer(data[offset : offset + length], kind)
        if not np.isfinite(values).all() or values.min() == values.max():
            continue
        seed = zlib.crc32(record.name.encode())
        if record.dtype is DType.FLOAT:
            scale = float(np.sqrt(np.square(values, dtype=np.float64).mean()))
            found.append((offset, length, seed, scale))
        else:
            deviation, mean = float(values.std(dtype=np.float64)), float(values.mean(dtype=np.float64))
            found.append((offset, length, seed, deviation, kind, mean))
    return sorted(found)


def strip(model: Path, stripped: Path) -> None:
    """Write `stripped` from `model`."""
    data = memoryview(model.read_bytes())
    _write(stripped, data, holes(data))


def strip_folder(folder: Path, out: Path) -> None:
    """Write the folder `out` from one with model.onnx and model.onnx.data."""
    weights = folder / EXTERNAL
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns(weights.name))
    data = memoryview(weights.read_bytes())
    model = memoryview((folder / "model.onnx").read_bytes())
    _write(out / f"{weights.name}.stripped", data, holes(model, external=data))


def _write(stripped: Path, data: memoryview, found: list[Hole]) -> None:
    with gzip.open(stripped, "wb", compresslevel=6) as out:
        out.write(json.dumps({"size": len(data), "holes": found}).encode() + b"\n")
        position = 0
        for offset, length, *_ in found:
            out.write(data[position:offset])
            position = offset + length
        out.write(data[position:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for model in args.models:
        if model.is_dir():
            strip_folder(model, args.out / model.name)
            print(f"{model.name}/", flush=True)
            continue
        stripped = args.out / f"{model.stem}.stripped"
        strip(model, stripped)
        shutil.copyfile(model.with_suffix(".json"), stripped.with_suffix(".json"))
        print(f"{model.name}: {model.stat().st_size:,} -> {stripped.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
