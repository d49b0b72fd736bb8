"""The wire format: what protobuf allows is read as protobuf reads it, the rest is refused."""

from __future__ import annotations

import math
import time

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.errors import InvalidGraph, InvalidProtobuf
from pyruntime.onnx.reader import Limits, read_model
from pyruntime.onnx.records import (
    AttributeRecord,
    AttributeType,
    GraphRecord,
    SequenceTypeRecord,
    StringStringEntry,
    TensorTypeRecord,
)
from tests.onnx.compare import compare_model
from tests.onnx.encode import blob, fixed32, fixed64, integer, model, packed, tag, varint


def graph_of(data: bytes) -> GraphRecord:
    """The graph read from `data`, which the protobuf package reads alike."""
    record = read_model(data)
    compare_model(record, onnx.load_from_string(data))
    assert record.graph is not None
    return record.graph


def attribute_of(fields: bytes) -> AttributeRecord:
    return graph_of(model(blob(1, blob(5, blob(1, "a") + fields)))).node[0].attribute[0]


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_int64__any_value__keeps_its_sign(value: int) -> None:
    assert attribute_of(integer(20, 2) + integer(3, value)).value == value


def test_int32__more_bits__takes_the_low_32() -> None:
    data = model(blob(11, blob(1, "x") + blob(2, blob(1, integer(1, (1 << 40) + 7)))))
    type_ = graph_of(data).input[0].type
    assert isinstance(type_, TensorTypeRecord) and type_.elem_type == 7


def test_varint__ten_bytes_beyond_64_bits__is_cut() -> None:
    assert attribute_of(integer(20, 2) + tag(3, 0) + b"\xff" * 9 + b"\x7f").value == -1


def test_varint__longer_than_needed__is_read() -> None:
    assert attribute_of(integer(20, 2) + tag(3, 0) + b"\x85\x80\x80\x00").value == 5


@pytest.mark.parametrize("bad", [b"\xff" * 10 + b"\x01", b"\x80" * 11])
def test_varint__of_eleven_bytes__is_refused(bad: bytes) -> None:
    with pytest.raises(InvalidProtobuf, match="more than 10 bytes"):
        read_model(model(blob(1, blob(5, tag(3, 0) + bad))))


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_repeated_ints__packed_and_not__concatenate(first: list[int], second: list[int]) -> None:
    fields = packed(8, first) + b"".join(integer(8, v) for v in second) + packed(8, first)
    assert attribute_of(integer(20, 7) + fields).value == (*first, *second, *first)


def test_repeated_floats__packed_and_not__concatenate() -> None:
    fields = integer(20, 6) + fixed32(7, 1.5) + blob(7, fixed32(1, -0.0)[1:] + fixed32(1, math.inf)[1:])
    value = attribute_of(fields).value
    assert repr(value) == "(1.5, -0.0, inf)"


def test_repeated_ints__many_packed_chunks__take_linear_time() -> None:
    chunks = packed(8, [1]) * 200_000
    start = time.perf_counter()
    read_model(model(blob(1, blob(5, integer(20, 7) + chunks))))
    assert time.perf_counter() - start < 20  # quadratic time is minutes


def test_scalar__twice__last_one_wins() -> None:
    assert graph_of(model(blob(2, "first") + blob(2, "second"))).name == "second"


def test_message__twice__merges() -> None:
    first = blob(2, "g") + blob(1, blob(4, "A")) + blob(11, blob(1, "x") + blob(2, blob(1, integer(1, 1))))
    second = blob(1, blob(4, "B"))
    graph = graph_of(integer(1, 8) + blob(7, first) + blob(7, second))
    assert (graph.name, [n.op_type for n in graph.node], len(graph.input)) == ("g", ["A", "B"], 1)


def test_nested_message__twice__merges() -> None:
    shape = blob(2, blob(1, integer(1, 4)))
    type_ = blob(2, blob(1, integer(1, 1))) + blob(2, blob(1, shape))
    assert graph_of(model(blob(11, type_))).input[0].type == TensorTypeRecord(1, (4,))


def test_oneof__two_members__last_one_wins() -> None:
    tensor, sequence = blob(1, integer(1, 1)), blob(4, blob(1, blob(1, integer(1, 7))))
    assert graph_of(model(blob(11, blob(2, tensor + sequence)))).input[0].type == SequenceTypeRecord(
        TensorTypeRecord(7, None)
    )
    assert graph_of(model(blob(11, blob(2, sequence + tensor)))).input[0].type == TensorTypeRecord(1, None)
    both = blob(2, blob(1, integer(1, 3) + blob(2, "N")) + blob(1, blob(2, "N") + integer(1, 3)) + blob(1, b""))
    dims = graph_of(model(blob(11, blob(2, blob(1, integer(1, 1) + both))))).input[0].type
    assert dims == TensorTypeRecord(1, ("N", 3, None))


