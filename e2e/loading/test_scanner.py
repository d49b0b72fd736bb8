"""What web/onnx/scanner.js keeps of a model file that passes: all that a reader of its graph looks at, no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script
from pyruntime.compiler.constants import HEAVY
from pyruntime.onnx.formats.payloads import holds
from pyruntime.onnx.formats.source import Buffer, ByteSource
from pyruntime.onnx.importer.extents import FOLDED, LARGE, looked_at
from pyruntime.onnx.reader import read_model
from tests.onnx.compare import compare_model


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


class Segments(ByteSource):
    """A file of which only these parts, (offset, length), are to be read; `outside` counts what is asked for else."""

    smallest_window = 1 << 15

    def __init__(self, data: bytes, kept: list[tuple[int, int]]) -> None:
        super().__init__(len(data))
        self.data, self.parts, self.outside = data, kept, 0

    def fetch(self, offset: int, length: int) -> bytes:
        if not any(at <= offset and offset + length <= at + size for at, size in self.parts):
            self.outside += 1
        return self.data[offset : offset + length]

    def window(self, offset: int, minimum: int = 1) -> tuple[Buffer, int]:
        for at, size in self.parts:
            if holds(self.data[at : at + size], at, offset, minimum, self.size):
                return self.data[at : at + size], at
        return super().window(offset, minimum)


def varied() -> bytes:
    """Large tensors in every place a file has for them: raw, typed, in attributes, subgraphs, functions, sparse."""
    rng = np.random.default_rng(1)
    floats = [
        TensorProto(
            name=f"t{i}",
            data_type=TensorProto.FLOAT,
            dims=[n // 4],
            raw_data=rng.standard_normal(n // 4).astype(np.float32).tobytes(),
        )
        for i, n in enumerate((60_000, 65_536, 262_148, 300_000, 12, 0, 600_000))
    ]
    typed = [
        helper.make_tensor("f", TensorProto.FLOAT, [70_000], rng.standard_normal(70_000).astype(np.float32)),
        helper.make_tensor("i", TensorProto.INT64, [70_000], rng.integers(-9, 1 << 60, 70_000)),
        TensorProto(name="s", data_type=TensorProto.STRING, dims=[2], string_data=[b"a" * 70_000, b"b"]),
    ]
    inner = helper.make_graph([helper.make_node("Identity", ["big"], ["out"])], "inner", [], [], [floats[3]])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=floats[6], name="n" * 300),
        helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner),
        helper.make_node("F", ["x"], ["w"], domain="d", notes="m" * 100_000),
    ]
    function = helper.make_function(
        "d",
        "F",
        ["x"],
        ["w"],
        [helper.make_node("Constant", [], ["w"], value=floats[2])],
        [helper.make_opsetid("", 17)],
    )
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [70_000], np.ones(70_000, np.float32), raw=False),
        helper.make_tensor("v_i", TensorProto.INT64, [70_000], np.arange(70_000)),
        [1 << 20],
    )
    graph = helper.make_graph(
        nodes, "g", [], [], [*floats, *typed], doc_string="d" * 90_000, sparse_initializer=[sparse]
    )
    made = helper.make_model(graph, functions=[function], opset_imports=[helper.make_opsetid("", 17)])
    made.metadata_props.add(key="k", value="v" * 80_000)
    return bytes(made.SerializeToString())


def listed() -> bytes:
    """Attributes of many numbers and texts, each after its tag, before and after a large tensor."""
    rng = np.random.default_rng(2)
    texts = [["LEAF", "BRANCH_LEQ", "", "J" * 200][i] for i in rng.integers(0, 4, 30_000)]
    ints = (rng.integers(-(1 << 62), 1 << 62, 30_000) >> rng.integers(0, 62, 30_000)).tolist()
    floats = rng.standard_normal(30_000).astype(np.float32).tolist()
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [900_000], bytes(3_600_000), raw=True)
    nodes = [
        helper.make_node("F", ["x"], ["y"], domain="d", texts=texts, ints=ints, floats=floats),
        helper.make_node("Constant", [], ["c"], value=tensor),
        helper.make_node("F", ["x"], ["z"], domain="d", texts=texts[::-1], ints=ints[::-1], floats=floats[::-1]),
    ]
    made = helper.make_model(helper.make_graph(nodes, "g", [], []), opset_imports=[helper.make_opsetid("", 17)])
    return bytes(made.SerializeToString())


STEPS = [1 << 20, 65_536, 4097, 19]


@pytest.mark.parametrize(
    ("make", "most", "step"),
    [
        *[(make, most, step) for make, most in ((varied, 800_000), (listed, 5_000_000)) for step in STEPS],
        (varied, 800_000, 1),
    ],
)
def test_scanner__chunks_of_any_size__keeps_what_reading_the_graph_takes(
    make: Callable[[], bytes], most: int, script: Script, served: dict[str, Served], step: int
) -> None:
    data = make()
    served["/m/file.onnx"] = Served(data)
    kept, right = script(
        """const { Scanner } = await import('/src/web/onnx/scanner.js');
        const bytes = new Uint8Array(await (await fetch('/m/file.onnx')).arrayBuffer());
        const scanner = new Scanner();
        for (let at = 0; at < bytes.length; at += step) scanner.push(bytes.slice(at, at + step));
        scanner.end();
        const { segments } = scanner;
        const right = segments.every(({ at, bytes: part }) => part.every((value, i) => value === bytes[at + i]));
        return [segments.map(({ at, bytes: part }) => [at, part.length]), right];""",
        step=step,
    )
    assert right
    source = Segments(data, [(at, size) for at, size in kept])
    record = read_model(source)
    assert source.outside == 0
    compare_model(record, onnx.load_from_string(data))
    assert sum(size for _, size in kept) < most < len(data)


def test_scanner__hundreds_of_tensors_that_may_be_folded__keeps_no_more_than_the_first(
    script: Script, served: dict[str, Served]
) -> None:
    part = np.zeros(32_768, np.float32)
    tensors = [TensorProto(name=f"t{i}", data_type=1, dims=part.shape, raw_data=part.tobytes()) for i in range(200)]
    served["/m/file.onnx"] = Served(helper.make_model(helper.make_graph([], "g", [], [], tensors)).SerializeToString())
    nbytes = script(
        """const { Scanner } = await import('/src/web/onnx/scanner.js');
        const scanner = new Scanner();
        scanner.push(new Uint8Array(await (await fetch('/m/file.onnx')).arrayBuffer()));
        scanner.end();
        return scanner.nbytes;"""
    )
    assert 64 * part.nbytes <= nbytes < 65 * part.nbytes


def sizes() -> list[tuple[int, int]]:
    """Element types with bytes around each limit, and then more than may be folded of one file."""
    kinds = (TensorProto.FLOAT, TensorProto.UINT8, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.COMPLEX128)
    wide = (TensorProto.INT64, TensorProto.DOUBLE, TensorProto.UINT64, TensorProto.COMPLEX64)
    limits = (LARGE, 4 * FOLDED, 8 * FOLDED)
    around = [(kind, limit + more) for kind in (*kinds, *wide) for limit in limits for more in (0, 16)]
    return [(TensorProto.FLOAT, 64), *around, *[(TensorProto.INT64, 8 * FOLDED - 16)] * 10, *around]


def test_scanner__tensors_of_each_size_and_type__are_those_that_are_looked_at_in_other_files(
    script: Script, served: dict[str, Served]
) -> None:
    inside, outside, at = [], [], 0
    for i, (kind, nbytes) in enumerate(sizes()):
        count = nbytes // helper.tensor_dtype_to_np_dtype(kind).itemsize
        inside.append(TensorProto(name=f"t{i}", data_type=kind, dims=[count], raw_data=bytes(nbytes)))
        at += 4096  # apart, so that each is a range of its own
        made = TensorProto(name=f"t{i}", data_type=kind, dims=[count], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "w.bin"), ("offset", at), ("length", nbytes)):
            made.external_data.add(key=key, value=str(value))
        outside.append(made)
        at += nbytes
    data = helper.make_model(helper.make_graph([], "g", [], [], inside)).SerializeToString()
    served["/m/file.onnx"] = Served(data)
    kept = script(
        """const { Scanner } = await import('/src/web/onnx/scanner.js');
        const scanner = new Scanner();
        scanner.push(new Uint8Array(await (await fetch('/m/file.onnx')).arrayBuffer()));
        scanner.end();
        return scanner.segments.map(({ at, bytes }) => [at, at + bytes.length]);"""
    )
    graph = read_model(data).graph
    assert graph is not None
    spans = [tensor.raw for tensor in graph.initializer if tensor.raw]
    scanned = [any(a <= at and at + size <= b for a, b in kept) for at, size in spans]
    (ranges,) = looked_at(
        read_model(helper.make_model(helper.make_graph([], "g", [], [], outside)).SerializeToString())
    ).values()
    begins = dict(ranges)
    places = [
        {entry.key: int(entry.value) for entry in made.external_data if entry.key != "location"} for made in outside
    ]
    looked = [begins.get(place["offset"]) == place["offset"] + place["length"] for place in places]
    assert looked == scanned and FOLDED == HEAVY
    assert 0 < sum(scanned) < len(scanned) and not all(scanned[-54:]) and len(scanned) == len(sizes())


def test_scanner__tensor_of_more_than_4_gib__counts_right(script: Script) -> None:
    size = 5 << 30
    small = TensorProto(name="after", data_type=TensorProto.FLOAT, dims=[1], raw_data=bytes(4)).SerializeToString()
    head = TensorProto(name="big", data_type=TensorProto.FLOAT, dims=[size // 4]).SerializeToString() + field(9, size)
    tensor = field(5, len(head) + size) + head
    after = field(5, len(small)) + small
    front = field(7, len(tensor) + size + len(after)) + tensor
    kept = script(
        """const { Scanner } = await import('/src/web/onnx/scanner.js');
        const scanner = new Scanner();
        scanner.push(decode(front));
        const zeros = new Uint8Array(64 << 20);
        for (let at = 0; at < size; at += zeros.length) scanner.push(zeros);
        scanner.push(decode(after));
        scanner.end();
        return scanner.segments.map(({ at, bytes }) => [at, bytes.length]);""",
        front=front,
        after=after,
        size=size,
    )
    assert kept == [[0, 512], [len(front) + size, len(after)]]


def field(number: int, size: int) -> bytes:
    """Tag and length of a length-delimited field."""
    out = bytearray([number << 3 | 2])
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size])
