"""Take the large random weights out of models, so that they can travel; bench/refill.py puts others in.

    python bench/strip.py MODEL.onnx... --out FOLDER

writes NAME.stripped (see refill.py) and copies NAME.json. What is taken out: initializers of float32 or of 8-bit
integers, of two or more dimensions, 2,048 or more elements, finite and not all the same. Their mean and deviation are
kept (of float32 the root mean square), so that activations have the size they had.
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
from pyruntime.onnx.reader import read_model

SMALLEST = 2048

Hole = tuple[int, int, int, float] | tuple[int, int, int, float, str, float]
"""Offset and length in the file, seed, scale; of integers their type and mean, too."""

_TYPES = {DType.FLOAT: "<f4", DType.INT8: "i1", DType.UINT8: "u1"}


def holes(data: memoryview, smallest: int = SMALLEST) -> list[Hole]:
    """What `refill` will fill, ascending: weights of at least `smallest` elements."""
    graph = read_model(data).graph
    assert graph is not None
    found: list[Hole] = []
    for record in graph.initializer:
        if record.raw is None or record.is_external or record.dtype not in _TYPES or len(record.dims) < 2:
            continue
        offset, length = record.raw
        if math.prod(record.dims) < smallest:
            continue
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
    found = holes(data)
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
        stripped = args.out / f"{model.stem}.stripped"
        strip(model, stripped)
        shutil.copyfile(model.with_suffix(".json"), stripped.with_suffix(".json"))
        print(f"{model.name}: {model.stat().st_size:,} -> {stripped.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
