"""External data: only what the caller gave, only within what is there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.errors import Fail, InvalidArgument, NoSuchFile, OrtError
from pyruntime.onnx.formats.external import ExternalDirectory, ExternalFiles
from pyruntime.onnx.formats.source import MemorySource
from pyruntime.onnx.formats.tensor import TensorRecord
from pyruntime.onnx.reader import read_model, read_tensor

VALUES = np.arange(6, dtype=np.float32)


def tensor(**entries: str) -> TensorRecord:
    """float[6] named 'w' with these external_data entries."""
    proto = TensorProto(name="w", data_type=1, dims=[6], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        proto.external_data.add(key=key, value=value)
    return read_tensor(proto.SerializeToString())


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "w.bin", "offset": "8", "length": "24"},
        {"location": "./w.bin", "offset": "8"},
        {"location": "w.bin", "offset": "8", "length": "24", "checksum": "x", "other": "y"},
    ],
)
def test_files__span_within_a_file__is_read(entries: dict[str, str], tmp_path: Path) -> None:
    data = bytes(8) + VALUES.tobytes() + b"tail"
    (tmp_path / "w.bin").write_bytes(data)
    for external in (
        ExternalFiles({"w.bin": data}),
        ExternalFiles({"./w.bin": memoryview(data)}),
        ExternalFiles({"w.bin": MemorySource(data)}),
        ExternalDirectory(tmp_path),
    ):
        np.testing.assert_array_equal(tensor(**entries).to_numpy(external), VALUES)
        span = tensor(**entries).raw_span(external)
        assert span is not None and (span.offset, span.length) == (8, 24)


def test_directory__model_saved_by_onnx__equals_onnx_load(tmp_path: Path) -> None:
    arrays = [np.random.default_rng(i).random((50, 40)) for i in range(3)]
    weights = [numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(arrays)]
    model = helper.make_model(helper.make_graph([], "g", [], [], weights))
    (tmp_path / "data").mkdir()
    onnx.save_model(
        model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="data/w.bin", size_threshold=0
    )
    external = ExternalDirectory.of(tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx").graph
    assert graph is not None and all(t.is_external for t in graph.initializer)
    for record, array in zip(graph.initializer, arrays, strict=True):
        np.testing.assert_array_equal(record.to_numpy(external), array)
    first, second = (t.raw_span(external) for t in graph.initializer[:2])
    assert first is not None and second is not None and first.source is second.source


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"location": ""},
        {"location": "w.bin", "offset": "9"},
        {"location": "w.bin", "offset": "33"},
        {"location": "w.bin", "offset": "-1"},
        {"location": "w.bin", "offset": "99999999999999999999"},
        {"location": "w.bin", "offset": "1e3"},
        {"location": "w.bin", "length": "23"},
        {"location": "w.bin", "length": "25"},
        {"location": "w.bin", "length": "9" * 30},
        {"location": "w.bin", "length": "٣"},
        {"location": "*/_ORT_MEM_ADDR_/*"},
    ],
)
def test_files__span_that_does_not_fit__fails(entries: dict[str, str]) -> None:
    with pytest.raises(Fail, match="'w'"):
        tensor(**entries).to_numpy(ExternalFiles({"w.bin": bytes(32), "*/_ORT_MEM_ADDR_/*": bytes(32)}))


def test_files__not_given__names_the_file_and_what_was_given() -> None:
    with pytest.raises(NoSuchFile, match=r"'w\.bin'"):
        tensor(location="w.bin").to_numpy()
    with pytest.raises(NoSuchFile, match=r"'w\.bin', which was not given \(given: 'v\.bin'\)"):
        tensor(location="w.bin").to_numpy(ExternalFiles({"v.bin": b""}))
    with pytest.raises(InvalidArgument):
        tensor(location="w.bin").to_numpy(ExternalFiles({"w.bin": "text"}))


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A model's directory with weights, and a secret next to it."""
    directory = tmp_path / "model"
    (directory / "sub").mkdir(parents=True)
    (directory / "w.bin").write_bytes(VALUES.tobytes())
    (tmp_path / "secret").write_bytes(VALUES.tobytes())
    (tmp_path / "model-of-others").mkdir()
    (tmp_path / "model-of-others" / "w.bin").write_bytes(VALUES.tobytes())
    return directory


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "sub/../../secret",
        "sub/../w.bin",
        "..",
        "{model_folder}/w.bin",
        "/etc/passwd",
        "file:///etc/passwd",
        "http://example.org/w.bin",
        "C:\\w.bin",
        "C:w.bin",
        "..\\secret",
        "sub\\..\\..\\secret",
        "w.bin\0",
        "../model-of-others/w.bin",
    ],
)
def test_directory__way_out__is_refused(model_folder: Path, location: str) -> None:
    with pytest.raises(Fail, match="only a relative path inside"):
        tensor(location=location.format(model_folder=model_folder)).to_numpy(ExternalDirectory(model_folder))


