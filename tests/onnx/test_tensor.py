"""Tensors in every element type and storage form against the onnx package."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper

from pyruntime.errors import Fail, InvalidArgument, InvalidProtobuf, NotImplemented
from pyruntime.ir import DType
from pyruntime.onnx.formats.packed_numbers import varints
from pyruntime.onnx.formats.tensor import SparseTensorRecord, TensorRecord
from pyruntime.onnx.reader import read_model, read_tensor
from tests.onnx.compare import compare_tensor
from tests.onnx.encode import blob, integer, packed, varint
from tests.onnx.encode import model as model_of

INT32_TYPES = [d for d in DType if 0 < d.bits <= 32 and d not in (DType.FLOAT, DType.UINT32)]
FIELD = {DType.FLOAT: 4, DType.COMPLEX64: 4, DType.DOUBLE: 10, DType.COMPLEX128: 10, DType.INT64: 7}
FIELD |= {DType.UINT32: 11, DType.UINT64: 11} | dict.fromkeys(INT32_TYPES, 5)
NUMERIC = [d for d in DType if d is not DType.STRING]


def test_tables__cover_every_type() -> None:
    assert set(FIELD) == set(NUMERIC)
    assert {d.code for d in DType} == set(TensorProto.DataType.values()) - {0}


@st.composite
def raw_tensors(draw: st.DrawFn) -> tuple[DType, list[int], bytes]:
    """A type, a shape and raw_data of it."""
    dtype = draw(st.sampled_from(NUMERIC))
    dims = draw(st.lists(st.integers(0, 5), max_size=3))
    nbytes = dtype.nbytes(int(np.prod(dims, dtype=np.int64)))
    raw = draw(st.binary(min_size=nbytes, max_size=nbytes))
    if dtype is DType.BOOL:
        raw = bytes(b & 1 for b in raw)
    spare = -int(np.prod(dims, dtype=np.int64)) * dtype.bits % 8
    if raw and spare:  # the unused bits of the last byte are zero
        raw = raw[:-1] + bytes([raw[-1] & (0xFF >> spare)])
    return dtype, dims, raw


def entries(dtype: DType, raw: bytes, size: int, signed: bool) -> list[bytes]:
    """The payloads of the typed field that hold these elements, one each."""
    width = {4: 4, 10: 8}.get(FIELD[dtype], max(dtype.bits // 8, 1))
    parts = [raw[i : i + width] for i in range(0, len(raw), width)]
    if FIELD[dtype] in (4, 10):
        return parts
    if dtype.bits == 6:
        stream = int.from_bytes(raw, "little")
        return [varint(stream >> 6 * i & 63) for i in range(len(raw) * 8 // 6)][:size]
    return [varint(int.from_bytes(p, "little", signed=signed)) for p in parts]


@given(raw_tensors(), st.sampled_from(["raw", "packed", "tagged", "chunks"]), st.booleans())
def test_tensor__any_type_in_any_form__equals_onnx(
    tensor: tuple[DType, list[int], bytes], form: str, signed: bool
) -> None:
    dtype, dims, raw = tensor
    field = FIELD[dtype]
    data = b"".join(integer(1, d) for d in dims) + integer(2, dtype.code) + blob(8, "w")
    items = entries(dtype, raw, int(np.prod(dims, dtype=np.int64)), signed and dtype.is_signed)
    wire_type = {4: 5, 10: 1}.get(field, 0)
    if form == "raw":
        data += blob(9, raw)
    elif form == "packed":
        data += blob(field, b"".join(items))
    else:
        tagged = [bytes([field << 3 | wire_type]) + item for item in items]
        if form == "chunks":
            third = len(items) // 3
            packed_part = blob(field, b"".join(items[third : 2 * third]))
            tagged = [*tagged[:third], packed_part, *tagged[2 * third :]]
        data += b"".join(tagged)
    record = read_tensor(data)
    assert bytes(record.raw_bytes()) == raw
    compare_tensor(record, onnx.load_tensor_from_string(data))


@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda d: d.name)
def test_raw_span__verbatim_storage__is_the_bytes_in_the_file(dtype: DType) -> None:
    raw = bytes(range(1, dtype.nbytes(8) + 1)) if dtype is not DType.BOOL else bytes([1, 0] * 4)
    data = integer(1, 8) + integer(2, dtype.code) + blob(9, raw)
    span = read_tensor(data).raw_span()
    assert span is not None and data[span.offset : span.offset + span.length] == raw
    typed = integer(1, 8) + integer(2, dtype.code) + blob(FIELD[dtype], b"".join(entries(dtype, raw, 8, False)))
    verbatim = FIELD[dtype] in (4, 10)
    assert (read_tensor(typed).raw_span() is not None) == verbatim
    assert bytes(read_tensor(typed).raw_bytes()) == raw


@given(st.lists(st.integers(0, (1 << 64) - 1)))
def test_varints__any_values__are_decoded(values: list[int]) -> None:
    assert varints(b"".join(map(varint, values))).tolist() == values


@pytest.mark.parametrize("tagged", [False, True])
def test_int64_data__longer_than_a_block__is_decoded(tagged: bool) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-(1 << 62), 1 << 62, 100_003) >> rng.integers(0, 62, 100_003)
    body = b"".join(b"\x38" + varint(int(v)) for v in values) if tagged else packed(7, values.tolist())
    record = read_tensor(integer(1, values.size) + integer(2, 7) + body)
    np.testing.assert_array_equal(record.to_numpy(), values)


@pytest.mark.parametrize(
    "body", [b"\xff" * 10 + b"\x01", b"\x01\x80", b"\xff" * 600_000, b"\x01" * 262_139 + b"\xff" * 20]
)
def test_int64_data__not_a_sequence_of_integers__is_an_invalid_protobuf(body: bytes) -> None:
    with pytest.raises(InvalidProtobuf, match=r"tensor data|an integer of more than 10 bytes"):
        read_tensor(integer(1, 1) + integer(2, 7) + blob(7, body)).to_numpy()


def test_strings__empty_and_long__are_kept() -> None:
    strings = ["", "é", "x" * 1000, "\0", ""]
    proto = TensorProto(data_type=8, dims=[5], string_data=[s.encode() for s in strings])
    record = read_tensor(proto.SerializeToString())
    assert record.strings() == list(proto.string_data)
    assert record.to_numpy().tolist() == strings
    with pytest.raises(InvalidArgument, match="no raw_data"):
        record.raw_bytes()


def test_scalar_and_empty__shapes__are_kept() -> None:
    assert read_tensor(integer(2, 1) + blob(9, b"\0\0\x80\x3f")).to_numpy().shape == ()
    empty = read_tensor(integer(1, 0) + integer(1, 1 << 40) + integer(2, 1))
    assert empty.nbytes == 0 and empty.to_numpy().shape == (0, 1 << 40)


@pytest.mark.parametrize(
    ("proto", "what"),
    [
        (TensorProto(data_type=1, dims=[2], raw_data=b"123"), "8 bytes, but 3 are stored"),
        (TensorProto(data_type=1, dims=[2], float_data=[1, 2, 3]), "8 bytes, but 12 are stored"),
        (TensorProto(data_type=1, dims=[2]), "but 0 are stored"),
        (TensorProto(data_type=7, dims=[2], int64_data=[1]), "int64_data has 8"),
        (TensorProto(data_type=6, dims=[2], int64_data=[1, 2]), "stored in int32_data, but it has int64_data"),
        (TensorProto(data_type=1, dims=[2], int32_data=[1, 2]), "stored in float_data, but it has int32_data"),
        (TensorProto(data_type=1, dims=[-1], float_data=[1]), "not negative"),
        (TensorProto(data_type=1, dims=[1 << 40, 1 << 40]), "more than 2\\^53 bytes"),
        (TensorProto(data_type=1, dims=[0, 1 << 40, 1 << 40]), "more than 2\\^53 bytes"),
        (TensorProto(data_type=8, dims=[1 << 40], string_data=[b"a"]), "but 1 are stored"),
        (TensorProto(data_type=8, dims=[1 << 60], string_data=[b"a"]), "more than 2\\^53 bytes"),
        (TensorProto(data_type=1, dims=[1] * 65, float_data=[1]), "65 dimensions"),
        (TensorProto(data_type=99, dims=[1], raw_data=b"1"), "element type 99"),
        (TensorProto(dims=[1], raw_data=b"1"), "element type 0"),
        (TensorProto(data_type=8, dims=[2], string_data=[b"a"]), "2 elements, but 1 are stored"),
        (TensorProto(data_type=8, dims=[1], string_data=[b"\xff"]), "not UTF-8"),
        (TensorProto(data_type=8, dims=[1], raw_data=b"a"), "string_data alone"),
    ],
)
def test_tensor__that_contradicts_itself__fails_with_the_reason(proto: TensorProto, what: str) -> None:
    proto.name = "weight"
    with pytest.raises(Fail, match=what) as caught:
        read_tensor(proto.SerializeToString()).to_numpy()
    assert "'weight'" in str(caught.value)


def test_tensor__segment_of_another__is_not_implemented() -> None:
    segment = TensorProto.Segment(begin=0, end=1)
    proto = TensorProto(data_type=1, dims=[1], float_data=[1], segment=segment)
    with pytest.raises(NotImplemented, match="segment"):
        read_tensor(proto.SerializeToString()).to_numpy()


def sparse(values: onnx.TensorProto, indices: onnx.TensorProto, dims: list[int]) -> SparseTensorRecord:
    proto = onnx.SparseTensorProto(values=values, indices=indices, dims=dims)
    graph = read_model(model_of(blob(15, proto.SerializeToString()))).graph
    assert graph is not None
    return graph.sparse_initializer[0]


def of(array: object, dtype: str, name: str = "") -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(array, dtype), name)


@pytest.mark.parametrize("indices", [[1, 5, 11], [[0, 1], [1, 1], [2, 3]]])
def test_sparse__linear_and_coordinate_indices__are_densified(indices: list[int]) -> None:
    record = sparse(of([1.5, 2.5, 3.5], "f4", "s"), of(indices, "i8"), [3, 4])
    expected = np.zeros(12, "f4")
    expected[[1, 5, 11]] = [1.5, 2.5, 3.5]
    assert record.name == "s"
    np.testing.assert_array_equal(record.to_numpy(), expected.reshape(3, 4))
    tensor = record.to_tensor()
    assert isinstance(tensor, TensorRecord) and tensor.name == "s"
    np.testing.assert_array_equal(tensor.to_numpy(), expected.reshape(3, 4))


@pytest.mark.parametrize(
    ("values", "indices", "dims"),
    [
        ([1.0], [12], [3, 4]),
        ([1.0], [-1], [3, 4]),
        ([1.0], [[3, 0]], [3, 4]),
        ([1.0], [[0, -1]], [3, 4]),
        ([1.0, 2.0], [5, 5], [3, 4]),
        ([1.0, 2.0], [5, 4], [3, 4]),
        ([1.0, 2.0], [1], [3, 4]),
        ([[1.0]], [1], [3, 4]),
        ([1.0], [1], [1 << 20, 1 << 20]),
        ([1.0], [1], [-3, -4]),
    ],
)
def test_sparse__that_contradicts_itself__fails(values: list[float], indices: list[int], dims: list[int]) -> None:
    with pytest.raises(Fail):
        sparse(of(values, "f4", "s"), of(indices, "i8"), dims).to_numpy()


def test_sparse__of_strings__is_densified_within_bounds() -> None:
    words = TensorProto(data_type=8, dims=[1], string_data=[b"word"], name="s")
    assert sparse(words, of([1], "i8"), [3]).to_numpy().tolist() == ["", "word", ""]
    with pytest.raises(Fail, match="when dense"):
        sparse(words, of([1], "i8"), [1 << 40]).to_numpy()


def test_sparse__without_parts_or_of_wrong_types__fails() -> None:
    with pytest.raises(Fail, match="int64 indices"):
        sparse(of([1.0], "f4"), of([1], "i4"), [3]).to_numpy()
    graph = read_model(model_of(blob(15, integer(3, 4)))).graph
    assert graph is not None
    with pytest.raises(Fail, match="lacks"):
        graph.sparse_initializer[0].to_numpy()
