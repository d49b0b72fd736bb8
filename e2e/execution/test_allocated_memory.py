"""What `explain()` says is allocated is what the browser has allocated; staging buffers go when they are not used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.script import Script, watched
from pyruntime.session.aot.compile_ahead import compile_model
from tests.genai.packed import Shape, packed_model
from tools.devkit.server import Server

SIZE = 512

WORDS, LAYERS, TOKENS = 8192, 6, 16
DECODER = Shape(layers=10, heads=8, groups=2, size=64, inner=1408, words=WORDS, bias=False, tied=False)


def model() -> bytes:
    """Two products; the first weight is a function of one that is stored: a constant that the GPU computes."""
    weights = {name: np.full((SIZE, SIZE), 0.01, np.float32) for name in "vw"}
    operations = [("Sigmoid", ["v"], "s"), ("MatMul", ["x", "s"], "h"), ("MatMul", ["h", "w"], "y")]
    nodes = [helper.make_node(op_type, inputs, [output]) for op_type, inputs, output in operations]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [128, SIZE]) for name in "xy")
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "test", [x], [y], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def test_explain__allocated_bytes__are_those_of_the_browser_and_of_the_plan(browser: Browser, site_url: str) -> None:
    with watched(browser, site_url, Script) as script:
        script(
            """
            const options = { preferredOutputLocation: 'gpu-buffer' };
            globalThis.session = await InferenceSession.create(decode(model), options);
            const x = new Tensor('float32', new Float32Array(128 * size).fill(1), [128, size]);
            globalThis.kept = [];
            for (let run = 0; run < 4; run++) kept.push(await session.run({ x }));
            """,
            model=model(),
            size=SIZE,
        )
        for _ in range(20):  # a staging buffer may go between two looks
            memory = script("return (await session.explain()).memory;")
            there: dict[str, int] = script.worker.evaluate("() => gpuBytes()")
            if there.get("staging", 0) == memory["allocated"]["staging"]:
                break
        script("for (const { y } of kept) y.dispose(); await session.release();")
    allocated = memory["allocated"]
    total = sum(allocated.values())
    assert abs(sum(there.values()) - total) <= 0.01 * total, (there, allocated)
    constants = allocated["weights"] + allocated["computed"]
    assert abs(constants - memory["weights"]) <= 0.01 * constants
    assert allocated["computed"] == SIZE * SIZE * 4
    assert allocated["activations"] == memory["peak"]
    assert allocated["tensors"] >= 4 * 128 * SIZE * 4


def test_plan__what_constants_were_computed_from__has_left_the_gpu(
    browser: Browser, site_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model())
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(f"{site_url}e2e/blank.html")
        found = Script(page, guard)(
            """
            await import('/e2e/watch.js');
            const session = await InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) });
            const x = new Tensor('float32', new Float32Array(128 * size).fill(1), [128, size]);
            const { y } = await session.run({ x });
            const { memory } = await session.summary();
            const { staging, ...there } = gpuBytes();
            await session.release();
            return { memory, there, least: Math.min(...y.data), most: Math.max(...y.data) };
            """,
            model=path.read_bytes(),
            plan=compile_model(path),
            size=SIZE,
        )
    planned = found["memory"]["weights"] + found["memory"]["peak"]
    assert abs(sum(found["there"].values()) - planned) <= 0.01 * planned
    expected = SIZE / (1 + np.exp(-0.01)) * SIZE * 0.01
    np.testing.assert_allclose([found["least"], found["most"]], expected, rtol=1e-4)


def test_pool__some_buffers_in_use__the_others_go_after_five_seconds(script: Script) -> None:
    found = script(
        """
        const { Pool, totalHeldBytes } = await import('/src/web/gpu/pool.js');
        const { setTimeout: later } = globalThis;
        const { now } = performance;
        const [destroyed, timers] = [[], []];
        let time = 0;
        const device = { createBuffer: (of) => ({ ...of, destroy() { destroyed.push(of.size); } }) };
        const seen = [];
        const look = () => seen.push([[...destroyed], totalHeldBytes(device)]);
        try {
          performance.now = () => time;
          globalThis.setTimeout = (work, ms) => timers.push({ work, at: time + ms });
          const pool = new Pool(device);
          const [used, unused] = [pool.toRead(256), pool.toRead(1024)];
          pool.keep(unused);
          pool.keep(used);
          for (const at of [2000, 4000]) {
            time = at;
            pool.keep(pool.toRead(256));
          }
          look();
          while (timers.length) {
            const { work, at } = timers.shift();
            time = at;
            work();
            look();
          }
        } finally {
          performance.now = now;
          globalThis.setTimeout = later;
        }
        return { seen, time };
        """
    )
    assert found["seen"] == [[[], 1280], [[1024], 256], [[1024, 256], 0]]
    assert found["time"] == 9000


def encoder() -> bytes:
    """Three products of a layer that are made one, and a table of 16 MB that is a product's weight, too."""
    rng = np.random.default_rng(0)
    stored = [numpy_helper.from_array(rng.standard_normal((WORDS, SIZE), dtype=np.float32), "table")]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["h0"])]
    for layer in range(LAYERS):
        h, next_h = f"h{layer}", f"h{layer + 1}"
        for part in "qkv":
            weight = rng.standard_normal((SIZE, SIZE), dtype=np.float32) / SIZE
            stored.append(numpy_helper.from_array(weight, f"{part}{layer}_w"))
            nodes.append(helper.make_node("MatMul", [h, f"{part}{layer}_w"], [f"{part}{layer}"]))
        nodes.append(helper.make_node("Sum", [f"q{layer}", f"k{layer}", f"v{layer}"], [next_h]))
    nodes.append(helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", [f"h{LAYERS}", "turned"], ["y"]))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, TOKENS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, TOKENS, WORDS])
    made = helper.make_model(
        helper.make_graph(nodes, "test", [ids], [y], stored), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return bytes(made.SerializeToString())


def reader() -> bytes:
    """A table of 50 MB, of which 16 rows are read, and 40 products: 92 MB, all of float32."""
    rng = np.random.default_rng(0)
    stored = [numpy_helper.from_array(rng.standard_normal((3 * WORDS, SIZE), dtype=np.float32), "table")]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["h0"])]
    for layer in range(40):
        weight = rng.standard_normal((SIZE, SIZE), dtype=np.float32) / SIZE**0.5
        stored.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"h{layer}", f"w{layer}"], [f"h{layer + 1}"]))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, TOKENS])
    y = helper.make_tensor_value_info("h40", TensorProto.FLOAT, [1, TOKENS, SIZE])
    graph = helper.make_graph(nodes, "test", [ids], [y], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


MODELS: dict[str, Callable[[], bytes]] = {"encoder": encoder, "int4 decoder": lambda: packed_model(DECODER, 0, "int4")}


@pytest.fixture(scope="module")
def large(site_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that the server has as `/large/`."""
    place = tmp_path_factory.mktemp("large")
    site_server.mounts["/large/"] = place
    yield place
    del site_server.mounts["/large/"]


def loaded(script: Script, large: Path, name: str) -> dict[str, Any]:
    """Load a model and run it three times; what `explain()` says, and the browser's bytes while loading and then."""
    (large / "model.onnx").write_bytes(MODELS[name]())
    script(
        """
        globalThis.session = await InferenceSession.create('/large/model.onnx');
        const ids = BigInt64Array.from({ length: tokens }, (_, i) => BigInt(i * 37 % 8000));
        const caches = session.inputNames.filter((name) => name.startsWith('past'));
        const feeds = caches.length
          ? { input_ids: new Tensor('int64', ids, [1, tokens]),
            attention_mask: new Tensor('int64', ids.map(() => 1n), [1, tokens]),
            ...Object.fromEntries(caches.map((name) => [name, new Tensor('float32', [], [1, 2, 0, 64])])) }
          : { ids: new Tensor('int64', ids, [1, tokens]) };
        await session.run(feeds);
        """,
        tokens=TOKENS,
    )
    peak = script.worker.evaluate("() => gpuPeak")
    for _ in range(20):  # a staging buffer may go between two looks
        memory = script("return (await session.explain()).memory;")
        there: dict[str, int] = script.worker.evaluate("() => gpuBytes()")
        if there.get("staging", 0) == memory["allocated"]["staging"]:
            break
    script("await session.release();")
    return {"memory": memory, "there": there, "peak": peak}


@pytest.mark.parametrize("name", MODELS)
def test_load__memory__as_planned_and_little_more_meanwhile(
    browser: Browser, site_url: str, large: Path, name: str
) -> None:
    with watched(browser, site_url, Script) as script:
        found = loaded(script, large, name)
    memory, there = found["memory"], found["there"]
    total, allocated = sum(there.values()), sum(memory["allocated"].values())
    assert abs(total - allocated) <= 0.01 * total, (there, memory["allocated"])
    live = total - there.get("staging", 0)
    caches = memory["allocated"]["tensors"]
    assert live <= 1.03 * (memory["weights"] + memory["peak"] + caches)
    assert sum(found["peak"].values()) <= 1.10 * live, (found["peak"], there)


@pytest.mark.parametrize("precision, rtol", [("float32", 1e-3), ("float16", 2e-2)])
def test_plan__while_loading__takes_little_more_memory_than_what_stays(
    browser: Browser, site_url: str, large: Path, precision: str, rtol: float
) -> None:
    """Weights that others are computed from, half of all or all, come and go with the file; a large one in parts."""
    path = large / "model.onnx"
    path.write_bytes(encoder() if precision == "float32" else reader())
    (large / "model.plan").write_bytes(compile_model(path, precision=precision))
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(f"{site_url}e2e/blank.html")
        found = Script(page, guard)(
            """
            await import('/e2e/watch.js');
            const options = { plan: '/large/model.plan', precision };
            const session = await InferenceSession.create('/large/model.onnx', options);
            const ids = BigInt64Array.from({ length: tokens }, (_, i) => BigInt(i * 37 % 8000));
            const { [session.outputNames[0]]: y } = await session.run({ ids: new Tensor('int64', ids, [1, tokens]) });
            const { staging, ...there } = gpuBytes();
            const { memory } = await session.summary();
            await session.release();
            return { memory, there, peak: gpuPeak, y: [...y.data.subarray(0, 100)] };
            """,
            tokens=TOKENS,
            precision=precision,
        )
    live = sum(found["there"].values())
    planned = found["memory"]["weights"] + found["memory"]["peak"]
    assert abs(live - planned) <= 0.01 * planned
    assert sum(found["peak"].values()) <= 1.10 * live, (found["peak"], found["there"])
    ids = np.arange(TOKENS, dtype=np.int64)[None] * 37 % 8000
    (expected,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"ids": ids})
    np.testing.assert_allclose(found["y"], expected.ravel()[:100], rtol=rtol, atol=rtol * np.abs(expected).max())
