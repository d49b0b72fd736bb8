"""External data that still arrive: what planning may look at is asked for once, ahead of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pyruntime.compiler import constants
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.onnx.formats.source import ArrivingSource, Awaited
from pyruntime.onnx.importer import extents as extents_module
from pyruntime.onnx.importer.extents import FOLDED, LARGE, MOST_FOLDED, looked_at
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.load.loading import external_files, when_there
from pyruntime.session.run.program import Program
from tools.zoo import sample
from tools.zoo.check import GPU

SIDE = 160  # a weight of 102,400 bytes, which may be folded


class Arriving(ArrivingSource):
    """Bytes of which nothing has come; `log` has what was read too early, then what was waited for."""

    def __init__(self, data: bytes, has_ranges: bool = True) -> None:
        super().__init__(len(data))
        self.data, self.has_ranges = data, has_ranges
        self.here: list[tuple[int, int]] = []
        self.log: list[str] = []

    def fetch(self, offset: int, length: int) -> bytes:
        if length and not any(begin <= offset and offset + length <= end for begin, end in self.here):
            self.log.append("awaited")
            raise Awaited(self, offset + length)
        return self.data[offset : offset + length]

    async def there(self, end: int) -> None:
        self.log.append(f"there {end}")
        self.here.append((0, end))

    async def complete(self) -> None:
        self.log.append("complete")
        self.here.append((0, self.size))

    async def ahead(self, ranges: Sequence[tuple[int, int]]) -> bool:
        self.log.append(f"ahead {len(ranges)}")
        self.here += ranges if self.has_ranges else []
        return self.has_ranges


def external(*tensors: tuple[str, np.ndarray[Any, Any]], gap: int = 0) -> tuple[list[TensorProto], bytes]:
    """Tensors in a file "w.bin", `gap` bytes between them, and that file's bytes."""
    made, data = [], bytearray()
    for name, array in tensors:
        tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "./w.bin"), ("offset", len(data)), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        made.append(tensor)
        data += array.tobytes() + bytes(gap)
    return made, bytes(data)


def serialized(nodes: list[Any], tensors: list[TensorProto], shape: list[int]) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def chained(table: int = 0) -> tuple[bytes, bytes]:
    """y = x W S S, reshaped after each product; of `table` numbers, which come first, one is the first shape's."""
    weight = np.zeros((600, 600), np.float32)
    arrays = [("w0", weight), ("s0", np.array([4, 600])), ("w1", weight), ("s1", np.array([2, 2, 600]))]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["m0"])]
    if table:
        arrays = [("t", np.arange(table)), ("i", np.array([600])), *arrays]
        nodes.append(helper.make_node("Gather", ["t", "i"], ["wide"]))
        nodes.append(helper.make_node("Concat", ["four", "wide"], ["s0"], axis=0))
        arrays = [("four", np.array([4])), *[(name, array) for name, array in arrays if name != "s0"]]
    nodes.append(helper.make_node("Reshape", ["m0", "s0"], ["h"]))
    nodes.append(helper.make_node("MatMul", ["h", "w1"], ["m1"]))
    nodes.append(helper.make_node("Reshape", ["m1", "s1"], ["y"]))
    tensors, data = external(*arrays)
    return serialized(nodes, tensors, [4, 600]), data


def planned(model: bytes, source: ArrivingSource, types: dict[str, TensorType], location: str = "w.bin") -> Any:
    """The first stage for inputs of these types, planned while `source`, the file of the weights, arrives."""

    async def plan() -> Any:
        record = read_model(model)
        files = await external_files(record, {location: source}, None)

        async def imported() -> Any:
            return import_model(record, files)

        made = await when_there(imported)
        program = Program(made.graph, NullDevice(GPU))
        outputs = [value.name for value in made.graph.outputs]
        stage = await when_there(lambda: program.prepare(types, outputs))
        program.release()
        return stage

    return asyncio.run(plan())


X = {"x": TensorType(DType.FLOAT, (4, 600))}


def test_when_there__ranges_are_to_be_had__plans_once_more() -> None:
    model, data = chained()
    source = Arriving(data)
    stage = planned(model, source, X)
    assert stage.compiled.types["y"].shape == (2, 2, 600)
    assert source.log == ["awaited", "ahead 2"] and source.looked_at == ()


def test_when_there__no_ranges__waits_twice_then_for_all() -> None:
    model, data = chained()
    source = Arriving(data, has_ranges=False)
    assert planned(model, source, X).compiled.types["y"].shape == (2, 2, 600)
    first = 600 * 600 * 4 + 16
    assert source.log == ["awaited", "ahead 2", f"there {first}", "awaited", "complete"]


