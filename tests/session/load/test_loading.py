"""Files that are still arriving, and files that were not given."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime import InferenceSession
from pyruntime.device.null import NullDevice
from pyruntime.errors import Fail, NoSuchFile
from pyruntime.ir import DType, TensorType
from pyruntime.onnx.formats.external import relative_address
from pyruntime.onnx.formats.source import ArrivingSource, Awaited
from pyruntime.onnx.importer.extents import extents
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.load.loading import Fetched, external_files, when_there
from pyruntime.session.run.program import Program
from tests.following import Following

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)
INDICES = np.array([4, 3], np.int64)


class Arriving(ArrivingSource):
    """Bytes that come `step` at a time, at each wait; `size` may be claimed."""

    def __init__(self, data: bytes, step: int, claimed: int | None = None) -> None:
        super().__init__(len(data) if claimed is None else claimed)
        self.data, self.step, self.here, self.waits = data, step, 0, 0

    def fetch(self, offset: int, length: int) -> bytes:
        if offset + length > self.here and self.here < len(self.data):
            raise Awaited(self, offset + length)
        return self.data[offset : offset + length]

    async def there(self, end: int) -> None:
        self.waits += 1
        while self.here < min(end, len(self.data)):
            await asyncio.sleep(0)
            self.here += self.step

    async def complete(self) -> None:
        await self.there(len(self.data))
        self.size = len(self.data)


def tensor(name: str, array: np.ndarray[Any, Any], location: str, **entries: int) -> TensorProto:
    made = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
    made.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        made.external_data.add(key=key, value=str(value))
    return made


def model(*tensors: TensorProto) -> bytes:
    """y = Reshape(x + w, shape): planning it takes the value of `shape`."""
    nodes = [helper.make_node("Add", ["x", "w"], ["h"]), helper.make_node("Reshape", ["h", "shape"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], list(tensors))
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )


TWO_FILES = model(tensor("w", WEIGHT, "./a.bin", offset=8, length=48), tensor("shape", INDICES, "b/c.bin"))


def test_session__files_arrive_later__is_the_same() -> None:
    asked: list[str] = []
    files = {"a.bin": Arriving(bytes(8) + WEIGHT.tobytes(), 5), "b/c.bin": Arriving(INDICES.tobytes(), 3)}

    async def fetch_relative(address: str) -> Any:
        asked.append(address)
        return files[address]

    session = asyncio.run(InferenceSession.create(Fetched(TWO_FILES, fetch_relative)))
    (y,) = session.run(None, {"x": np.ones((3, 4), np.float32)})
    np.testing.assert_array_equal(y, (WEIGHT + 1).reshape(4, 3))
    assert sorted(asked) == ["a.bin", "b/c.bin"]
    assert all(file.here >= len(file.data) for file in files.values())


def test_session__model_comes_in_order__is_read_as_it_comes() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(8)]
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(8)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("v0", "v8"))
    tensors = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    source = Following(made.SerializeToString(), 20_000)
    session = asyncio.run(InferenceSession.create(Fetched(source, None)))
    fed = rng.standard_normal((1, 64)).astype(np.float32)
    (got,) = session.run(None, {"v0": fed})
    np.testing.assert_allclose(got, np.linalg.multi_dot([fed, *weights]), rtol=1e-4, atol=1e-2)
    assert source.here == source.size and 3 <= source.waits <= 10


def test_when_there__planning_looks_at_a_value_that_has_not_come__waits_and_plans_again() -> None:
    """The plan needs the shape, and no weight: of the weights' file nothing has come when it is made."""
    weights, shapes = Arriving(bytes(8) + WEIGHT.tobytes(), 5), Arriving(INDICES.tobytes(), 3)
    graph = import_model(read_model(TWO_FILES), {"a.bin": weights, "b/c.bin": shapes}).graph
    program = Program(graph, NullDevice())
    x = TensorType(DType.FLOAT, (3, 4))
    with pytest.raises(Awaited):
        asyncio.run(program.prepare({"x": x}, ["y"]))
    stage = asyncio.run(when_there(lambda: program.prepare({"x": x}, ["y"])))
    assert stage is not None and shapes.waits == 1 and weights.here == 0
    assert stage.compiled.types["y"] == TensorType(DType.FLOAT, (4, 3))
    program.release()


def test_external_files__given_ones__are_not_asked_for() -> None:
    asked: list[str] = []

    async def fetch_relative(address: str) -> Any:
        asked.append(address)
        return INDICES.tobytes()

    given = {"./a.bin": bytes(8) + WEIGHT.tobytes()}
    files = asyncio.run(external_files(read_model(TWO_FILES), given, fetch_relative))
    assert asked == ["b/c.bin"] and sorted(files) == ["a.bin", "b/c.bin"]


def test_external_files__claimed_size_below_what_is_needed__waits_for_the_real_one() -> None:
    """As where another origin tells the length of a compressed form."""
    file = Arriving(bytes(8) + WEIGHT.tobytes(), 7, claimed=20)
    asyncio.run(external_files(read_model(TWO_FILES), {"a.bin": file, "b/c.bin": INDICES.tobytes()}, None))
    assert file.size == 56 and file.here >= 56


def test_external_files__claimed_size_is_enough__does_not_wait() -> None:
    file = Arriving(bytes(8) + WEIGHT.tobytes(), 7)
    asyncio.run(external_files(read_model(TWO_FILES), {"a.bin": file, "b/c.bin": INDICES.tobytes()}, None))
    assert file.waits == 0


def test_external_files__not_there__names_file_and_reason() -> None:
    async def fetch_relative(address: str) -> Any:
        raise ValueError(f"{address}: HTTP status 404")

    with pytest.raises(NoSuchFile, match=r"'a\.bin', which was not given and could not .* a\.bin: HTTP status 404"):
        asyncio.run(external_files(read_model(TWO_FILES), {}, fetch_relative))


@pytest.mark.parametrize("location", ["../a.bin", "/a.bin", "w/../a.bin", "https://host/a.bin", "w\\a.bin"])
def test_relative_address__path_that_leaves_the_folder__is_refused(location: str) -> None:
    with pytest.raises(Fail, match="inside the model's directory"):
        relative_address(location)


def test_relative_address__any_name__stays_one_path() -> None:
    assert relative_address("w/a b?c#d%2e.bin") == "w/a%20b%3Fc%23d%252e.bin"


def test_extents__offsets_beyond_4_gib__are_exact() -> None:
    record = read_model(
        model(tensor("w", WEIGHT, "a.bin", offset=5 << 32, length=48), tensor("shape", INDICES, "a.bin"))
    )
    assert extents(record) == {"a.bin": (5 << 32) + 48}


def test_extents__tensors_of_attributes_and_subgraphs__count() -> None:
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor("v", WEIGHT, "deep.bin", offset=4))],
        "inner",
        [],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)],
        [tensor("i", INDICES, "inner.bin")],
    )
    graph = helper.make_graph([helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner)], "g", [], [])
    assert extents(read_model(helper.make_model(graph).SerializeToString())) == {"deep.bin": 52, "inner.bin": 16}


def test_awaited__is_no_exception_that_planning_takes_for_a_failure() -> None:
    assert not issubclass(Awaited, Exception)
