#!/usr/bin/env python3
"""Restore the weights of a packed benchmark: NAME.stripped becomes NAME.onnx, with the size and layout of the
original, and NAME.data.stripped becomes NAME.data.

    python3 refill.py FOLDER [--keep]

needs Python 3.11+ and NumPy alone, and works through all folders below. NAME.packed is a gzip of NAME. A stripped model
is a gzip file: one line of JSON, `{"size": bytes of the model, "holes": [[offset, length, seed, scale], ...]}`, then
every byte that is not in a hole. A hole was the raw_data of a float32 weight; it is filled with scale · N(0, 1) from
`numpy.random.default_rng(seed)`, so every machine gets the same bytes. A hole of integers
also has their type and mean: it is filled with round(mean + scale · N(0, 1)), clipped to the type.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
from pathlib import Path

import numpy as np


def refill(stripped: Path, model: Path) -> None:
    """Write `model` from `stripped`.

    Raises:
        ValueError: the parts do not make up the size that the file states.
    """
    with gzip.open(stripped) as source, model.open("wb") as out:
        header = json.loads(source.readline())
        for offset, length, seed, scale, *integers in header["holes"]:
            kind, mean = integers or ("<f4", 0.0)
            out.write(source.read(offset - out.tell()))
            weights = np.random.default_rng(seed).standard_normal(length // np.dtype(kind).itemsize, np.float32)
            weights *= np.float32(scale)
            if integers:
                ends = np.iinfo(kind)
                weights = np.clip(np.rint(weights + np.float32(mean)), ends.min, ends.max)
            out.write(weights.astype(kind, copy=False).data)
        out.write(source.read())
        size = out.tell()
    if size != header["size"]:
        raise ValueError(f"{stripped} makes {size} bytes, not {header['size']}: the file is damaged")


def unpack(packed: Path, file: Path) -> None:
    """Write `file` from the gzip `packed`."""
    with gzip.open(packed) as source, file.open("wb") as out:
        shutil.copyfileobj(source, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="leave the stripped files")
    args = parser.parse_args()
    kinds = (("*.packed", "", unpack), ("*.data.stripped", "", refill), ("*.stripped", ".onnx", refill))
    for pattern, ending, make in kinds:
        for short in sorted(args.folder.rglob(pattern)):
            whole = short.with_suffix(ending)
            make(short, whole)
            print(f"{whole.name} {whole.stat().st_size}", flush=True)
            if not args.keep:
                short.unlink()


if __name__ == "__main__":
    main()
