"""A model's bytes from what the user gave: path, URL, bytes, JavaScript buffer or Blob, ModelProto."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from pyruntime.errors import NoModel, NoSuchFile, WrongType
from pyruntime.onnx.source import ByteSource, MemorySource, open_file
from pyruntime.session.environment import in_browser
from pyruntime.session.log import logger

__all__ = ["Phase", "Progress", "model_source", "source_of"]

Progress = Callable[[dict[str, Any]], None]


async def model_source(model: Any, progress: Progress) -> tuple[ByteSource, str | None]:
    """The model's bytes, and the path beside which its external data may be (None: nowhere).

    Raises:
        NoSuchFile: the path or URL is not there. NoModel: nothing was given. WrongType: not a model.
    """
    if model is None or (isinstance(model, str | bytes) and not model):
        raise NoModel("there is no model: give a path, a URL, bytes or an onnx.ModelProto")
    if isinstance(model, str | os.PathLike):
        text = os.fspath(model)
        if isinstance(text, str) and not os.path.exists(text) and (in_browser or "://" in text):
            return await _fetch(text, progress), None
        if not os.path.exists(text):
            raise NoSuchFile(f"Load model from {text!r} failed: the file does not exist")
        return open_file(text), os.path.abspath(str(text))
    return source_of(model), None


def source_of(model: Any) -> ByteSource:
    """A source over bytes-like objects, JavaScript buffers and objects with `SerializeToString`.

    Raises:
        WrongType (a TypeError): anything else.
    """
    if isinstance(model, ByteSource):
        return model
    if isinstance(model, bytes | bytearray | memoryview):
        return MemorySource(model)
    if hasattr(model, "SerializeToString"):
        return MemorySource(model.SerializeToString())
    if in_browser:
        from pyruntime.device.pyodide import read_bytes

        source = read_bytes(model)
        if source is not None:
            return source
    raise WrongType(
        f"expected a path, a URL, bytes, an ArrayBuffer or an onnx.ModelProto as model, got {type(model).__name__}"
    )


async def _fetch(url: str, progress: Progress) -> ByteSource:
    if not in_browser:
        raise NoSuchFile(f"Load model from {url!r} failed: under CPython models are read from files; download it first")
    from pyruntime.device.pyodide import fetch_bytes

    return await fetch_bytes(
        url, lambda loaded, total: progress({"phase": "model", "status": "progress", "loaded": loaded, "total": total})
    )


class Phase:
    """Reports begin and end of a phase, and keeps its time in ms."""

    def __init__(self, name: str, progress: Progress, timings: dict[str, float]) -> None:
        self.name, self.progress, self.timings = name, progress, timings

    def __enter__(self) -> None:
        self.began = time.perf_counter()
        self.progress({"phase": self.name, "status": "begin"})

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        ms = (time.perf_counter() - self.began) * 1000
        self.timings[f"{self.name}_ms"] = ms
        logger.info("%s: %.1f ms", self.name, ms)
        if kind is None:
            self.progress({"phase": self.name, "status": "end", "ms": ms})
