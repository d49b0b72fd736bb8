"""Damaged and hostile bytes: an exception of this package, soon, and in little memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from pyruntime.errors import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NotImplemented, OrtError
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import Limits, read_model
from pyruntime.onnx.records import ModelRecord
from tests.onnx.compare import compare_model, tensors_of
from tests.onnx.corpus import node_models
from tests.onnx.encode import blob, integer, model
from tests.onnx.test_source import CountingSource

SEEDS = (
    "test_if_seq",
    "test_scan_sum",
    "test_range_float_type_positive_delta_expanded",
    "test_equal_string",
    "test_constant",
    "test_optional_get_element_sequence",
    "test_strnormalizer_nostopwords_nochangecase",
    "test_gelu_tanh_1_expanded",
)


@lru_cache(maxsize=1)
def everything() -> bytes:
    """A small model with each kind of message and tensor storage the reader knows."""
    floats = helper.make_tensor("floats", 1, [3], [1.0, 2.0, 3.0])
    ints = helper.make_tensor("ints", 7, [2, 2], [1, -2, 300, -40000])
    halves = helper.make_tensor("halves", 10, [2], np.array([1, 2], np.float16))
    nibbles = helper.make_tensor("nibbles", 22, [3], [1, -2, 3])
    doubles = helper.make_tensor("doubles", 11, [2], [1.0, 2.0])
    words = TensorProto(name="words", data_type=8, dims=[2], string_data=[b"a", "bé".encode()])
    raw = numpy_helper.from_array(np.arange(6, dtype=np.int16).reshape(2, 3), "raw")
    outside = TensorProto(name="outside", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="w.bin")
    sparse = helper.make_sparse_tensor(helper.make_tensor("sparse", 1, [2], [1.0, 2.0]), ints_of([1, 3]), [4])
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "body", [], [])
    nodes = [
        helper.make_node("If", ["c"], ["y"], "branch", then_branch=body, else_branch=body),
        helper.make_node(
            "All", ["y"], ["w"], f=1.5, i=-3, s="text", fs=[0.5, 1.5], ints=[1, 2, -3], ss=["a", "b"], t=raw
        ),
        helper.make_node("Call", ["w", ""], ["v"], domain="local", overload="o"),
    ]
    x = helper.make_tensor_value_info("x", 1, ["N", 3, None])
    seq = helper.make_value_info("q", helper.make_sequence_type_proto(helper.make_tensor_type_proto(7, [2])))
    graph = helper.make_graph(
        nodes, "g", [x, seq], [helper.make_empty_tensor_value_info("v")],
        [floats, ints, halves, nibbles, doubles, words, raw, outside], sparse_initializer=[sparse], value_info=[x],
    )  # fmt: skip
    function = helper.make_function("local", "Call", ["a", "b"], ["d"], [], [helper.make_opsetid("", 18)], ["alpha"])
    made = helper.make_model(graph, functions=[function], opset_imports=[helper.make_opsetid("", 18)])
    made.metadata_props.add(key="k", value="v")
    return bytes(made.SerializeToString())


def ints_of(values: list[int]) -> TensorProto:
    return helper.make_tensor("", 7, [len(values)], values)


def use(data: bytes) -> ModelRecord | None:
    """Read `data` and every tensor in it, import it; None where it cannot be read."""
    record = None
    try:
        record = read_model(data)
        for tensor in tensors_of(record.graph) if record.graph else ():
            tensor.to_numpy()
    except OrtError:
        pass
    if record is not None:
        try:
            for constant in import_model(record).graph.constants.values():
                constant.numpy()
        except OrtError:
            pass
    return record


def good_models() -> Iterator[bytes]:
    yield everything()
    for name in SEEDS:
        yield node_models()[name]


def test_everything__is_read_and_equals_onnx() -> None:
    compare_model(read_model(everything()), onnx.load_from_string(everything()))
    for data in good_models():
        compare_model(read_model(data), onnx.load_from_string(data))


def test_truncated__at_every_byte__is_refused_or_a_whole_model() -> None:
    for data in good_models():
        for length in range(len(data)):
            cut = data[:length]
            try:
                record = read_model(cut)
            except OrtError:
                assert isinstance_of_reading(cut)
                continue
            compare_model(record, onnx.load_from_string(cut))  # cut between two fields of ModelProto


def isinstance_of_reading(data: bytes) -> bool:
    """True where reading fails with InvalidProtobuf, as it must for bytes that end too early."""
    with pytest.raises(InvalidProtobuf):
        read_model(data)
    return True


def test_flipped_bytes__two_thousand__only_errors_of_ours() -> None:
    rng = random.Random(0)
    seeds = list(good_models())
    accepted = 0
    for _ in range(2_000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        record = use(bytes(data))
        accepted += record is not None
    assert 400 < accepted < 1900  # the mutations reach both outcomes


def test_flipped_bytes__where_onnx_reads_them_too__equal_fields() -> None:
    """What this reader accepts, it reads as the protobuf package does."""
    rng = random.Random(1)
    seeds = list(good_models())
    compared = 0
    for _ in range(1500):
        data = bytearray(rng.choice(seeds))
        data[rng.randrange(len(data))] = rng.randrange(256)
        record = use(bytes(data))
        try:
            proto = onnx.load_from_string(bytes(data))
        except DecodeError:
            continue
        if record is None:
            continue
        try:
            compare_model(record, proto)
        except (OrtError, ValueError, TypeError, KeyError):
            continue  # tensors that contradict themselves
        compared += 1
    assert compared > 500


@settings(max_examples=300)
@given(st.binary(max_size=200))
@example(b"")
def test_random_bytes__only_errors_of_ours(data: bytes) -> None:
    use(data)
    use(model(data))
    use(model(blob(1, data)))
    use(model(blob(5, data)))
    use(model(blob(15, blob(1, data) + blob(2, data))))


@settings(max_examples=100)
@given(st.binary(max_size=300), st.integers(0, 2000))
def test_windowed__any_bytes__same_outcome_as_in_memory(junk: bytes, where: int) -> None:
    base = everything()
    data = base[: where % len(base)] + junk + base[where % len(base) :]

    def outcome(source: object) -> object:
        try:
            record = read_model(source)
        except OrtError as error:
            return type(error), str(error)
        return [(n.name, n.op_type, n.input) for n in record.graph.node] if record.graph else None

    assert outcome(CountingSource(data)) == outcome(data)


@pytest.mark.parametrize("storage", ["raw_data", "float_data", "string_data", "doc_string", "name"])
def test_windowed__cut_within_a_long_field__same_error_as_in_memory(storage: str) -> None:
    values: dict[str, Any] = {"string_data": [b"x" * 100_000], "float_data": [1.0] * 30_000, "raw_data": bytes(100_000)}
    tensor = TensorProto(dims=[1], **{storage: values.get(storage, "x" * 100_000)})
    data = model(blob(5, tensor.SerializeToString()) + blob(2, "g" * 2000))
    for cut in (5, 50, 600, 1500, 2500, 50_000):
        with pytest.raises(InvalidProtobuf) as windowed:
            read_model(CountingSource(data[:-cut]))
        with pytest.raises(InvalidProtobuf) as whole:
            read_model(data[:-cut])
        assert str(windowed.value) == str(whole.value)
    longer = bytearray(data)
    at = longer.index(b"\xa0\x8d\x06") if storage != "float_data" else longer.index(b"\xc0\xa9\x07")
    longer[at + 2] += 1  # the field now claims 16,384 bytes more than its tensor has
    with pytest.raises(InvalidProtobuf, match="TensorProto has a field"):
        read_model(CountingSource(bytes(longer)))


BOMBS = {
    "value infos": model(blob(13, blob(2, blob(1, blob(2, blob(1, b""))))) * 7_500),
    "dims": model(blob(11, blob(2, blob(1, blob(2, blob(1, b"") * 12_500))))),
    "tensor dims": model(blob(5, integer(1, 1) * 50_000)),
    "unpacked chunks": model(blob(5, (blob(7, b"\1") + integer(7, 1)) * 12_500)),
    "huge shape": model(blob(5, integer(1, 1 << 62) * 3 + integer(2, 1))),
    "empty strings": model(blob(1, blob(1, b"") * 50_000)),
    "external entries": model(blob(5, blob(13, b"") * 12_500)),
    "merged graphs": integer(1, 8) + blob(7, blob(2, b"x")) * 25_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb__is_read_or_refused__in_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        use(BOMBS[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_bomb__of_nodes__takes_memory_by_the_limit_of_messages() -> None:
    """The default limit, twenty times this one, keeps to 64 MiB."""
    assert Limits().messages == 500_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidProtobuf, match="raise the limit"):
            read_model(model(blob(1, b"") * 27_500), Limits(messages=25_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (64 << 20) / 20


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"\xef\xbb\xbf\n  <html lang='en'>", "web page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        (b'{"error": "not found"}', "text"),
        (b"Not Found", "text"),
        (b'<\n  ir_version: 8,\n  opset_import: ["" : 18]\n>\nagraph (float[N] x) => (float[N] y) {}', "text form"),
        (b"PK\x03\x04" + bytes(100), "ZIP"),
        (b"\x1f\x8b\x08" + bytes(100), "gzip"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
        (b"\x80\x02}q\x00", "pickle"),
        (b"\x80\x05\x95" + bytes(20), "pickle"),
        (b"GGUF\x03\0\0\0" + bytes(100), "GGUF"),
        (b"\x93NUMPY\x01\0" + bytes(100), "NumPy array"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "Zstandard"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(100), "7-Zip"),
        (b"BZh91AY&SY" + bytes(100), "bzip2"),
        (b"\xfd7zXZ\0" + bytes(100), "xz archive"),
        (b"model/" + bytes(251) + b"ustar\x0000" + bytes(300), "tar archive"),
        (b"\x1c\0\0\0TFL3" + bytes(100), "TensorFlow Lite"),
        (b"\x20\0\0\0ORTM" + bytes(100), "ORT-format"),
        (b"\x50\0\0\0\0\0\0\0" + b'{"w":{"dtype":"F32"}}', "safetensors"),
        (bytes(1000), "not a valid ONNX model"),
        (b"\xff" * 1000, "not a valid ONNX model"),
    ],
)
def test_other_files__say_what_they_are(data: bytes, what: str) -> None:
    with pytest.raises(InvalidProtobuf, match=what):
        read_model(data)


def test_limit__nbytes__says_the_limit_and_the_size() -> None:
    data = everything()
    with pytest.raises(Fail, match=f"{len(data)} bytes, the limit is 100"):
        read_model(data, Limits(nbytes=100))


def test_outcomes__are_the_documented_classes() -> None:
    classes = set()
    rng = random.Random(2)
    for _ in range(1000):
        data = bytearray(everything())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            record = read_model(bytes(data))
            for tensor in tensors_of(record.graph) if record.graph else ():
                tensor.to_numpy()
        except OrtError as error:
            classes.add(type(error))
    assert classes <= {InvalidProtobuf, InvalidGraph, Fail, NotImplemented, InvalidArgument} | set(
        OrtError.__subclasses__()
    )
    assert {InvalidProtobuf, Fail} <= classes
