"""Tensors that contradict themselves, and external data that reaches where it must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.bad_models.case import Case, graph_model, info, node

__all__ = ["cases"]

_X = {"x": np.ones(2, np.float32)}
_F = TensorProto.FLOAT


def cases() -> Iterator[Case]:
    yield from _dims()
    yield from _contents()
    yield from _external()
    yield from _sparse()


def _with(tensor: TensorProto) -> bytes:
    """y = x + w."""
    return graph_model([node("Add", ["x", "w"], ["y"])], [tensor])


def _raw(dims: list[int], raw: bytes, kind: int = _F) -> bytes:
    return _with(TensorProto(name="w", data_type=kind, dims=dims, raw_data=raw))


def _dims() -> Iterator[Case]:
    yield Case("dims: negative", _raw([-2], bytes(8)), "Fail", "w", feeds=_X)
    yield Case("dims: two negative ones", _raw([-1, -2], bytes(8)), "Fail", "w", feeds=_X)
    yield Case("dims: 2^40", _raw([1 << 40], bytes(8)), "Fail", "w", feeds=_X)
    yield Case("dims: product wraps 64 bits to 0", _raw([1 << 32, 1 << 32], b""), "Fail", "w", feeds=_X)
    yield Case("dims: product wraps 64 bits to 2", _raw([(1 << 63) - 1, (1 << 63) - 1, 2], bytes(8)), "Fail", feeds=_X)
    yield Case("dims: smallest integer", _raw([-(1 << 63)], bytes(8)), "Fail", "w", feeds=_X)
    yield Case("dims: 0 times 2^62", _raw([0, 1 << 62], b""), "Fail", "2^53", feeds=_X)
    yield Case("dims: rank 1000", _raw([1] * 1000, bytes(4)), "Fail", feeds=_X)


def _contents() -> Iterator[Case]:
    yield Case("raw_data: one byte short", _raw([2], bytes(7)), "Fail", "w", feeds=_X)
    yield Case("raw_data: one byte long", _raw([2], bytes(9)), "Fail", "w", feeds=_X)
    yield Case("raw_data: none", _raw([2], b""), "Fail", "w", feeds=_X)
    both = TensorProto(name="w", data_type=_F, dims=[2], raw_data=bytes(8), float_data=[1, 2])
    yield Case("tensor: raw_data and float_data", _with(both), "Fail", "w", feeds=_X)
    few = TensorProto(name="w", data_type=_F, dims=[2], float_data=[1.0])
    yield Case("float_data: one value of two", _with(few), "Fail", "w", feeds=_X)
    field = TensorProto(name="w", data_type=_F, dims=[2], int64_data=[1, 2])
    yield Case("tensor: floats in int64_data", _with(field), "Fail", "w", feeds=_X)
    for kind in (0, 99, -1):
        odd = TensorProto(name="w", data_type=kind, dims=[2], raw_data=bytes(8))
        yield Case(f"tensor: type {kind}", _with(odd), "Fail", "w", feeds=_X)
    text = TensorProto(name="w", data_type=TensorProto.STRING, dims=[2], raw_data=b"abcdefgh")
    yield Case("tensor: text in raw_data", _with(text), "Fail", "w", feeds=_X)
    bad = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff\xfe"])
    upper = graph_model([node("Identity", ["w"], ["y"])], [bad], outputs=[info("y", TensorProto.STRING, None)])
    yield Case("tensor: text that is not UTF-8", upper, "Fail", "w", feeds=_X)
    parts = TensorProto(name="w", data_type=_F, dims=[2], raw_data=bytes(8))
    parts.segment.begin, parts.segment.end = 0, 1
    yield Case("tensor: segmented", _with(parts), "NotImplemented", feeds=_X)
    value = TensorProto(data_type=_F, dims=[1 << 40], raw_data=bytes(4))
    attribute = graph_model([node("Constant", [], ["y"], value=value)])
    yield Case("attribute: tensor that contradicts itself", attribute, "Fail", feeds=_X)


def _file(**entries: Any) -> bytes:
    tensor = TensorProto(name="w", data_type=_F, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return _with(tensor)


def _external() -> Iterator[Case]:
    data = {"w.bin": bytes(8)}

    def reach(name: str, location: str, error: str = "NoSuchFile") -> Case:
        return Case(f"external: {name}", _file(location=location), error, feeds=_X, files=data)

    yield Case("external: not given", _file(location="w.bin"), "NoSuchFile", "w.bin", feeds=_X)
    yield reach("another name than those given", "v.bin")
    yield reach("directory above", "../w.bin")
    yield reach("directory above, later", "a/../../w.bin")
    yield reach("directory above, with backslashes", "..\\w.bin")
    yield reach("absolute path", "/etc/passwd")
    yield reach("absolute path of Windows", "C:\\Windows\\win.ini")
    yield reach("network path of Windows", "\\\\server\\share\\w.bin")
    yield reach("URL", "https://example.com/w.bin")
    yield reach("URL without a scheme", "//example.com/w.bin")
    yield reach("file URL", "file:///etc/passwd")
    yield reach("data URL", "data:application/octet-stream;base64,AAAAAAAAAAA=")
    yield reach("process memory marker", "*/_ORT_MEM_ADDR_/*", "Fail")
    yield reach("empty location", "", "Fail")
    yield reach("NUL in the location", "w.bin\0.txt")
    yield reach("device file", "/dev/zero")
    yield reach("proc file", "/proc/self/environ")
    yield Case("external: no location", _file(offset=0), "Fail", feeds=_X, files=data)
    places: dict[str, dict[str, Any]] = {
        "offset past the end": {"offset": 100},
        "offset of 2^63": {"offset": 1 << 63},
        "offset negative": {"offset": -8},
        "offset is no number": {"offset": "zero"},
        "length past the end": {"length": 16},
        "length of 2^64": {"length": 1 << 64},
        "length negative": {"length": -1},
        "length is not the tensor's": {"length": 4},
        "offset and length wrap 64 bits": {"offset": (1 << 64) - 4, "length": 8},
        "offset of 5000 digits": {"offset": "9" * 5000},
    }
    for name, entries in places.items():
        yield Case(f"external: {name}", _file(location="w.bin", **entries), "Fail", feeds=_X, files=data)


def _sparse() -> Iterator[Case]:
    def sparse(values: TensorProto, indices: TensorProto, dims: list[int]) -> bytes:
        made = helper.make_sparse_tensor(values, indices, dims)

        def add(model: Any) -> None:
            model.graph.sparse_initializer.append(made)

        return graph_model([node("Identity", ["w"], ["y"])], edit=add)

    values = helper.make_tensor("w", _F, [1], [1.0])

    def at(*positions: int) -> TensorProto:
        return helper.make_tensor("", TensorProto.INT64, [len(positions)], positions)

    yield Case("sparse: index past the end", sparse(values, at(5), [2]), "Fail", feeds=_X)
    yield Case("sparse: index negative", sparse(values, at(-1), [2]), "Fail", feeds=_X)
    yield Case("sparse: more indices than values", sparse(values, at(0, 1), [2]), "Fail", feeds=_X)
    yield Case("sparse: dense shape of terabytes", sparse(values, at(0), [1 << 42]), "OutOfMemory", feeds=_X)
    yield Case("sparse: dense shape negative", sparse(values, at(0), [-2]), "Fail", feeds=_X)
