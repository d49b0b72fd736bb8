"""The reader against the onnx package, field by field, on every model that package carries or generates."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from pyruntime.onnx.formats.source import FileSource, open_descriptor
from pyruntime.onnx.reader import read_model, read_tensor
from pyruntime.onnx.schema import MODEL
from tests.onnx.compare import compare_model, compare_tensor
from tests.onnx.corpus import FILES, file_id, is_tensor, node_models, tensor_files


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_read_model__every_model_file__equals_onnx_load(path: Path) -> None:
    compare_model(read_model(path), onnx.load(path))


def test_corpus__is_there() -> None:
    assert len(FILES) > 140
    assert len(node_models()) > 1800
    assert len(tensor_files()) > 280


def test_read_model__every_generated_node_model__equals_onnx_load() -> None:
    for name, data in node_models().items():
        try:
            compare_model(read_model(data), onnx.load_from_string(data))
        except Exception as error:
            raise AssertionError(name) from error


def test_read_tensor__every_tensor_file__equals_onnx() -> None:
    for path in tensor_files():
        data = path.read_bytes()
        if is_tensor(data):
            compare_tensor(read_tensor(data), onnx.load_tensor_from_string(data))


@pytest.mark.parametrize("path", [p for p in FILES if "light" in p.parts], ids=file_id)
def test_read_model__in_windows__equals_read_in_memory(path: Path) -> None:
    windowed = read_model(FileSource(open_descriptor(str(path))))
    compare_model(windowed, onnx.load(path))


def test_schema__fields__are_those_of_the_record() -> None:
    """Records are built by position, so the tables must list their attributes in the records' order."""
    seen = []
    pending = [MODEL]
    while pending:
        message = pending.pop()
        if message in seen:
            continue
        seen.append(message)
        pending += [f.message for f in message.numbers.values() if f.message]
        fields = getattr(message.record, "__dataclass_fields__", None)
        if fields is not None:
            assert message.attributes == tuple(fields), message.name
    assert len(seen) == 21


def test_schema__numbers__are_those_of_onnx_proto() -> None:
    """Each table entry against the descriptors compiled from onnx.proto."""
    pending, seen = [(MODEL, onnx.ModelProto.DESCRIPTOR)], set()
    while pending:
        message, descriptor = pending.pop()
        if message.name in seen:
            continue
        seen.add(message.name)
        assert message.name == descriptor.full_name.removeprefix("onnx.")
        for number, field in message.numbers.items():
            proto = descriptor.fields_by_number[number]
            assert (field.message is not None) == (proto.message_type is not None)
            if field.message is not None:
                pending.append((field.message, proto.message_type))
    assert len(seen) == 20
