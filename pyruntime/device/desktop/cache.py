"""Cached files that processes share, in the folder that `PYRUNTIME_CACHE` names; without it nothing is stored."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pyruntime.errors import InvalidArgument

__all__ = ["VARIABLE", "load", "store"]

VARIABLE = "PYRUNTIME_CACHE"


def _path(*names: str) -> Path | None:
    folder = os.environ.get(VARIABLE)
    return Path(folder, *names) if folder else None


def load(*names: str) -> bytes | None:
    """Return the contents of a cached file; None where there is none.

    Raises:
        InvalidArgument: the file cannot be read.
    """
    path = _path(*names)
    if path is None:
        return None
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidArgument(f"{VARIABLE}: cannot read {path}: {error}") from None


def store(data: bytes, *names: str) -> None:
    """Write a cached file atomically: other processes read either the old contents or the new.

    Raises:
        InvalidArgument: the folder cannot be written.
    """
    path = _path(*names)
    if path is None:
        return
    made: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(made, path)
    except OSError as error:
        if made is not None:
            with suppress(OSError):
                os.unlink(made)
        raise InvalidArgument(f"{VARIABLE}: cannot write {path}: {error}") from None
