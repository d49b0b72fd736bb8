"""A model that is read while its bytes come: the same record or error, and nothing is asked for before it is there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from pyruntime.errors import OrtError
from pyruntime.onnx.reader import read_model, reading_model
from pyruntime.onnx.records import ModelRecord
from tests.following import Following
from tests.onnx.compare import compare_model
from tests.onnx.corpus import FILES, file_id
from tests.onnx.encode import blob, model
from tests.onnx.test_hostile import everything


def followed(source: Following) -> ModelRecord:
    """Read a model from a source that gives no more bytes than were awaited."""
    reading = reading_model(source)
    while True:
        try:
            source.come(next(reading))
        except StopIteration as done:
            record: ModelRecord = done.value
            return record


@pytest.mark.parametrize("path", [p for p in FILES if "light" in p.parts], ids=file_id)
@pytest.mark.parametrize("step", [1, 1000, 1 << 18])
def test_reading_model__bytes_come_in_steps__equals_onnx_load(path: Path, step: int) -> None:
    compare_model(followed(Following(path.read_bytes(), step)), onnx.load(path))


@settings(max_examples=100)
@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(1, 3000))
@example(b"\x8a\x01\x80", 0, 1)  # a field that is not read, longer than the file
@example(b"\xc2\x80\x80\x80\x10", 650, 1)  # the same, of a number that no field has
def test_reading_model__any_bytes__same_outcome_as_in_memory(junk: bytes, where: int, step: int) -> None:
    base = everything()
    data = base[: where % len(base)] + junk + base[where % len(base) :]

    def outcome(source: Following | bytes) -> object:
        try:
            record = followed(source) if isinstance(source, Following) else read_model(source)
        except OrtError as error:
            return type(error), str(error)
        return [(n.name, n.op_type, n.input) for n in record.graph.node] if record.graph else None

    assert outcome(Following(data, step)) == outcome(data)


@pytest.mark.parametrize("cut", [1, 5, 600, 2500, 50_000])
@pytest.mark.parametrize("storage", ["raw_data", "float_data", "doc_string"])
def test_reading_model__cut_short__same_error_as_in_memory(storage: str, cut: int) -> None:
    values: dict[str, Any] = {"float_data": [1.0] * 30_000, "raw_data": bytes(100_000), "doc_string": "x" * 100_000}
    tensor = TensorProto(dims=[1], **{storage: values[storage]})
    data = model(blob(5, tensor.SerializeToString()) + blob(2, "g" * 2000))[:-cut]
    with pytest.raises(OrtError) as whole:
        read_model(data)
    with pytest.raises(OrtError) as arriving:
        followed(Following(data, 4096))
    assert (type(arriving.value), str(arriving.value)) == (type(whole.value), str(whole.value))


def test_reading_model__no_model__is_told_by_its_beginning() -> None:
    source = Following(b"GGUF" + random.Random(0).randbytes(1 << 20), 4096)
    with pytest.raises(OrtError, match="a GGUF file"):
        followed(source)
    assert source.here == 4096


def test_reading_model__weights_between__little_is_left_when_all_has_come() -> None:
    """Forty nodes before 40 weights of 100 kB: after the last byte only the last weight is read."""
    nodes = [
        helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"], name=f"/layer.{i}/MatMul") for i in range(40)
    ]
    weights = [TensorProto(name=f"w{i}", data_type=1, dims=[160, 160], raw_data=bytes(102_400)) for i in range(40)]
    x, y = (helper.make_tensor_value_info(name, 1, [1, 160]) for name in ("v0", "v40"))
    made = helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights)).SerializeToString()
    source = Following(made, 1 << 18)
    record = followed(source)
    assert record.graph is not None and len(record.graph.node) == len(record.graph.initializer) == 40
    assert source.fetched < 60_000 and source.fetched_at_the_end < 4_000
