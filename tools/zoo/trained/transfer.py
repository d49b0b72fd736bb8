"""Values of a case as one NumPy archive (.npz), transferred between this machine and the browser.

The browser runs this file's source, so it imports only NumPy and the standard library.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

__all__ = ["packed", "plain", "unpacked"]


def plain(value: Any) -> np.ndarray[Any, Any]:
    """Return an output as an array; of a sequence of maps, their values in the order of their keys."""
    if isinstance(value, dict):
        return np.array([value[key] for key in sorted(value)])
    if isinstance(value, list | tuple):
        return np.stack([plain(entry) for entry in value]) if len(value) else np.zeros(0, np.float32)
    return np.asarray(value)


def packed(runs: Sequence[Sequence[Mapping[str, Any]]]) -> bytes:
    """Return an archive of the values of each step of each run, by name."""
    arrays: dict[str, Any] = {"steps": [len(run) for run in runs]}
    for r, run in enumerate(runs):
        for s, step in enumerate(run):
            arrays |= {f"{r}/{s}/{name}": plain(value) for name, value in step.items()}
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def unpacked(file: IO[bytes]) -> list[list[dict[str, np.ndarray[Any, Any]]]]:
    """Return the values in an archive of `packed`, as arrays.

    Raises:
        ValueError: an array holds Python objects.
    """
    with np.load(file) as arrays:
        runs: list[list[dict[str, Any]]] = [[{} for _ in range(count)] for count in arrays["steps"]]
        for key in arrays.files:
            if key != "steps":
                run, step, name = key.split("/", 2)
                runs[int(run)][int(step)][name] = arrays[key]
    return runs