def test_unknown_fields__of_every_wire_type__are_skipped() -> None:
    unknown = integer(90, 1 << 60) + fixed64(91, 1.0) + blob(92, b"\xff" * 300) + fixed32(93, 1.0) + integer(5000, 1)
    graph = graph_of(integer(1, 8) + unknown + blob(7, unknown + blob(2, "g") + unknown) + unknown)
    assert graph.name == "g"


def test_metadata__key_alone__has_an_empty_value() -> None:
    record = read_model(blob(14, blob(1, "k")) + blob(7, b""))
    assert record.metadata_props == (StringStringEntry("k", ""),)


@pytest.mark.parametrize("wire_type", [3, 4, 6, 7])
def test_groups_and_undefined_wire_types__are_refused(wire_type: int) -> None:
    with pytest.raises(InvalidProtobuf):
        read_model(model(tag(90, wire_type) + b"\0" * 8))


@pytest.mark.parametrize(
    ("field", "what"),
    [
        (fixed32(1, 1.0), r"GraphProto has field 1 \(node\) with wire type 5"),
        (integer(2, 1), r"field 2 \(name\) with wire type 0"),
        (blob(1, blob(7, b"")[:1] + b""), "middle"),
        (tag(0, 0) + b"\0", "field number 0"),
        (varint(1 << 35) + b"\0", "field number"),
    ],
)
def test_field__that_no_encoder_writes__is_refused(field: bytes, what: str) -> None:
    with pytest.raises(InvalidProtobuf, match=what):
        read_model(model(field))


@pytest.mark.parametrize("size", [5, 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
def test_length__past_the_end__is_refused(size: int) -> None:
    with pytest.raises(InvalidProtobuf, match=f"a field of {size} bytes where 4 are left"):
        read_model(model(tag(2, 2) + varint(size) + b"abcd"))


def test_length__past_its_message_but_within_the_file__is_refused() -> None:
    with pytest.raises(InvalidProtobuf, match="NodeProto has a field of 9 bytes"):
        read_model(model(blob(1, tag(4, 2) + varint(9) + b"Relu") + blob(2, "a long enough name")))


def test_text__not_utf8__is_refused() -> None:
    with pytest.raises(InvalidProtobuf, match="not UTF-8"):
        read_model(model(blob(2, b"\xc3\x28")))


def test_packed_floats__of_odd_length__are_refused() -> None:
    with pytest.raises(InvalidProtobuf, match="packed floats of 5 bytes"):
        read_model(model(blob(1, blob(5, blob(7, b"12345")))))


def nested_model(levels: int) -> bytes:
    graph = blob(2, "innermost")
    for _ in range(levels):
        graph = blob(1, blob(5, integer(20, 5) + blob(6, graph)))
    return model(graph)


def test_nesting__of_thirty_subgraphs__is_read() -> None:
    graph_of(nested_model(30))


@pytest.mark.parametrize("levels", [40, 20_000])
def test_nesting__bomb__is_refused(levels: int) -> None:
    with pytest.raises(InvalidProtobuf, match="nested more than 100 deep"):
        read_model(nested_model(levels))


def test_nesting__of_types__is_refused() -> None:
    type_ = blob(1, integer(1, 1))
    for _ in range(5000):
        type_ = blob(4, blob(1, type_))
    with pytest.raises(InvalidProtobuf, match="nested more than 100 deep"):
        read_model(model(blob(11, blob(2, type_))))


def test_messages__more_than_the_limit__are_refused() -> None:
    nodes = blob(1, b"") * 1000
    with pytest.raises(InvalidProtobuf, match="more than 999 messages"):
        read_model(blob(7, nodes), Limits(messages=999))
    read_model(blob(7, nodes), Limits(messages=1001))


def test_attribute__without_type__has_that_of_its_value() -> None:
    assert attribute_of(packed(8, [1, 2])) == AttributeRecord("a", AttributeType.INTS, (1, 2))
    assert attribute_of(fixed32(2, 0.5)) == AttributeRecord("a", AttributeType.FLOAT, 0.5)


@pytest.mark.parametrize(("type_", "value"), [(1, 0.0), (2, 0), (3, b""), (6, ()), (7, ()), (8, ()), (9, ())])
def test_attribute__of_a_type_without_value__is_zero_or_empty(type_: int, value: object) -> None:
    assert attribute_of(integer(20, type_)).value == value


@pytest.mark.parametrize(
    "fields",
    [
        integer(20, 99) + integer(3, 1),
        integer(20, 1) + integer(3, 1),
        integer(20, 4) + blob(6, b""),
        integer(20, 4),
        integer(20, 5),
        integer(20, 7) + blob(9, b"x"),
        b"",
        integer(3, 1) + fixed32(2, 1.0),
    ],
)
def test_attribute__of_another_type_than_its_value__is_refused(fields: bytes) -> None:
    with pytest.raises(InvalidGraph, match="attribute 'a'"):
        read_model(model(blob(1, blob(5, blob(1, "a") + fields))))


def test_attribute__reference__has_no_value() -> None:
    reference = attribute_of(integer(20, 1) + blob(21, "alpha"))
    assert reference == AttributeRecord("a", AttributeType.FLOAT, None, "alpha")
