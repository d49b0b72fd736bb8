"""Tensors that stay on the GPU in sessions over cached plans: runs without Python, and what happens when it comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import BrowserContext

from e2e.conftest import mounts
from e2e.harness.browser import fresh_page
from e2e.harness.script import Script
from e2e.harness.visits import Visits
from tools.devkit.server import Server

RTOL, ATOL = 1e-3, 1e-4  # float32, as in test_javascript_api.py

HELPERS = """
const STAY = { cachePlan: true, preferredOutputLocation: 'gpu-buffer' };
const ramp = (n) => Float32Array.from({ length: n }, (_, i) => ((i * 7919) % 1000) / 1000);
const floats = (n, dims) => new Tensor('float32', ramp(n), dims);
"""


@pytest.fixture
def visits(context: BrowserContext, site: Path, tmp_path: Path) -> Iterator[Visits]:
    models(tmp_path)
    with Server(mounts(site) | {"/x/": tmp_path}) as server, fresh_page(context, server.url) as (page, guard):
        yield Visits(Script(page, guard), server, tmp_path)
        guard.allow("404")  # the icon of a page that has none


def value_info(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> None:
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def models(folder: Path) -> None:
    """An encoder of pictures, whose outputs are hidden states and a mask; a decoder that reads these and ids."""
    random = np.random.default_rng(2)
    w, v, e = (
        ((random.random(shape, np.float32) - 0.5) / 4).astype(np.float32) for shape in ((24, 16), (16, 30), (2000, 16))
    )
    encoder = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["states"]),
        helper.make_node("ReduceMean", ["states"], ["pooled"], axes=[2], keepdims=0),
    ]
    save(
        folder / "encoder.onnx",
        encoder,
        [value_info("x", ["n", "length", 24])],
        [value_info("states", ["n", "length", 16]), value_info("pooled", ["n", "length"])],
        [numpy_helper.from_array(w, "w")],
    )
    decoder = [
        helper.make_node("Gather", ["e", "ids"], ["embedded"]),
        helper.make_node("Transpose", ["states"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["embedded", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "states"], ["read"]),
        helper.make_node("Add", ["read", "embedded"], ["sum"]),
        helper.make_node("MatMul", ["sum", "v"], ["logits"]),
    ]
    save(
        folder / "decoder.onnx",
        decoder,
        [value_info("ids", ["n", "tokens"], TensorProto.INT64), value_info("states", ["n", "length", 16])],
        [value_info("logits", ["n", "tokens", 30])],
        [numpy_helper.from_array(v, "v"), numpy_helper.from_array(e, "e")],
    )


def expected(folder: Path, n: int, length: int, ids: list[int]) -> dict[str, Any]:
    """What onnxruntime makes of the two models."""
    count = n * length * 24
    x = ((np.arange(count) * 7919) % 1000 / 1000).astype(np.float32).reshape(n, length, 24)
    states, pooled = onnxruntime.InferenceSession(folder / "encoder.onnx").run(None, {"x": x})
    tokens = np.array([ids] * n, np.int64)
    (logits,) = onnxruntime.InferenceSession(folder / "decoder.onnx").run(None, {"ids": tokens, "states": states})
    return {"states": states, "pooled": pooled, "logits": logits}


def check(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, np.ravel(wanted), RTOL, ATOL)


ENCODE_AND_DECODE = """
const encoder = await InferenceSession.create('/x/encoder.onnx', STAY);
const decoder = await InferenceSession.create('/x/decoder.onnx', { cachePlan: true });
const results = [];
for (const length of lengths) {
  const { states, pooled } = await encoder.run({ x: floats(length * 24, [1, length, 24]) });
  for (let i = 0; i < 2; i += 1) {
    const ids = new Tensor('int64', BigInt64Array.of(3n, 7n), [1, 2]);
    const { logits } = await decoder.run({ ids, states });
    results.push([...logits.data]);
  }
  if ([states, pooled].some(({ location }) => location !== 'gpu-buffer')) throw new Error('not on the GPU');
  results.push([...await states.getData(true)], [...await pooled.getData()]);
  pooled.dispose();
}
await encoder.release();
await decoder.release();
return { results, said };
"""


def test_encoder_and_decoder__second_visit__runs_without_python_and_gives_the_same_bits(visits: Visits) -> None:
    first = visits(HELPERS + ENCODE_AND_DECODE, lengths=[5, 9, 5, 17])
    assert first["said"] == [] and visits.has_python()
    visits.without_pyodide()
    second = visits(HELPERS + ENCODE_AND_DECODE, lengths=[5, 9, 5, 17])
    assert second["said"] == [] and not visits.has_python()
    for at, length in enumerate([5, 9, 5, 17]):
        want = expected(visits.folder, 1, length, [3, 7])
        for found in (first, second):
            check(found["results"][4 * at], want["logits"])
            check(found["results"][4 * at + 1], want["logits"])
            check(found["results"][4 * at + 2], want["states"])
            check(found["results"][4 * at + 3], want["pooled"])


def test_explain_and_other_shapes__tensors_made_before__go_on_here_and_in_python(visits: Visits) -> None:
    body = """
    const encoder = await InferenceSession.create('/x/encoder.onnx', STAY);
    const decoder = await InferenceSession.create('/x/decoder.onnx', { cachePlan: true });
    const tokens = (...ids) => new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]);
    const { states, pooled } = await encoder.run({ x: floats(5 * 24, [1, 5, 24]) });
    const results = [];
    const feed = async (...ids) => results.push([...(await decoder.run({ ids: tokens(...ids), states })).logits.data]);
    await feed(3, 7);
    if (second) {
      const before = [...said];
      const { dispatches } = await decoder.explain(); // starts Python
      await feed(3, 7); // here, where the tensor is
      await feed(1, 2, 3, 4); // no plan: the tensor moves
      await feed(3, 7); // follows the tensor
      await feed(4, 4);
      const { states: later } = await encoder.run({ x: floats(5 * 24, [1, 5, 24]) }); // here
      results.push([...(await decoder.run({ ids: tokens(3, 7), states: later })).logits.data]);
      results.push([...await states.getData()], [...await later.getData()], [...await pooled.getData()]);
      if (before.length || !said.length) throw new Error(`${before} | ${said}`);
    }
    pooled.dispose();
    await encoder.release();
    await decoder.release();
    return { results, said };
    """
    visits(HELPERS + body, second=False)
    found = visits(HELPERS + body, second=True)
    assert (
        found["said"] == ["pyruntime: explain() was asked for: the session goes on with Python"] and visits.has_python()
    )
    want = expected(visits.folder, 1, 5, [3, 7])
    longer = expected(visits.folder, 1, 5, [1, 2, 3, 4])["logits"]
    other = expected(visits.folder, 1, 5, [4, 4])["logits"]
    logits, states, pooled = want["logits"], want["states"], want["pooled"]
    wanted = [logits, logits, longer, logits, other, logits, states, states, pooled]
    assert len(found["results"]) == len(wanted)
    for result, value in zip(found["results"], wanted, strict=True):
        check(result, value)


def test_tensor__disposed_downloaded_fed_to_others__as_in_python(visits: Visits) -> None:
    """What a tensor of a cached plan does, on the first visit (Python's) and on the second (the page's) alike."""
    body = """
    const encoder = await InferenceSession.create('/x/encoder.onnx', STAY);
    const decoder = await InferenceSession.create('/x/decoder.onnx', { cachePlan: true });
    const plain = await InferenceSession.create('/x/decoder.onnx');
    const ids = () => new Tensor('int64', BigInt64Array.of(3n, 7n), [1, 2]);
    const failed = async (work) => { try { await work(); return 'nothing'; } catch ({ message }) { return message; } };
    const run = () => encoder.run({ x: floats(5 * 24, [1, 5, 24]) });
    const results = [];
    const errors = [];
    const one = await run();
    errors.push(await failed(async () => one.states.gpuBuffer));
    errors.push(await failed(async () => one.states.data));
    // While a run has it, it may be disposed of; its memory is not used again before.
    const running = decoder.run({ ids: ids(), states: one.states });
    one.states.dispose();
    const others = await Promise.all([run(), run(), run()]);
    results.push([...(await running).logits.data]);
    errors.push(await failed(() => decoder.run({ ids: ids(), states: one.states })));
    // In a session of Python's, twice at once, and disposed of on the way.
    const [two, three, four] = others;
    const both = [plain.run({ ids: ids(), states: two.states }), plain.run({ ids: ids(), states: two.states })];
    two.states.dispose();
    for (const { logits } of await Promise.all(both)) results.push([...logits.data]);
    const { logits: third } = await plain.run({ ids: ids(), states: three.states });
    results.push([...third.data], [...await three.states.getData()]);
    // Outputs that are named alone, and memory that is given for one.
    const { pooled } = await encoder.run({ x: floats(5 * 24, [1, 5, 24]) }, ['pooled']);
    results.push([...await pooled.getData(true)]);
    const target = four.pooled;
    const written = await encoder.run({ x: floats(5 * 24, [1, 5, 24]) }, { pooled: target });
    if (written.pooled !== target) throw new Error('another tensor');
    results.push([...await target.getData()], [...await four.states.getData()]);
    await encoder.release();
    results.push([...await one.pooled.getData()]);
    errors.push(await failed(run));
    await decoder.release();
    await plain.release();
    return { results, errors, said };
    """
    first, second = visits(HELPERS + body), visits(HELPERS + body)
    assert first["errors"] == second["errors"] and len(first["errors"]) == 4
    assert all(text != "nothing" for text in first["errors"])
    want = expected(visits.folder, 1, 5, [3, 7])
    wanted = [*[want["logits"]] * 4, want["states"], want["pooled"], want["pooled"], want["states"], want["pooled"]]
    for found in (first, second):
        assert len(found["results"]) == len(wanted)
        for result, value in zip(found["results"], wanted, strict=True):
            check(result, value)
    assert first["said"] == []
    assert second["said"][0] == "pyruntime: no plan runs these inputs and outputs: the session goes on with Python"


def test_python_in_the_page__outputs_that_stay__are_buffers_of_the_page_and_nothing_is_kept(visits: Visits) -> None:
    body = """
    env.worker = false;
    const encoder = await InferenceSession.create('/x/encoder.onnx', STAY);
    const { states, pooled } = await encoder.run({ x: floats(5 * 24, [1, 5, 24]) });
    const isBuffer = states.gpuBuffer instanceof GPUBuffer;
    const results = [[...await states.getData()], [...await pooled.getData()]];
    await encoder.release();
    const { usage } = await import('/src/web/plans/plan_cache.js');
    return { results, isBuffer, plans: (await usage()).plans };
    """
    want = expected(visits.folder, 1, 5, [3, 7])
    for _ in range(2):
        found = visits(HELPERS + body)
        assert found["isBuffer"] and found["plans"] == 0
        check(found["results"][0], want["states"])
        check(found["results"][1], want["pooled"])


def test_cached_plan__that_fails_on_the_way__python_goes_on_with_the_tensors(visits: Visits) -> None:
    """A binding that the device refuses, as of a plan that was changed."""
    body = """
    const encoder = await InferenceSession.create('/x/encoder.onnx', STAY);
    const decoder = await InferenceSession.create('/x/decoder.onnx', { cachePlan: true });
    const { states } = await encoder.run({ x: floats(5 * 24, [1, 5, 24]) });
    if (fail) {
      const { createBindGroup } = GPUDevice.prototype;
      GPUDevice.prototype.createBindGroup = function broken({ layout, entries }) {
        GPUDevice.prototype.createBindGroup = createBindGroup;
        return createBindGroup.call(this, { layout, entries: entries.slice(1) });
      };
    }
    const ids = new Tensor('int64', BigInt64Array.of(3n, 7n), [1, 2]);
    const results = [];
    for (let i = 0; i < 2; i += 1) results.push([...(await decoder.run({ ids, states })).logits.data]);
    results.push([...await states.getData()]);
    await encoder.release();
    await decoder.release();
    return { results, said };
    """
    visits(HELPERS + body, fail=False)
    found = visits(HELPERS + body, fail=True)
    assert len(found["said"]) == 1 and found["said"][0].startswith("pyruntime: the plan failed (")
    want = expected(visits.folder, 1, 5, [3, 7])
    for result, value in zip(found["results"], [want["logits"], want["logits"], want["states"]], strict=True):
        check(result, value)


def test_device_lost__python_goes_on__and_tensors_that_were_there_are_an_error(visits: Visits) -> None:
    body = """
    const devices = [];
    const { requestDevice } = GPUAdapter.prototype;
    GPUAdapter.prototype.requestDevice = async function noted(...how) {
      const device = await requestDevice.apply(this, how);
      devices.push(device);
      return device;
    };
    const encoder = await InferenceSession.create('/x/encoder.onnx', STAY);
    const decoder = await InferenceSession.create('/x/decoder.onnx', { cachePlan: true });
    const x = () => floats(5 * 24, [1, 5, 24]);
    const ids = new Tensor('int64', BigInt64Array.of(3n, 7n), [1, 2]);
    const { states: lost } = await encoder.run({ x: x() });
    if (!second) await decoder.run({ ids, states: lost });
    for (const device of devices) device.destroy();
    const error = second ? await decoder.run({ ids, states: lost }).then(() => '', ({ message }) => message) : '';
    const { states } = await encoder.run({ x: x() });
    const { logits } = await decoder.run({ ids, states });
    const results = [[...logits.data], [...await states.getData()]];
    lost.dispose();
    await encoder.release();
    await decoder.release();
    return { results, error, devices: devices.length, said };
    """
    visits(HELPERS + body, second=False)
    found = visits(HELPERS + body, second=True)
    assert found["devices"] == 1 and found["error"]
    want = expected(visits.folder, 1, 5, [3, 7])
    check(found["results"][0], want["logits"])
    check(found["results"][1], want["states"])
