"""What a model may be given as: responses, streams, files of the page's own file system, promises of these."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.harness.script import Script
from pyruntime.session.aot.compile_ahead import compile_model
from tests.compiler.test_saved import DIGITS
from tests.session import models

SOURCES = """
const bytes = decode(model);
const pieces = () => new ReadableStream({
  start(controller) {
    for (let at = 0; at < bytes.length; at += 7) controller.enqueue(bytes.subarray(at, at + 7));
    controller.close();
  },
});
const stored = async () => {
  const file = await (await navigator.storage.getDirectory()).getFileHandle('model.onnx', { create: true });
  const out = await file.createWritable();
  await out.write(bytes);
  await out.close();
  return file;
};
const first = async (session) => {
  const { y } = await session.run({ x: new Tensor('float32', Float32Array.of(1, -2, 3, -4), [1, 4]) });
  await session.release();
  return [...y.data];
};
"""


def two_files() -> tuple[bytes, bytes]:
    """y = x + w, w outside: the model and w."""
    w = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    data = w.raw_data
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", str(len(data)))):
        w.external_data.add(key=key, value=value)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:], [w])
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString(), data


@pytest.mark.parametrize(
    "source",
    [
        "new Response(bytes)",
        "new Response(pieces())",
        "pieces()",
        "await stored()",
        "stored()",
        "Promise.resolve(new Response(bytes))",
        "Promise.resolve(bytes.buffer)",
        "(await stored()).getFile()",
        "new Promise((resolve) => { setTimeout(resolve, 0, new Blob([bytes])); })",
    ],
)
def test_create__each_kind_of_source__is_the_model(script: Script, source: str) -> None:
    assert script(f"{SOURCES} return first(await InferenceSession.create({source}));", model=models.double()) == [
        2,
        0,
        6,
        0,
    ]


def test_create__response__reports_its_progress(script: Script) -> None:
    model = models.double()
    found = script(
        SOURCES
        + """
        const seen = [];
        const onProgress = ({ phase, status, loaded, total }) => {
          if (phase === 'model' && status === 'progress') seen.push([loaded, total]);
        };
        const response = new Response(pieces(), { headers: { 'Content-Length': String(bytes.length) } });
        await first(await InferenceSession.create(response, { onProgress }));
        return seen;
        """,
        model=model,
    )
    assert found[0] == [7, len(model)] and found[-1] == [len(model), len(model)]


def test_create__external_data_and_plan_of_responses__are_taken(script: Script) -> None:
    model, w = two_files()
    found = script(
        SOURCES
        + """
        const externalData = [{ path: 'w.bin', data: new Response(decode(w)) }];
        const sum = await first(await InferenceSession.create(new Response(bytes), { externalData }));
        const source = new Response(decode(digits));
        const session = await InferenceSession.create(source, { plan: Promise.resolve(new Response(decode(plan))) });
        const { sessions } = await import('/src/web/plans/locations.js');
        const planned = sessions.size;
        await session.release();
        return { sum, planned };
        """,
        model=model,
        w=w,
        digits=DIGITS.read_bytes(),
        plan=compile_model(DIGITS),
    )
    assert found == {"sum": [1, -1, 5, -1], "planned": 1}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("fetch('/nothing.onnx')", "/nothing.onnx has HTTP status 404"),
        ("await (async () => { const r = new Response(bytes); await r.text(); return r; })()", "that was read before"),
        ("new Response(null)", "is a Response without a body"),
        ("(() => { const s = pieces(); s.getReader(); return s; })()", "that something else reads"),
        (
            "new ReadableStream({ start(c) { c.enqueue('text'); c.close(); } })",
            "chunks must be Uint8Arrays, not 'text'",
        ),
        ("new ReadableStream({ start(c) { c.enqueue(bytes); c.error(new Error('torn')); } })", "bytes: torn"),
        ("navigator.storage.getDirectory()", "not an object (FileSystemDirectoryHandle)"),
        ("Promise.reject(new Error('no file'))", "no file"),
        ("Promise.resolve(null)", "the model must be a URL, a Blob, a Response"),
    ],
)
def test_create__source_that_gives_no_model__says_why(script: Script, source: str, message: str) -> None:
    script.guard.allow("404")
    said = script(f"{SOURCES} return failure(async () => InferenceSession.create({source}));", model=models.double())
    assert message in said["message"]


def test_create__aborted_while_a_stream_is_read__ends_the_stream(script: Script) -> None:
    found = script(
        """
        const control = new AbortController();
        let why;
        const cancelled = new Promise((resolve) => { why = resolve; });
        const pull = () => new Promise(() => { control.abort(); });
        const stream = new ReadableStream({ pull, cancel: ({ name }) => why(name) });
        const told = await failure(() => InferenceSession.create(stream, { signal: control.signal }));
        return [told.name, await cancelled];
        """
    )
    assert found == ["AbortError", "AbortError"]
