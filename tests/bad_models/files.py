"""Bytes that are no model, and damaged wire format."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bad_models.case import Case, graph_model, node
from tests.onnx.encode import blob, fixed64, integer, model, tag, varint

__all__ = ["cases"]

_GOOD = graph_model([node("Relu", ["x"], ["y"])])


def cases() -> Iterator[Case]:
    yield from _others()
    yield from _wire()
    yield from _nesting()


def _others() -> Iterator[Case]:
    p = "InvalidProtobuf"
    yield Case("file: one zero byte", b"\0", p)
    yield Case("file: zeros", bytes(4096), p)
    yield Case("file: ones", b"\xff" * 4096, p)
    yield Case("file: HTML page", b"<!DOCTYPE html><html><body>404 Not Found</body></html>", p, "web page")
    yield Case("file: HTML page after a byte order mark", b"\xef\xbb\xbf\n<html>", p, "web page")
    yield Case("file: XML error of a bucket", b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", p)
    yield Case("file: JSON", b'{"error": "Repository not found"}', p, "text")
    yield Case("file: plain text", b"Not Found", p, "text")
    lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    yield Case("file: Git LFS pointer", lfs, p, "git lfs pull")
    yield Case("file: ZIP", b"PK\x03\x04" + bytes(200), p, "ZIP")
    yield Case("file: gzip", b"\x1f\x8b\x08" + bytes(200), p, "gzip")
    yield Case("file: HDF5", b"\x89HDF\r\n\x1a\n" + bytes(200), p, "HDF5")
    yield Case("file: pickle", b"\x80\x02}q\x00.", p, "pickle")
    yield Case("file: TensorFlow Lite", b"\x1c\0\0\0TFL3" + bytes(100), p, "TensorFlow Lite")
    yield Case("file: ORT format", b"\x20\0\0\0ORTM" + bytes(100), p, "ORT")
    yield Case("file: safetensors", b"\x50\0\0\0\0\0\0\0" + b'{"w":{"dtype":"F32"}}', p, "safetensors")
    yield Case("file: PNG", b"\x89PNG\r\n\x1a\n" + bytes(100), p)
    yield Case("file: ONNX text form", b'<ir_version: 8, opset_import: ["": 18]>\nagraph (float x) => (float y) {}', p)
    yield Case("file: a model of zero fields and garbage", integer(1, 8) + b"\xff\xff", p)


def _wire() -> Iterator[Case]:
    p = "InvalidProtobuf"
    yield Case("wire: varint of eleven bytes", b"\x08" + b"\x80" * 10 + b"\x01", p)
    yield Case("wire: varint without end", b"\x08" + b"\x80" * 5, p)
    yield Case("wire: length past the end", tag(7, 2) + varint(1000) + b"abc", p)
    yield Case("wire: length of 2^63", tag(7, 2) + varint(1 << 63) + b"abc", p)
    yield Case("wire: length of 2^64 - 1", tag(7, 2) + varint((1 << 64) - 1) + b"abc", p)
    yield Case("wire: length that would wrap 32 bits", tag(7, 2) + varint((1 << 32) - 1) + b"abc", p)
    yield Case("wire: inner length past its message", integer(1, 8) + blob(7, tag(1, 2) + varint(50) + b"abc"), p)
    yield Case("wire: field number 0", b"\x02\x01a", p)
    yield Case("wire: group begins", b"\x3b\x3c", p)
    yield Case("wire: group ends", b"\x3c", p)
    yield Case("wire: wire type 6", b"\x3e\x00", p)
    yield Case("wire: wire type 7", b"\x3f\x00", p)
    yield Case("wire: graph as varint", integer(1, 8) + integer(7, 3), p)
    yield Case("wire: IR version as text", blob(1, "eight") + blob(7, b""), p)
    yield Case("wire: fixed64 cut", integer(1, 8) + tag(31, 1) + b"abc", p)
    yield Case("wire: fixed32 cut", integer(1, 8) + tag(31, 5) + b"ab", p)
    yield Case("wire: node name is not UTF-8", model(blob(1, blob(3, b"\xff\xfe") + blob(4, "Relu"))), p)
    yield Case("wire: operator is not UTF-8", model(blob(1, blob(4, b"\xc3\x28"))), p)
    yield Case("wire: surrogate in a name", model(blob(1, blob(1, b"\xed\xa0\x80") + blob(4, "Relu"))), p)
    yield Case("wire: overlong UTF-8", model(blob(1, blob(1, b"\xc0\xaf") + blob(4, "Relu"))), p)
    yield Case("wire: dims packed and cut", model(blob(5, blob(1, b"\x80"))), p)
    yield Case("wire: double field with fixed64 of floats", model(blob(1, blob(5, fixed64(2, 1.0)))), p)
    yield Case("wire: no graph", integer(1, 8) + blob(8, integer(2, 17)), p)
    for part in (1, 3, 5, 7):
        yield Case(f"wire: cut after {part} eighths", _GOOD[: len(_GOOD) * part // 8], p)


def _nesting() -> Iterator[Case]:
    p = "InvalidProtobuf"
    graph = blob(1, blob(4, "Relu"))
    for _ in range(200):
        graph = blob(1, blob(4, "If") + blob(5, blob(1, "then_branch") + integer(20, 5) + blob(6, graph)))
    yield Case("bomb: 200 subgraphs within subgraphs", model(graph), p, "nesting")
    kind = blob(1, integer(1, 1))
    for _ in range(5000):
        kind = blob(4, blob(1, kind))
    yield Case("bomb: sequences of sequences, 5000 deep", model(blob(11, blob(1, "x") + blob(2, kind))), p, "nesting")
    optional = blob(1, integer(1, 1))
    for _ in range(500):
        optional = blob(9, blob(1, optional))
    yield Case("bomb: optionals of optionals", model(blob(11, blob(1, "x") + blob(2, optional))), p, "nesting")
    many = {"messages": 20_000}
    yield Case("bomb: 30,000 nodes", model(blob(1, b"") * 30_000), p, "messages", limits=many)
    yield Case("bomb: 30,000 external entries", model(blob(5, blob(13, b"") * 30_000)), p, "messages", limits=many)
    yield Case("limit: bytes of the model", _GOOD, "Fail", "model_bytes", limits={"model_bytes": 20})
    yield Case("limit: depth of messages", _GOOD, p, "nesting", limits={"nesting": 1})
