"""Reader of model files, with errors that identify files of other formats."""

from __future__ import annotations

import codecs
import os
from typing import Any

from pyruntime.errors import Fail, InvalidProtobuf
from pyruntime.onnx.formats.protobuf import Limits, Parser, Reading, at_once
from pyruntime.onnx.formats.source import ByteSource, MemorySource, open_file
from pyruntime.onnx.formats.tensor import TensorRecord
from pyruntime.onnx.ort_format import SIGNATURE, read_ort_model
from pyruntime.onnx.records import ModelRecord
from pyruntime.onnx.schema import MODEL, TENSOR

__all__ = ["Limits", "read_model", "read_tensor", "reading_model"]

_HEAD = 512
_EXPORT = "export the model to ONNX"
# (offset, bytes there, what the file is, what to do). No ONNX model starts with any of these.
_SIGNATURES = (
    (0, b"version https://git-lfs.github.com/", "a Git LFS pointer", "run `git lfs pull`, or download the file itself"),
    (0, b"PK\x03\x04", "a ZIP archive (or a PyTorch checkpoint)", "unpack it, or export the model to ONNX"),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it"),
    (0, b"\x89HDF", "an HDF5 file (Keras?)", _EXPORT),
    *((0, bytes([0x80, protocol]), "a Python pickle (a PyTorch checkpoint?)", _EXPORT) for protocol in (2, 3, 4, 5)),
    (0, b"GGUF", "a GGUF file of llama.cpp", "use an ONNX export of the same model"),
    (0, b"\x93NUMPY", "a NumPy array", "give it as an input of a run"),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive", "unpack it"),
    (0, b"7z\xbc\xaf", "a 7-Zip archive", "unpack it"),
    (0, b"BZh", "a bzip2 archive", "unpack it"),
    (0, b"\xfd7zXZ", "an xz archive", "unpack it"),
    *((257, b"ustar" + version, "a tar archive", "unpack it") for version in (b"\x0000", b"  \0")),
    (4, b"TFL3", "a TensorFlow Lite model", "convert it to ONNX"),
    (8, b'{"', "a safetensors file", _EXPORT),
)


def read_model(source: ByteSource | str | os.PathLike[str] | Any, limits: Limits | None = None) -> ModelRecord:
    """Read a model in ONNX or ORT format from a ByteSource, a path, or a bytes-like object.

    Raises:
        InvalidProtobuf: the bytes are not an ONNX model, or exceed `limits`.
        InvalidGraph: an attribute's value does not match its type.
        NotImplemented: an ORT-format model that depends on a device, or on another file.
        InvalidArgument: `source` is of another type. NoSuchFile, Fail: the path cannot be opened.
    """
    return at_once(reading_model(as_source(source), limits))


def reading_model(source: ByteSource, limits: Limits | None = None) -> Reading[ModelRecord]:
    """Like `read_model`, as a generator for a source that is still loading: yields the end of its next read."""
    limits = limits or Limits()
    if source.size > limits.nbytes:
        raise Fail(
            f"the model has {source.size} bytes, the limit is {limits.nbytes}; "
            "raise the limit `model_bytes` (SessionOptions.limits) if it is trusted"
        )
    yield min(_HEAD, source.size)
    head = bytes(source.window(0, min(_HEAD, source.size))[0][:_HEAD])
    offset, signature = SIGNATURE
    if head[offset : offset + len(signature)] == signature:
        yield source.size
        return read_ort_model(source, limits)
    _refuse_other_formats(head)
    try:
        record = yield from Parser(source, limits).reading(MODEL)
    except InvalidProtobuf as error:
        if _is_text(head):
            raise InvalidProtobuf(
                f"the file is text, not an ONNX model (it begins {_begin(head)}); {_TEXT_HINT}"
            ) from error
        raise
    assert isinstance(record, ModelRecord)
    return record


def read_tensor(source: ByteSource | Any, limits: Limits | None = None) -> TensorRecord:
    """Read a serialized TensorProto (a .pb file of ONNX's test data). Raises as `read_model` does."""
    record = Parser(as_source(source), limits or Limits()).parse(TENSOR)
    assert isinstance(record, TensorRecord)
    return record


def as_source(data: ByteSource | str | os.PathLike[str] | Any) -> ByteSource:
    """Return `data` as a source: a ByteSource, the file at a path, or bytes in memory. Raises like `read_model`."""
    if isinstance(data, ByteSource):
        return data
    if isinstance(data, (str, os.PathLike)):
        return open_file(data)
    return MemorySource(data)


_TEXT_HINT = "check what the address or path gives"


def _refuse_other_formats(head: bytes) -> None:
    if not head:
        raise InvalidProtobuf("the model is empty (0 bytes): the download or export did not finish")
    for offset, signature, what, advice in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            raise InvalidProtobuf(f"the file is {what}, not an ONNX model; {advice}")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml", b"<error")):
        raise InvalidProtobuf(
            f"the file is a web page, not an ONNX model (it begins {_begin(head)}): "
            "the server answered with a page, perhaps an error or a login; check the address"
        )
    if text.startswith(b"<") and b"ir_version" in text:
        raise InvalidProtobuf("the file is a model in ONNX's text form; save it with onnx.parser and onnx.save first")
    if text.startswith((b"{", b"<")):
        raise InvalidProtobuf(f"the file is text, not an ONNX model (it begins {_begin(head)}); {_TEXT_HINT}")


def _is_text(head: bytes) -> bool:
    try:
        text, _ = codecs.utf_8_decode(head, "strict", False)  # a character may be cut at the end
    except UnicodeDecodeError:
        return False
    return all(char >= " " or char in "\t\n\r" for char in text)


def _begin(head: bytes) -> str:
    return repr(head[:40].decode("utf-8", "replace"))