def test_when_there__large_constant_first__waits_for_it_and_reads_the_rest_ahead() -> None:
    count = 8 * FOLDED // 8 + 1
    model, data = chained(count)
    source = Arriving(data)
    assert planned(model, source, X).compiled.types["y"].shape == (2, 2, 600)
    waits = [line for line in source.log if line != "awaited"]
    assert sorted(waits) == sorted([f"there {8 + 8 * count}", "ahead 3"])
    assert source.log.count("awaited") == 2


def test_when_there__bytes_that_were_not_predicted__are_waited_for() -> None:
    data = bytes(100)
    source = Arriving(data)
    source.looked_at = [(10, 20)]

    async def work() -> int:
        return len(source.read(30, 5))

    assert asyncio.run(when_there(work)) == 5
    assert source.log == ["awaited", "there 35"] and source.looked_at == [(10, 20)]
    for end in (20, 11):  # within the range
        source = Arriving(data)
        source.looked_at = [(0, 5), (10, 20), (40, 50)]
        assert asyncio.run(Awaited(source, end).ahead())
    for end in (10, 21, 51, 6):
        source = Arriving(data)
        source.looked_at = [(0, 5), (10, 20), (40, 50)]
        assert not asyncio.run(Awaited(source, end).ahead()) and source.log == []


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.float64, np.uint8, np.float16, np.complex64])
def test_looked_at__each_type__goes_as_far_as_what_may_be_folded(kind: Any) -> None:
    width = 8 if kind in (np.int64, np.float64, np.complex64) else 4
    itemsize = np.dtype(kind).itemsize
    sizes = [0, itemsize, LARGE, LARGE + itemsize, width * FOLDED, width * FOLDED + itemsize, 1 << 20]
    tensors, _ = external(*((f"t{i}", np.zeros(size // itemsize, kind)) for i, size in enumerate(sizes)), gap=1)
    (ranges,) = looked_at(read_model(serialized([], tensors, [1]))).values()
    begins = [sum(sizes[:i]) + i for i in range(len(sizes))]
    assert ranges == [(begins[i], begins[i] + sizes[i]) for i in (1, 2, 3, 4)]


def test_looked_at__many_that_may_be_folded__the_first_of_them() -> None:
    size = 4 * FOLDED
    tensors, _ = external(*((f"t{i}", np.zeros(size, np.uint8)) for i in range(40)), ("s", np.zeros(3)), gap=1)
    (ranges,) = looked_at(read_model(serialized([], tensors[::-1], [1]))).values()
    assert len(ranges) == MOST_FOLDED // size + 1 and ranges[-1] == (40 * (size + 1), 40 * (size + 1) + 24)


def test_looked_at__tensors_that_touch_or_are_stored_once__are_one_range() -> None:
    tensors, _ = external(*((f"t{i}", np.zeros(5)) for i in range(3)))
    tensors.append(TensorProto(name="again", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL))
    tensors[-1].external_data.extend(tensors[1].external_data)
    bad = TensorProto(name="bad", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    bad.external_data.add(key="location", value="w.bin")
    bad.external_data.add(key="offset", value="-4")
    assert looked_at(read_model(serialized([], [*tensors, bad], [1]))) == {"w.bin": [(0, 120)]}


def types_of(feeds: dict[str, np.ndarray[Any, Any]]) -> dict[str, TensorType]:
    return {name: TensorType(DType.from_numpy(array.dtype), array.shape) for name, array in feeds.items()}


def planned_sample(name: str, folder: Path) -> Arriving:
    """Plans a model of the sample whose tensors of 16 bytes and more are in one file; what became of that."""
    model, runs = sample.load(name)
    path = folder / "model.onnx"
    made = onnx.load_from_string(model)
    onnx.save(made, str(path), save_as_external_data=True, location="w.bin", size_threshold=16, convert_attribute=True)
    source = Arriving((folder / "w.bin").read_bytes())
    assert planned(path.read_bytes(), source, types_of(runs[0])) is not None
    return source


@pytest.mark.parametrize("name", sample.names())
def test_planning__exported_architecture__looks_at_nothing_else(name: str, tmp_path: Path) -> None:
    source = planned_sample(name, tmp_path)
    assert source.log[0] == "awaited" and source.log[1].startswith("ahead ") and len(source.log) == 2


@pytest.mark.parametrize("name", sample.names())
def test_planning__limits_as_small_as_the_model__looks_at_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample's weights are small: with a sixteenth of each limit, most of them are too large to be looked at."""
    for module, limit in ((extents_module, "LARGE"), (extents_module, "FOLDED"), (constants, "HEAVY")):
        monkeypatch.setattr(module, limit, getattr(module, limit) // 16)
    source = planned_sample(name, tmp_path)
    # Its table of relative positions, which planning gathers from, has 310 KB: more than is folded by these limits.
    tables = 1 if name == "timm-vision_transformer_relpos" else 0
    assert source.log.count("awaited") == 1 + tables and len(source.log) == 2 + 2 * tables
