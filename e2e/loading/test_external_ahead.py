"""External data that a model is planned with before they have come: what planning looks at is read ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from e2e.harness.chain import NBYTES, ROW, SIZE, expected, weight
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script

LAYERS = 5
GATE = 4 << 20
MODEL, DATA = "/m/model.onnx", "/m/model.onnx.data"

PREPARE = """async ({ inWorker, nbytes }) => {
    const { prototype } = (await import('/src/web/loading/file.js')).ModelFile;
    const { downloads } = await import('/src/web/loading/downloads.js');
    const { openFile } = await import('/src/web/loading/download.js');
    globalThis.own ??= {
        partNow: prototype.partNow, createBuffer: GPUDevice.prototype.createBuffer, open: downloads.open };
    const { partNow, createBuffer, open } = globalThis.own;
    globalThis.waits = 0;
    globalThis.buffers = 0;
    globalThis.elsewhere = 0;
    prototype.partNow = function (...asked) {
        const found = partNow.call(this, ...asked);
        if (!found) globalThis.waits += 1;
        return found;
    };
    GPUDevice.prototype.createBuffer = function (asked) {
        if (asked.size >= nbytes) globalThis.buffers += 1;
        return createBuffer.call(this, asked);
    };
    downloads.open = async function (...asked) {
        const opened = await (inWorker ? open.apply(this, asked) : openFile(...asked));
        if (opened.isElsewhere) globalThis.elsewhere += 1;
        return opened;
    };
}"""
"""Counts what Python asks for before it is there, each time it plans once more; large buffers, as weights
have, made after planning; files that the downloads' worker brings."""

BEGIN = """({ options, url }) => {
    globalThis.told = null;
    globalThis.made = import('/src/web/pyruntime.js')
      .then(({ InferenceSession }) => InferenceSession.create(url, options));
    made.then(() => { told = 'ready'; }, ({ name, message }) => { told = `${name}: ${message}`; });
}"""

FINISH = """const session = await made;
const { y } = await session.run({ x: new Tensor(Float32Array.from(x), [1, x.length]) });
await session.release();
return [[...y.data], y.dims];"""


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


