"""A model's bytes from what the user gave: path, URL, bytes, JavaScript buffer or Blob, ModelProto."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pyruntime.errors import NoModel, NoSuchFile, OrtError, WrongType
from pyruntime.onnx.formats.external import plain_location, relative_address
from pyruntime.onnx.formats.source import ArrivingSource, Awaited, ByteSource, MemorySource, open_file
from pyruntime.onnx.importer.extents import extents, looked_at
from pyruntime.onnx.records import ModelRecord
from pyruntime.session.environment import in_browser
from pyruntime.session.log import logger

__all__ = ["Fetched", "Phase", "Progress", "arrived", "external_files", "model_source", "source_of", "when_there"]

Progress = Callable[[dict[str, Any]], None]
RelativeFetch: TypeAlias = Callable[[str], Awaitable[Any]]
"""Fetches the file at an address relative to the model's: anything that `source_of` takes."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model whose bytes came from an address.

    Attributes:
        data: anything that `source_of` takes.
        fetch_relative: fetches files at addresses relative to it; None where there are none.
    """

    data: Any
    fetch_relative: RelativeFetch | None


async def model_source(model: Any, progress: Progress) -> tuple[ByteSource, str | None, RelativeFetch | None]:
    """Open a model: its bytes, its path or None, and what fetches external data relative to its URL, or None.

    Raises:
        NoSuchFile: the path or URL is not there. NoModel: nothing was given. WrongType: not a model.
    """
    if model is None or (isinstance(model, str | bytes) and not model):
        raise NoModel("there is no model: give a path, a URL, bytes or an onnx.ModelProto")
    if isinstance(model, str | os.PathLike):
        text = os.fspath(model)
        if isinstance(text, str) and not os.path.exists(text) and (in_browser or "://" in text):
            return await _fetch(text, progress), None, _relative_fetch(text, progress)
        if not os.path.exists(text):
            raise NoSuchFile(f"Load model from {text!r} failed: the file does not exist")
        return open_file(text), os.path.abspath(str(text)), None
    if isinstance(model, Fetched):
        return source_of(model.data), None, model.fetch_relative
    return source_of(model), None, None


async def external_files(
    model: ModelRecord, given: Mapping[str, Any], fetch_relative: RelativeFetch | None
) -> dict[str, ByteSource]:
    """Open the model's external data files, by name: those `given`, and from `fetch_relative` those that are not.

    Each is as long as the model says, or complete; those that still arrive know what planning may look at.

    Raises:
        NoSuchFile: one is not there. Fail: it is named by a path that leaves the model's folder, or did not arrive.
    """
    files = {plain_location(name): source_of(data) for name, data in given.items()}
    needed = extents(model)
    if fetch_relative is not None:
        missing = [name for name in needed if name not in files]
        addresses = [relative_address(name) for name in missing]
        pairs = zip(missing, addresses, strict=True)
        fetched = await asyncio.gather(*(_fetch_external(fetch_relative, *pair) for pair in pairs))
        files |= zip(missing, fetched, strict=True)
    for name, end in needed.items():
        source = files.get(name)
        if isinstance(source, ArrivingSource) and source.size < end:
            await source.complete()
    if any(isinstance(source, ArrivingSource) for source in files.values()):
        for name, ranges in looked_at(model).items():
            source = files.get(name)
            if isinstance(source, ArrivingSource):
                source.looked_at = ranges
    return files


async def _fetch_external(fetch_relative: RelativeFetch, name: str, address: str) -> ByteSource:
    try:
        return source_of(await fetch_relative(address))
    except Exception as error:  # boundary: a call of the page
        if isinstance(error, OrtError) and not isinstance(error, NoSuchFile):
            raise
        text = getattr(error, "message", None) or str(error)
        raise NoSuchFile(
            f"the model keeps weights in {name!r}, which was not given and could not be fetched relative to it: {text}"
        ) from error


async def when_there(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work`, again where it read bytes that had not arrived.

    First all that planning may look at is read ahead of the rest, where the source can do that. Else, or where that was
    not all, it is done again twice for a source, at most.
    """
    seen: set[int] = set()
    while True:
        try:
            return await work()
        except Awaited as early:
            if await early.ahead():
                continue
            await (early.source.complete() if id(early.source) in seen else early.over())
            seen.add(id(early.source))


async def arrived(files: Iterable[ByteSource]) -> None:
    """Wait until all bytes are there. Raises Fail: some do not come."""
    for source in files:
        if isinstance(source, ArrivingSource):
            await source.complete()


def source_of(model: Any) -> ByteSource:
    """Wrap bytes-like objects, JavaScript buffers and objects with `SerializeToString` as a source.

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
        from pyruntime.device.webgpu.pyodide import read_bytes

        source = read_bytes(model)
        if source is not None:
            return source
    raise WrongType(
        f"expected a path, a URL, bytes, an ArrayBuffer or an onnx.ModelProto as model, got {type(model).__name__}"
    )


async def _fetch(url: str, progress: Progress) -> ByteSource:
    if not in_browser:
        raise NoSuchFile(f"Load model from {url!r} failed: under CPython models are read from files; download it first")
    from pyruntime.device.webgpu.pyodide import fetch_bytes

    return await fetch_bytes(
        url, lambda loaded, total: progress({"phase": "model", "status": "progress", "loaded": loaded, "total": total})
    )


def _relative_fetch(url: str, progress: Progress) -> RelativeFetch | None:
    """What fetches files at addresses relative to `url`; None where it has no folder."""
    if re.match(r"(blob|data):", url):
        return None
    folder = re.split(r"[?#]", url)[0].rpartition("/")[:2]

    async def fetch(address: str) -> ByteSource:
        return await _fetch("".join(folder) + address, progress)

    return fetch


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
