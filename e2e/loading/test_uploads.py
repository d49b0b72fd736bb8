"""What is done while a session is made and others are waited for: its file, its pipelines."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser

from e2e.harness.chain import ROW, RUN, expected, model
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script, watched
from pyruntime.ir import Array
from tests.oracle import OPTIONS

WATCH = """() => {
    const watched = 'seen' in globalThis;
    globalThis.seen = { written: 0, copied: 0, devices: 0, groups: 0, before: 0, ready: 0, awaited: 0 };
    if (watched) return;
    const after = (kind, name, look) => {
        const own = kind.prototype[name];
        kind.prototype[name] = function (...args) {
            const made = own.apply(this, args);
            return look(made, ...args) ?? made;
        };
    };
    after(GPUQueue, 'writeBuffer', (_, buffer, offset, data, start, size) => {
        seen.written += size ?? data.byteLength;
    });
    after(GPUCommandEncoder, 'copyBufferToBuffer', (_, from, offset, to, at, size) => {
        if (from.usage & GPUBufferUsage.MAP_WRITE) seen.copied += size;
    });
    after(GPUDevice, 'createBindGroup', () => { seen.groups += 1; });
    after(GPUDevice, 'createComputePipelineAsync', (made) => made.then(async (pipeline) => {
        // The pipeline is held back until so many groups are made, for 20 s.
        for (let turn = 0; seen.groups < seen.awaited && turn < 2000; turn++) {
            await new Promise((done) => { setTimeout(done, 10); });
        }
        if (!seen.ready) seen.before = seen.groups;
        seen.ready += 1;
        return pipeline;
    }));
    after(GPUAdapter, 'requestDevice', (made) => { made.then(() => { seen.devices += 1; }); });
}"""

BEGIN = "globalThis.made = InferenceSession.create('/m/model.onnx'); made.catch(() => {});"
END = f"{RUN} const s = await made; const y = await run(s); await s.release(); return y;"
LAYERS = 2
"""19 MB."""
LEAST_STAGING = 3 << 19
"""Bytes of the staging buffers of a model of at most 25 MB."""


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


def seen(script: Script) -> dict[str, int]:
    """What has been counted in the worker."""
    found: dict[str, int] = script.worker.evaluate("() => ({ ...seen })")
    return found


def parts(count: int, dtype: Any) -> tuple[bytes, list[Array]]:
    """y = x times each of `count` weights of some 100,000 numbers, in sequence; and these."""
    rng = np.random.default_rng(4)
    weights = [rng.integers(0, 200, 100_001 + i).astype(dtype) for i in range(count)]
    nodes = [helper.make_node("Cast", [f"w{i}"], [f"f{i}"], to=TensorProto.FLOAT) for i in range(count)]
    nodes += [helper.make_node("Mul", [f"f{i}", "x"], [f"p{i}"]) for i in range(count)]
    nodes.append(helper.make_node("Concat", [f"p{i}" for i in range(count)], ["y"], axis=0))
    size = sum(w.size for w in weights)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [d]) for n, d in (("x", 1), ("y", size)))
    tensors = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString(), weights


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_create__many_small_weights__go_through_staging_buffers_that_they_share(
    script: Script, served: dict[str, Served], dtype: Any
) -> None:
    data, weights = parts(30, dtype)
    served["/m/model.onnx"] = Served(data)
    script.preload()
    script.worker.evaluate(WATCH)
    got = script(
        """const s = await InferenceSession.create('/m/model.onnx');
        const { y } = await s.run({ x: new Tensor(Float32Array.of(2), [1]) });
        await s.release();
        return [...new Uint8Array(await crypto.subtle.digest('SHA-256', y.data))].join();"""
    )
    wanted = np.concatenate([2 * w.astype(np.float32) for w in weights])
    assert got == ",".join(map(str, hashlib.sha256(wanted.tobytes()).digest()))
    found, nbytes = seen(script), sum(w.nbytes for w in weights)
    assert found["written"] < 100_000, "nothing but parameters and the input"
    assert nbytes <= found["copied"] <= nbytes + 4 * len(weights) + 100_000


def test_create__first_session_and_model_held_back__opens_the_device_meanwhile(
    browser: Browser, site_url: str, served: dict[str, Served]
) -> None:
    with watched(browser, site_url, Script) as script:
        script.preload()
        script.worker.evaluate(WATCH)
        file = served["/m/model.onnx"] = Served(model(LAYERS), gate=6 << 20)
        script(BEGIN)
        script.wait_for("seen.devices === 1")
        assert seen(script)["groups"] == 0
        file.opened.set()
        np.testing.assert_array_equal(np.float32(script(END, x=ROW)), expected(LAYERS))
        assert seen(script)["devices"] == 1


def test_create__pipelines_under_way__buffers_are_bound_meanwhile(script: Script, served: dict[str, Served]) -> None:
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["c"]),
        helper.make_node("LRN", ["c"], ["y"], size=3),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 3, 5]) for n in "xy")
    axis = numpy_helper.from_array(np.array(2, np.int64), "axis")
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [axis]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    served["/m/model.onnx"] = Served(made.SerializeToString())
    script("await preload(); await adapterInfo();")
    script.worker.evaluate(WATCH)
    script.worker.evaluate("() => { seen.awaited = 2; }")
    given = np.random.default_rng(1).standard_normal((1, 4, 3, 5)).astype(np.float32)
    got = script(
        """const s = await InferenceSession.create('/m/model.onnx');
        const { y } = await s.run({ x: new Tensor(Float32Array.from(x), [1, 4, 3, 5]) });
        await s.release();
        return [...y.data];""",
        x=given.ravel().tolist(),
    )
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString(), OPTIONS).run(None, {"x": given})
    np.testing.assert_allclose(got, wanted.ravel(), 1e-5, 1e-6)
    found = seen(script)
    assert found["ready"] == 2 and found["before"] == 2