def parted(between: int = 0, layers: int = LAYERS, first: int = LAYERS) -> tuple[bytes, bytes, bytes]:
    """y = x W₀ W₁ ..., reshaped after each product: the graph, and two files of external data.

    After each weight of 9 MB are its shape and tensors of `between` kB; those of `first` layers are in the first file.
    """
    files = {"model.onnx.data": bytearray(), "b.bin": bytearray()}
    tensors: list[TensorProto] = []

    def keep(location: str, name: str, kind: int, dims: list[int], raw: bytes) -> None:
        made = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", len(files[location])), ("length", len(raw))):
            made.external_data.add(key=key, value=str(value))
        tensors.append(made)
        files[location].extend(raw)

    nodes = []
    for i in range(layers):
        location = "model.onnx.data" if i < first else "b.bin"
        keep(location, f"w{i}", TensorProto.FLOAT, [SIZE, SIZE], weight(i))
        keep(location, f"s{i}", TensorProto.INT64, [2], np.array([1, SIZE]).tobytes())
        for k in range(between // 50):
            keep(location, f"b{i}.{k}", TensorProto.FLOAT, [12_500], bytes(50_000))
        nodes.append(helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Reshape", [f"m{i}", f"s{i}"], ["y" if i == layers - 1 else f"h{i + 1}"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIZE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], tensors), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    return bytes(made.SerializeToString()), bytes(files["model.onnx.data"]), bytes(files["b.bin"])


def shaped(data: bytes, *shape: int) -> bytes:
    """These weights with another shape of the result."""
    return data[:-16] + np.array(shape, np.int64).tobytes()


class Loader:
    """Begins a session whose weights are held back, and looks at what happens meanwhile."""

    def __init__(self, script: Script, served: dict[str, Served], in_worker: bool) -> None:
        self.script, self.served, self.in_worker = script, served, in_worker

    def begin(self, file: Served, graph: bytes | None = None, given: bool = False) -> None:
        self.file = self.served[DATA] = file
        self.served[MODEL] = Served(parted()[0] if graph is None else graph)
        self.script.preload()
        self.script.worker.evaluate(PREPARE, {"inWorker": self.in_worker, "nbytes": NBYTES})
        options = {"externalData": [{"path": "model.onnx.data", "data": DATA}]} if given else {}
        self.script.page.evaluate(BEGIN, {"options": options, "url": MODEL})

    def count(self, name: str) -> int:
        return int(self.script.worker.evaluate(f"() => {name}"))

    def wait(self, name: str, least: int = 1) -> None:
        """Wait until the worker has counted so many, and what follows from these is done."""
        self.script.wait_for(f"{name} >= {least}")
        self.script.wait_until_idle()

    def told(self) -> str | None:
        found: str | None = self.script.page.evaluate("told")
        return found

    def check(self, layers: int = LAYERS) -> None:
        """The rest comes: the session is that of the weights."""
        self.file.opened.set()
        values, dims = self.script(FINISH, x=ROW)
        np.testing.assert_array_equal(np.float32(values), expected(layers))
        assert dims == [1, SIZE]


@pytest.fixture(params=[False, True], ids=["here", "worker"])
def loader(request: pytest.FixtureRequest, script: Script, served: dict[str, Served]) -> Loader:
    return Loader(script, served, request.param)


@pytest.mark.parametrize("given", [False, True], ids=["fetched", "given"])
def test_create__weights_held_back__plans_once_more_and_compiles_meanwhile(loader: Loader, given: bool) -> None:
    loader.begin(Served(parted()[1], gate=GATE), given=given)
    loader.wait("buffers")
    assert loader.count("waits") == 1 and loader.count("buffers") == LAYERS and loader.told() is None
    assert loader.count("elsewhere") == (2 if loader.in_worker else 0)
    ends = [(i + 1) * (NBYTES + 16) for i in range(LAYERS)]
    assert sorted(loader.file.parts) == sorted(f"bytes={end - 16}-{end - 1}" for end in ends)
    assert loader.file.comes_to(GATE)
    loader.check()
    assert loader.count("waits") == 1 and loader.file.asked == [""] and len(loader.file.parts) == LAYERS


@pytest.mark.parametrize(
    ("how", "asked"),
    [
        ({"ranges": False}, 2),
        ({"compressed": True}, 1),
        ({"chunked": True}, 1),
        ({"other": b"", "other_etag": '"two"'}, 1),
    ],
    ids=["no ranges", "compressed", "chunked", "another file"],
)
def test_create__parts_are_not_to_be_had__waits_for_the_stream(loader: Loader, how: dict[str, Any], asked: int) -> None:
    data = parted()[1]
    held = "ranges" in how or "other" in how
    if "other" in how:
        how = {**how, "other": shaped(data, SIZE, 1)}
    loader.begin(Served(data, gate=GATE, **how))
    if held:
        loader.wait("waits")
        assert loader.count("waits") == 1 and loader.count("buffers") == 0 and loader.told() is None
    loader.check()
    assert len(loader.file.asked) == asked and len(loader.file.parts) == (1 if "other" in how else 0)
    assert loader.count("waits") == (2 if held else 0)


def test_create__more_than_a_part_of_the_file__waits_for_the_stream(loader: Loader) -> None:
    graph, data, _ = parted(2000)
    loader.begin(Served(data, gate=GATE), graph)
    loader.wait("waits")
    assert loader.count("waits") == 1 and loader.count("buffers") == 0
    loader.check()
    assert loader.file.parts == [] and loader.file.asked == [""]


@pytest.mark.parametrize("etag", [None, 'W/"one"'])
@pytest.mark.parametrize("shape", [(SIZE, 1), (7, 7)], ids=["other", "wrong"])
def test_create__parts_are_of_another_file__session_is_that_of_the_stream(
    loader: Loader, etag: str | None, shape: tuple[int, int]
) -> None:
    """What fails by them alone is not told."""
    data = parted()[1]
    loader.begin(Served(data, gate=GATE, etag=etag, other=shaped(data, *shape), other_etag=etag))
    loader.wait("waits")
    assert loader.count("waits") == 1 and len(loader.file.parts) == LAYERS and loader.told() is None
    loader.check()
    assert loader.count("waits") == 1 and len(loader.file.parts) == LAYERS and loader.file.asked == [""]


def test_create__another_file_is_read_ahead_when_the_session_is_made_again__is_compared_too(loader: Loader) -> None:
    """The first one's bytes are wrong so that planning ends there, the other's so that the result is another."""
    graph, first, second = parted(layers=8, first=4)
    other = loader.served["/m/b.bin"] = Served(second, gate=GATE, etag=None, other=shaped(second, SIZE, 1))
    loader.begin(Served(first, gate=GATE, etag=None, other=shaped(first, 7, 7)), graph)
    loader.wait("waits")
    assert loader.count("waits") == 1 and len(loader.file.parts) == 4 and other.parts == []
    loader.file.opened.set()
    loader.wait("waits", 2)
    assert loader.count("waits") == 2 and len(other.parts) == 4 and loader.told() is None
    other.opened.set()
    loader.check(8)
    assert loader.file.asked == other.asked == [""]


def test_create__wrong_shape_and_one_strong_tag__is_told_before_the_weights_come(loader: Loader) -> None:
    loader.begin(Served(shaped(parted()[1], 7, 7), gate=GATE))
    assert "Reshape" in loader.script.page.evaluate("made.then(() => '', ({ message }) => message)")
    assert loader.file.sent[0] <= GATE and len(loader.file.parts) == LAYERS
    loader.file.opened.set()
    assert loader.file.left.wait(30) and sum(loader.file.sent) < len(loader.file.data), "the rest was not wanted"


def test_create__wrong_shape_and_no_strong_tag__is_told_when_all_has_come(loader: Loader) -> None:
    loader.begin(Served(shaped(parted()[1], 7, 7), gate=GATE, etag=None))
    loader.wait("waits")
    assert loader.told() is None and len(loader.file.parts) == LAYERS
    loader.file.opened.set()
    assert "Reshape" in loader.script.page.evaluate("made.then(() => '', ({ message }) => message)")
    assert loader.file.sent == [len(loader.file.data)]


def test_create__aborted_while_the_weights_are_held_back__ends_at_once(loader: Loader) -> None:
    script = loader.script
    loader.begin(Served(parted()[1], gate=GATE))
    loader.wait("buffers")
    failed = script(
        """const controller = new AbortController();
        const onProgress = ({ phase, status }) => phase === 'shaders' && status === 'begin' && controller.abort();
        return failure(() => InferenceSession.create('/m/model.onnx', { signal: controller.signal, onProgress }));"""
    )
    assert failed["name"] == "AbortError" and loader.told() is None
    loader.check()


READ = """
const { Download } = await import('/src/web/loading/download.js');
const { ModelFile } = await import('/src/web/loading/file.js');
const { Requests } = await import('/src/web/loading/requests.js');
const bytes = Uint8Array.from({ length: size }, (_, i) => i % 251);
const { fetch } = globalThis;
const asked = [];
let open = () => {};
let [most, underWay] = [0, 0];
globalThis.fetch = async (url, { headers: { Range } }) => {
  const [, begin, end] = Range.match(/(\\d+)-(\\d+)/).map(Number);
  asked.push([begin, end + 1]);
  underWay += 1;
  most = Math.max(most, underWay);
  await new Promise((resolve) => { setTimeout(resolve, 20); }); // a slow server: requests under way are counted
  underWay -= 1;
  const body = bytes.slice(begin, end + 1);
  if (begin === wrong) body[0] += 1;
  return new Response(body, { status: 206, headers: { 'Content-Range': `bytes ${begin}-${end}/${size}` } });
};
const gate = new Promise((resolve) => { open = resolve; });
let stand = () => {};
const stands = new Promise((resolve) => { stand = resolve; });
const chunks = async function* () {
  for (let at = 0; at < size; at += step) {
    if (at >= stop) {
      stand();
      await gate;
    }
    yield bytes.slice(at, at + step);
  }
};
try {
  const requests = new Requests('/m', { size, isExact: true, tag: '' }, new AbortController().signal);
  const answers = { ahead: (ranges) => download.readAhead(ranges) };
  const file = new ModelFile('/m', { size, isExact: true }, answers);
  // As in a worker: bytes are told of when the browser has them.
  const receiver = {
    handed: (part) => file.handed(part),
    ended: (...said) => file.ended(...said),
    failed: (error) => file.failed(error),
  };
  const download = new Download('/m', size, receiver, requests);
  const taken = download.take(chunks());
  await stands;
  const found = await file.ahead(wanted);
  const parts = wanted.map(([at, end]) => file.partNow(at, end - at));
  const right = parts.map((part, i) => part !== null && part.every((byte, k) => byte === bytes[wanted[i][0] + k]));
  open();
  await taken;
  return { found, right, asked, most, misread: file.wasMisread, isKept: file.kept(wanted[0][0]) !== null };
} finally {
  globalThis.fetch = fetch;
}
"""

FAR = 1 << 19


def read(script: Script, wanted: list[tuple[int, int]], **how: int) -> dict[str, Any]:
    """What becomes of these ranges of a file whose stream stands at `stop`, and what was asked for."""
    given = {"size": 8 << 20, "stop": 1 << 20, "step": 100_000, "wrong": -1} | how
    script.preload()
    names = ", ".join(["wanted", *given])
    found: dict[str, Any] = script.worker.evaluate(
        f"async ({{ {names} }}) => {{ {READ} }}", {"wanted": wanted, **given}
    )
    return found


def test_ahead__parts_between_what_is_large__are_asked_for_together_and_once(script: Script) -> None:
    """Those which the stream has brought are not, near ones are joined; eight requests go at a time, after one."""
    early = [(0, 10), (999_000, 1_000_000)]
    far = [(begin, begin + 1000) for begin in range(2 << 20, 8 << 20, FAR)]
    near = [(begin + 5000, end + 5000) for begin, end in far]
    wanted = sorted([*early, *far, *near])
    told = read(script, wanted)
    assert told["found"] and all(told["right"]) and not told["misread"]
    assert sorted(map(tuple, told["asked"])) == [(begin, begin + 6000) for begin, _ in far]
    assert told["asked"][0][0] == far[-1][0] and told["most"] == 8


def test_ahead__part_that_the_stream_is_in__comes_with_it(script: Script) -> None:
    told = read(script, [(1_090_000, 1_150_000), (4 << 20, (4 << 20) + 7)], stop=1_200_000)
    assert told["found"] and all(told["right"]) and told["asked"] == [[4 << 20, (4 << 20) + 7]]


@pytest.mark.parametrize("step", [1 << 20, 100_000, 997])
@pytest.mark.parametrize("wrong", [0, 1, 2, -1])
def test_ahead__other_bytes_than_the_stream_brings__are_noticed(script: Script, step: int, wrong: int) -> None:
    wanted = [((i + 2) << 20, ((i + 2) << 20) + 5000) for i in range(3)]
    told = read(script, wanted, step=step, wrong=wanted[wrong][0] if wrong >= 0 else -1)
    assert told["found"] and told["misread"] == (wrong >= 0) and told["right"] == [i != wrong for i in range(3)]
    assert not told["isKept"]


@pytest.mark.parametrize(
    "wanted",
    [
        [(2 << 20, 4 << 20)],
        [(i, i + 2) for i in range(2 << 20, (2 << 20) + 400_000, 500)],
        [(7 << 20, (8 << 20) + 1)],
    ],
    ids=["bytes", "with what is between", "beyond the end"],
)
def test_ahead__too_much__is_not_asked_for(script: Script, wanted: list[tuple[int, int]]) -> None:
    told = read(script, wanted)
    small = wanted[0][1] - wanted[0][0] == 2
    assert told["found"] == small and bool(told["asked"]) == small and not told["misread"]
