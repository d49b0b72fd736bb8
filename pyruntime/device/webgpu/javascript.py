"""Bytes that stay in JavaScript's memory: models, tensors, readbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import js
import numpy as np
from pyodide.code import run_js
from pyodide.ffi import JsException, JsProxy, create_proxy, to_js

from pyruntime.device.webgpu.bundled import bundled
from pyruntime.errors import EPFail, Fail, InvalidArgument, NoSuchFile
from pyruntime.ir import Array, DType
from pyruntime.ir.encoding import decode
from pyruntime.onnx.formats.payloads import holds
from pyruntime.onnx.formats.source import ArrivingSource, Awaited, Buffer, ByteSource

__all__ = [
    "JsArriving",
    "JsBlob",
    "JsBytes",
    "JsException",
    "JsFile",
    "JsObject",
    "Watch",
    "fetch_bytes",
    "in_python",
    "javascript_object",
    "js_data",
    "js_object",
    "read_bytes",
    "web_modules",
]

JsObject: TypeAlias = Any
"""A JavaScript object, as a Pyodide proxy."""

_BIG = 32 << 20
"""Size in bytes above which a fetched file stays a Blob, if Python runs in a worker."""

_LARGE = 2 << 20
"""Size in bytes above which web/gpu/staging.js uploads in pieces."""


class JsBytes(ByteSource):
    """Bytes of an ArrayBuffer, outside the WebAssembly heap. Ranges are copied into Python when they are read."""

    def __init__(self, buffer: JsObject, offset: int = 0, size: int | None = None) -> None:
        super().__init__(int(buffer.byteLength) - offset if size is None else size)
        self.buffer, self.offset = buffer, offset
        self._view = js.Uint8Array.new(buffer, offset, self.size)

    def fetch(self, offset: int, length: int) -> memoryview:
        data: memoryview = self._view.subarray(offset, offset + length).to_py()
        return data


class JsBlob(ByteSource):
    """Bytes of a Blob, which the browser keeps in memory or on disk. Ranges are read on demand."""

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


class JsFile(ArrivingSource):
    """Bytes of a `ModelFile` of web/loading/file.js, which may still be loading. The graph's bytes arrive first."""

    smallest_window = 1 << 15

    def __init__(self, file: JsObject) -> None:
        super().__init__(int(file.size))
        self.file = file

    def fetch(self, offset: int, length: int) -> memoryview:
        try:
            part = self.file.partNow(offset, length)
        except JsException as error:
            raise Fail(f"the browser no longer gives the bytes of {self.file.url}: {error.message}") from None
        if not part:
            raise Awaited(self, offset + length)
        data: memoryview = part.to_py()
        return data

    def window(self, offset: int, minimum: int = 1) -> tuple[Buffer, int]:
        """See `ByteSource.window`. Returns the whole cached segment around `offset`, where there is one.

        A segment may end right after the header of a large field: readers of a graph do not need the elements.
        """
        if holds(self._window, self._base, offset, minimum, self.size):
            return self._window, self._base
        kept = self._kept(offset)
        if kept:
            data, base = bytes(kept.bytes.to_py()), int(kept.at)
            if holds(data, base, offset, minimum, self.size):
                self._window, self._base = data, base
                return data, base
        return super().window(offset, minimum)

    def _kept(self, offset: int) -> JsObject:
        """Return the cached segment around `offset`; a false value where there is none."""
        return self.file.kept(offset)

    async def there(self, end: int) -> None:
        """See `ArrivingSource.there`."""
        await self._wait(self.file.there(end))

    async def complete(self) -> None:
        """See `ArrivingSource.complete`."""
        await self._wait(self.file.complete())

    async def ahead(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """See `ArrivingSource.ahead`."""
        return bool(await self._wait(self.file.ahead(to_js(ranges))))

    async def _wait(self, arrival: JsObject) -> JsObject:
        try:
            found = await arrival
        except JsException as error:
            raise Fail(str(error.message)) from None
        if self.file.isComplete:
            self.size = int(self.file.size)
        return found


class JsArriving(JsFile):
    """Bytes of an `ArrivingBuffer` of web/loading/buffer.js, in memory as far as they have arrived."""

    smallest_window = ByteSource.smallest_window
    in_order = True
    _arrived = 0

    def there_now(self, end: int) -> int:
        """See `ByteSource.there_now`."""
        if end > self._arrived:
            self._arrived = int(self.file.arrived)
        return self._arrived

    def _kept(self, offset: int) -> JsObject:
        return None


def read_bytes(value: JsObject) -> JsBytes | JsBlob | JsFile | None:
    """Wrap an ArrayBuffer, a typed array, a Blob (in a worker), an `ArrivingBuffer` or a `ModelFile` as bytes.

    Returns None for any other value.
    """
    if js.ArrayBuffer.isView(value):
        return JsBytes(value.buffer, int(value.byteOffset), int(value.byteLength))
    if str(js.Object.prototype.toString.call(value)) in ("[object ArrayBuffer]", "[object SharedArrayBuffer]"):
        return JsBytes(value)
    if str(js.Object.prototype.toString.call(value)) in ("[object Blob]", "[object File]") and hasattr(
        js, "FileReaderSync"
    ):
        return JsBlob(value)
    if hasattr(value, "partNow"):
        return JsFile(value) if hasattr(value, "kept") else JsArriving(value)
    return None


_ELEMENTS: dict[str, str] = {
    "Int8Array": "int8",
    "Uint8Array": "uint8",
    "Uint8ClampedArray": "uint8",
    "Int16Array": "int16",
    "Uint16Array": "uint16",
    "Int32Array": "int32",
    "Uint32Array": "uint32",
    "BigInt64Array": "int64",
    "BigUint64Array": "uint64",
    "Float16Array": "float16",
    "Float32Array": "float32",
    "Float64Array": "float64",
}
"""NumPy dtypes of JavaScript's typed arrays."""

_BITS = {"Uint8Array": (DType.BOOL,), "Uint16Array": (DType.FLOAT16,)}
"""Element types that JavaScript represents by an integer array of the same width."""


def javascript_object(source: ByteSource) -> JsObject | None:
    """Return the JavaScript object that holds exactly the bytes of a source; None where there is none."""
    match source:
        case JsFile():
            return source.file
        case JsBlob():
            return source.blob
        case JsBytes(offset=0):
            return source.buffer
    return None


def in_python(value: Any, wanted: DType | None, name: str) -> Any:
    """Convert a JavaScript input: typed arrays to NumPy arrays, other objects by `to_py`.

    Args:
        wanted: element type that the model declares; the element type of an ArrayBuffer or a DataView.
        name: name of the input, for the error.

    Returns:
        The converted value, or `value` itself if it is not JavaScript's. Arrays are one-dimensional copies.

    Raises:
        InvalidArgument: a buffer without a declared type, or whose size is not a whole number of elements.
    """
    if not isinstance(value, JsProxy):
        return value
    tag = str(js.Object.prototype.toString.call(value))[len("[object ") : -1]
    if tag in _ELEMENTS:
        array: Array = np.frombuffer(_bytes_of(value), _ELEMENTS[tag])
        return array.view(wanted.numpy) if wanted is not None and wanted in _BITS.get(tag, ()) else array
    if tag not in ("ArrayBuffer", "SharedArrayBuffer", "DataView"):
        return value.to_py()
    if wanted is None or wanted is DType.STRING:
        raise InvalidArgument(f"input '{name}': {tag} has no element type; feed a typed array, or a NumPy array")
    raw = _bytes_of(value)
    size = raw.nbytes * 8 // wanted.bits
    if wanted.nbytes(size) != raw.nbytes:
        raise InvalidArgument(
            f"input '{name}': {raw.nbytes} bytes are not a whole number of {wanted.type_string} elements"
        )
    return decode(raw, wanted, (size,))


def _bytes_of(value: JsObject) -> memoryview:
    """Return a copy of the bytes of a typed array, a DataView or a buffer."""
    whole = (value.buffer, value.byteOffset, value.byteLength) if js.ArrayBuffer.isView(value) else (value,)
    flat = js.Uint8Array.new(*whole)
    data: memoryview = flat.to_py()
    return data.cast("B")


def js_object(value: object) -> JsObject:
    """Convert dicts and lists to JavaScript objects and arrays."""
    return to_js(value, dict_converter=js.Object.fromEntries)


class Watch:
    """Context manager with a `Watch` of web/gpu/long_runs.js; leaving the block aborts a run that has not ended.

    A class, because a generator's frame would keep the model of a failed run alive until Python collects cycles.
    """

    def __init__(self, progress: Callable[[int, int], object] | None) -> None:
        self._report = None if progress is None else create_proxy(progress)
        self._made = js_object({"aborted": False, "report": self._report})

    def __enter__(self) -> JsObject:
        return self._made

    def __exit__(self, *_: object) -> None:
        self._made.aborted = True
        if self._report is not None:
            self._report.destroy()


@cache
def web_modules() -> JsObject:
    """Return web/gpu/device.js: the module that the page registered as `pyruntime_device`, else the wheel's copy.

    Raises:
        EPFail: there is none, and the page's policy forbids to evaluate the wheel's copy.
    """
    try:
        import pyruntime_device
    except ImportError:
        try:
            return run_js(bundled("gpu/device.js"))
        except JsException as error:
            raise EPFail(
                f"pyruntime's JavaScript does not run in this page ({error.message}). Where its policy (CSP) "
                "has no 'unsafe-eval', it has to provide it before the first session: "
                "pyodide.registerJsModule('pyruntime_device', await import('.../web/gpu/device.js'))"
            ) from None
    return pyruntime_device


async def fetch_bytes(url: str, report: Callable[[int, int], None]) -> JsBytes | JsBlob:
    """Fetch the bytes at `url` into JavaScript's memory.

    Args:
        report: called with (loaded, total) in bytes as data arrives; total 0: unknown.

    Raises:
        NoSuchFile: the server does not answer with success. Fail: the file was incomplete, or changed meanwhile.
    """
    told = create_proxy(lambda loaded, total: report(int(loaded), int(total or 0)))
    try:
        blob = await web_modules().fetchAll(url, js_object({"onProgress": told, "cache": "no-cache"}))
    except JsException as error:
        kind = NoSuchFile if str(error.name) == "NoSuchFile" else Fail
        raise kind(f"Load model from {url!r} failed: {error.message}") from None
    finally:
        told.destroy()
    if int(blob.size) >= _BIG and hasattr(js, "FileReaderSync"):
        return JsBlob(blob)
    return JsBytes(await blob.arrayBuffer())


def js_data(data: Any, offset: int, nbytes: int, proxies: list[JsObject] | None) -> tuple[JsObject, int]:
    """Return `nbytes` bytes of `data` from `offset` on for web/gpu/staging.js: an object, and an offset in it.

    Args:
        data: bytes, or a source of them. Bytes in JavaScript's memory are not copied.
        proxies: receives proxies of large Python buffers, for the caller to destroy; None: Blobs, files and large
            buffers
            are copied to an array.
    """
    if isinstance(data, JsBytes):
        return data.buffer, offset + data.offset
    if proxies is not None and isinstance(data, JsBlob):
        return data.blob, offset
    if proxies is not None and isinstance(data, JsFile):
        return data.file, offset
    if isinstance(data, bytes | memoryview):
        raw = memoryview(data).cast("B")[offset : offset + nbytes]
    else:
        raw = memoryview(data.read(offset, nbytes))
    if proxies is None or nbytes < _LARGE:
        return to_js(raw), 0
    proxies.append(create_proxy(raw))
    return proxies[-1], 0
