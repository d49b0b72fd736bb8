"""Run treated models in Chromium: python -m tools.zoo.treated_browser [NAME ...].

The files that `tools.zoo.treated --keep` wrote for these models (default: all) run on the GPU and are compared with
NumPy's outputs, which were compared with onnxruntime: floats relative to the largest value, and models with rounded or
float16 activations by `compare.apart`. The site must have been built (`dev.py build`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.zoo.browser import RUN, browser_python
from tools.zoo.compare import HALF, apart, complaint
from tools.zoo.definitions import CACHE

__all__ = ["main"]

FOLDER = CACHE / "treated"


def kept(names: Sequence[str]) -> Iterator[Path]:
    """Yield the kept files without external data, since models are sent as bytes."""
    for path in sorted(FOLDER.glob("*/*/*.onnx")):
        if path.stem.startswith("external"):
            continue
        if path.with_suffix(".npz").is_file() and (not names or path.parent.name in names):
            yield path


def values(npz: Path) -> Iterator[tuple[dict[str, Any], list[Any], list[Any]]]:
    """Yield feeds, outputs, and outputs of the float32 model for each run."""
    with np.load(npz) as arrays:
        for run in range(1 + max(int(key.split("/")[0]) for key in arrays.files)):
            keys = [key for key in arrays.files if key.startswith(f"{run}/")]
            feeds = {key.split("/", 2)[2]: arrays[key] for key in keys if key.split("/")[1] == "in"}
            out, plain = ([arrays[k] for k in sorted(keys) if k.split("/")[1] == kind] for kind in ("out", "plain"))
            yield feeds, out, plain


def differs(got: list[Any], wanted: list[Any], plain: list[Any]) -> str:
    """Describe how outputs differ, or return ''."""
    names = [str(i) for i in range(len(wanted))]
    told = complaint(got, wanted, names)
    if not told or all(np.array_equal(x, y) for x, y in zip(wanted, plain, strict=True)):
        return told
    return apart(got, [wanted], plain, names, HALF)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=())
    args = parser.parse_args()
    wrong = 0
    with browser_python() as in_browser:
        for path in kept(args.names):
            runs = list(values(path.with_suffix(".npz")))
            try:
                fed = [feeds for feeds, _, _ in runs]
                outputs, same, host, dispatches, _ = in_browser(RUN, model=path.read_bytes(), fed=fed, gpu=False)
                told = "" if all(same) else "a second run gives other bits"
                for mine, (_, wanted, plain) in zip(outputs, runs, strict=True):
                    told = told or differs(mine, wanted, plain)
            except Exception as error:  # boundary: reported in the table
                told, host, dispatches = str(error).strip().splitlines()[-1][:600], {}, 0
            wrong += bool(told)
            path.with_suffix(".browser.json").write_text(json.dumps({"browser": told}))
            state = f"WRONG {told}" if told else f"agrees, {dispatches} dispatches, host {host}"
            print(f"{path.parent.parent.name}/{path.parent.name} {path.stem}: {state}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