@pytest.mark.parametrize("location", ["missing.bin", "sub/missing.bin", "w.bin/x", "sub", ".", "x" * 5000])
def test_directory__nothing_to_read__is_an_error_of_ours(model_folder: Path, location: str) -> None:
    with pytest.raises(OrtError):
        tensor(location=location).to_numpy(ExternalDirectory(model_folder))


@pytest.mark.parametrize("target", ["../secret", "../model-of-others/w.bin"])
def test_directory__symbolic_link_out__is_refused(model_folder: Path, target: str) -> None:
    (model_folder / "link.bin").symlink_to(target)
    with pytest.raises(Fail, match="a link that leaves"):
        tensor(location="link.bin").to_numpy(ExternalDirectory(model_folder))


def test_directory__symbolic_link_to_a_directory_outside__is_refused(model_folder: Path) -> None:
    (model_folder / "out").symlink_to("../model-of-others")
    with pytest.raises(Fail, match="a link that leaves"):
        tensor(location="out/w.bin").to_numpy(ExternalDirectory(model_folder))


def test_directory__hard_link__is_refused(model_folder: Path) -> None:
    os.link(model_folder.parent / "secret", model_folder / "hard.bin")
    with pytest.raises(Fail, match="hard link"):
        tensor(location="hard.bin").to_numpy(ExternalDirectory(model_folder))


def test_directory__pipe__is_refused_without_waiting(model_folder: Path) -> None:
    os.mkfifo(model_folder / "pipe")
    with pytest.raises(Fail, match="not a regular file"):
        tensor(location="pipe").to_numpy(ExternalDirectory(model_folder))


def test_directory__links_within_it__are_followed(model_folder: Path, tmp_path: Path) -> None:
    (model_folder / "link.bin").symlink_to("w.bin")
    np.testing.assert_array_equal(tensor(location="link.bin").to_numpy(ExternalDirectory(model_folder)), VALUES)
    (tmp_path / "alias").symlink_to(model_folder)
    np.testing.assert_array_equal(tensor(location="w.bin").to_numpy(ExternalDirectory(tmp_path / "alias")), VALUES)


def test_directory__model_and_weights_both_links_into_a_store__are_followed(tmp_path: Path) -> None:
    """Download caches keep files by hash and link a snapshot's names to them."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "a1").write_bytes(b"the model")
    (blobs / "b2").write_bytes(VALUES.tobytes())
    (snapshot / "model.onnx").symlink_to("../../blobs/a1")
    (snapshot / "model.onnx_data").symlink_to("../../blobs/b2")
    external = ExternalDirectory.of(snapshot / "model.onnx")
    np.testing.assert_array_equal(tensor(location="model.onnx_data").to_numpy(external), VALUES)
    with pytest.raises(Fail, match="a link that leaves"):
        tensor(location="model.onnx_data").to_numpy(ExternalDirectory(snapshot))
