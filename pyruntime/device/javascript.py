"""Bytes that stay in JavaScript: models, tensors, what comes back from the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import js
from pyodide.ffi import JsException, to_js

from pyruntime.errors import Fail, NoSuchFile
from pyruntime.onnx.source import ByteSource

__all__ = ["JsBlob", "JsBytes", "JsException", "JsObject", "fetch_bytes", "js_object", "read_bytes"]

JsObject: TypeAlias = Any

_BIG = 32 << 20
"""Bytes from which on a file stays a Blob where Python is in a worker."""


class JsBytes(ByteSource):
    """Bytes of a JavaScript ArrayBuffer, outside the WebAssembly heap: parts are copied into Python when read."""

    def __init__(self, buffer: JsObject, offset: int = 0, size: int | None = None) -> None:
        super().__init__(int(buffer.byteLength) - offset if size is None else size)
        self.buffer, self.offset = buffer, offset
        self._view = js.Uint8Array.new(buffer, offset, self.size)

    def fetch(self, offset: int, length: int) -> memoryview:
        data: memoryview = self._view.subarray(offset, offset + length).to_py()
        return data


class JsBlob(ByteSource):
    """Bytes of a Blob, which the browser keeps in memory or on disk: parts are read when they are needed."""

    smallest_window = 1 << 15

    def __init__(self, blob: JsObject) -> None:
        super().__init__(int(blob.size))
        self.blob = blob
        self._reader = js.FileReaderSync.new()

    def fetch(self, offset: int, length: int) -> memoryview:
        try:
            buffer = self._reader.readAsArrayBuffer(self.blob.slice(offset, offset + length))
        except JsException as error:
            raise Fail(f"the browser no longer gives the model's {self.size:,} bytes: {error.message}") from None
        data: memoryview = js.Uint8Array.new(buffer).to_py()
        return data


def read_bytes(value: JsObject) -> JsBytes | JsBlob | None:
    """A JavaScript ArrayBuffer, typed array or (in a worker) Blob as bytes; None for anything else."""
    if js.ArrayBuffer.isView(value):
        return JsBytes(value.buffer, int(value.byteOffset), int(value.byteLength))
    if str(js.Object.prototype.toString.call(value)) in ("[object ArrayBuffer]", "[object SharedArrayBuffer]"):
        return JsBytes(value)
    if str(js.Object.prototype.toString.call(value)) in ("[object Blob]", "[object File]") and hasattr(
        js, "FileReaderSync"
    ):
        return JsBlob(value)
    return None


def js_object(value: object) -> JsObject:
    """Dicts and lists as JavaScript's objects and arrays."""
    return to_js(value, dict_converter=js.Object.fromEntries)


async def fetch_bytes(url: str, report: Callable[[int, int], None]) -> JsBytes | JsBlob:
    """The bytes at `url`, kept in JavaScript; `report(loaded, total)` as they come (total 0: unknown).

    Raises:
        NoSuchFile: the server does not answer with success.
    """
    try:
        response = await js.fetch(url)
    except JsException as error:
        raise NoSuchFile(f"Load model from {url!r} failed: {error.message}") from None
    if not response.ok:
        raise NoSuchFile(f"Load model from {url!r} failed: HTTP status {response.status} {response.statusText}")
    total = int(response.headers.get("Content-Length") or 0)
    reader, parts, loaded = response.body.getReader(), js.Array.new(), 0
    while not (step := await reader.read()).done:
        parts.push(step.value)
        loaded += int(step.value.byteLength)
        report(loaded, total)
    blob = js.Blob.new(parts)
    if loaded >= _BIG and hasattr(js, "FileReaderSync"):
        return JsBlob(blob)
    return JsBytes(await blob.arrayBuffer())
