"""Sessions over models compiled ahead of time: web/plans/ without Python, and with it where a plan does not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Page

from e2e.harness.browser import Guard
from e2e.harness.script import Script
from pyruntime.kernels import Target
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.target.named import read_target
from tests import half_models
from tests.compiler.test_saved import DIGITS, ENLARGE, saved_model, split_digits
from tests.session.aot.test_compile_ahead import BOTH, BRANCHES, SCALED, TABLE, saved
from tools.devkit.server import Server
from tools.digits_data import from_counts, load_split

RTOL, ATOL = 1e-3, 1e-4  # float32, as in test_javascript_api.py

RUN = """
const said = [];
const info = console.info;
console.info = (text) => { said.push(String(text)); info(text); };
const source = new Blob([decode(model)]);
const session = await InferenceSession.create(source, { plan: decode(plan) });
const tensors = Object.fromEntries(Object.entries(feeds).map(
  ([name, { type, data, dims }]) => [name, new Tensor(type, data, dims)]));
const outputs = await session.run(tensors);
const again = await session.run(tensors);
const result = Object.fromEntries(Object.entries(outputs).map(([name, { data, dims }]) => (
  [name, { values: [...data].map(Number), dims: [...dims] }])));
const equal = Object.keys(outputs).every((name) => String(outputs[name].data) === String(again[name].data));
"""


@pytest.fixture
def script(page: Page, guard: Guard, site_url: str) -> Script:
    """A page of its own: no test before it has started Python there."""
    page.goto(f"{site_url}e2e/blank.html")
    return Script(page, guard)


def fed(feeds: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    return {n: {"type": str(v.dtype), "data": v.ravel().tolist(), "dims": list(v.shape)} for n, v in feeds.items()}


def started_python(page: Page) -> bool:
    return any(w.url.endswith("/worker.js") for w in page.workers)


def feeds_of(path: Path, number: int) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs; symbolic dimensions are `number`."""
    random, made = np.random.default_rng(number), {}
    for value in onnx.load(path).graph.input:
        dims = [d.dim_value or number for d in value.type.tensor_type.shape.dim]
        made[value.name] = random.random(dims, np.float32)
    return made


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", ["digits", "digits of any number", "enlarge3", "computed weights", "loop"])
def test_plan__models__onnxruntimes_answer_without_python(
    script: Script, tmp_path: Path, name: str, inside: bool
) -> None:
    path, shapes = saved_model(tmp_path, name)
    plan = compile_model(path, shapes, inside=inside)
    feeds = feeds_of(path, 1 if not shapes else 7)
    found = script(
        RUN + "await session.release(); return { result, equal, said };",
        model=b"" if inside else path.read_bytes(),
        plan=plan,
        feeds=fed(feeds),
    )
    reference = onnxruntime.InferenceSession(path)
    expected = dict(zip([o.name for o in reference.get_outputs()], reference.run(None, feeds), strict=True))
    assert found["said"] == [] and found["equal"]
    assert not started_python(script.page)
    for output, value in found["result"].items():
        np.testing.assert_allclose(np.reshape(value["values"], value["dims"]), expected[output], RTOL, ATOL)


@pytest.mark.parametrize("target", ["default", "wasm"])
@pytest.mark.parametrize(("model", "rate"), [(SCALED, 0.5), (BOTH, 0.5), (BRANCHES, 16000)])
def test_plan__scalar_in_shape_1__onnxruntimes_answer_without_python(
    script: Script, tmp_path: Path, target: str, model: str, rate: float
) -> None:
    path = saved(tmp_path, model)
    reference = onnxruntime.InferenceSession(path)
    scalar = next(v for v in reference.get_inputs() if not v.shape)
    dtype = np.int64 if "int64" in scalar.type else np.float32
    values = {scalar.name: [int(rate)]} if dtype is np.int64 else {}
    x = feeds_of(path, 4)["x"]
    plan = compile_model(path, {"x": [x.shape]}, read_target(target), values=values)
    for shape in ((), (1,)):
        feeds = {"x": x, scalar.name: np.full(shape, rate, dtype)}
        found = script(
            RUN + "await session.release(); return { result, equal, said };",
            model=path.read_bytes(),
            plan=plan,
            feeds=fed(feeds),
        )
        assert found["said"] == [] and found["equal"]
        for output, expected in zip(reference.get_outputs(), reference.run(None, feeds), strict=True):
            value = found["result"][output.name]
            assert value["dims"] == list(expected.shape)
            np.testing.assert_allclose(np.reshape(value["values"], value["dims"]), expected, RTOL, ATOL)
    assert not started_python(script.page)


FALLBACK = """
for (const [name, value] of Object.entries({ vendor, isFallbackAdapter: vendor === 'google' })) {
  Object.defineProperty(GPUAdapterInfo.prototype, name, { get: () => value });
}
const entries = [];
const { createComputePipelineAsync } = GPUDevice.prototype;
GPUDevice.prototype.createComputePipelineAsync = function counted(descriptor) {
  entries.push(descriptor.compute.entryPoint);
  return createComputePipelineAsync.call(this, descriptor);
};
const { prepare } = Program.prototype;
let device;
Program.prototype.prepare = function known(...given) {
  device = this.device;
  return prepare.apply(this, given);
};
const session = await InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) });
const before = [...entries];
const feeds = { image: new Tensor('float32', image, [1, 1, 16, 16]) };
const run = async () => [...(await session.run(feeds)).probabilities.data];
const answers = [await run()];
await whenOptimized(device);
answers.push(await run());
await session.release();
return { before, entries, answers };
"""


@pytest.mark.parametrize("vendor", ["nvidia", "google"])
def test_plan__with_fallback_kernels__begins_with_these_on_gpus_and_processors(script: Script, vendor: str) -> None:
    image = feeds_of(DIGITS, 1)["image"]
    found = script(
        "const { Program } = await import('/src/web/plans/program.js');"
        "const { whenOptimized } = await import('/src/web/gpu/fallback.js');" + FALLBACK,
        model=DIGITS.read_bytes(),
        plan=compile_model(DIGITS),
        image=image.ravel().tolist(),
        vendor=vendor,
    )
    assert not started_python(script.page)
    fallback = found["before"].count("fallback")
    assert fallback > 0, "what compiles before the first run"
    assert found["entries"] == [*found["before"], *["main"] * fallback], "the others follow"
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image})
    for answer in found["answers"]:
        np.testing.assert_allclose([answer], expected, RTOL, ATOL)


def test_plan__model_in_a_blob_and_garbage_is_collected__every_session_is_made(script: Script) -> None:
    """Only the browser holds a stream that is being read."""
    script(
        """
        const make = async () => {
          for (globalThis.made = 0; globalThis.made < 8; globalThis.made += 1) {
            await (await InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) })).release();
          }
        };
        make().catch((error) => { globalThis.made = String(error); });
        """,
        model=DIGITS.read_bytes(),
        plan=compile_model(DIGITS),
    )
    collector = script.page.context.new_cdp_session(script.page)
    for _ in range(600):  # a stream that was collected never goes on: this is only how long a busy machine may take
        collector.send("HeapProfiler.collectGarbage")
        script.page.wait_for_timeout(100)
        if script.page.evaluate("globalThis.made") not in range(8):
            break
    assert script.page.evaluate("globalThis.made") == 8


def test_other_signature__python_goes_on__and_says_so(script: Script) -> None:
    images = from_counts(load_split().heldout_counts[:3])
    found = script(
        RUN + "const { dispatches } = (await session.explain()); await session.release();"
        "return { result, said, kernels: typeof dispatches };",
        model=DIGITS.read_bytes(),
        plan=compile_model(DIGITS),
        feeds=fed({"image": images}),
    )
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": images})
    values = found["result"]["probabilities"]
    np.testing.assert_allclose(np.reshape(values["values"], values["dims"]), expected, RTOL, ATOL)
    assert found["said"][0] == "pyruntime: no plan runs these inputs and outputs: the session goes on with Python"
    assert started_python(script.page)


def test_stated_value__that_value__runs_without_python_and_another_is_told(script: Script, tmp_path: Path) -> None:
    path = saved(tmp_path, BRANCHES)
    plan = compile_model(path, {"x": [(1, 8)]}, values={"sr": [16000]})
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)
    feeds = fed({"x": x}) | {"sr": {"type": "int64", "data": ["16000"], "dims": []}}
    run = RUN.replace(
        "new Tensor(type, data, dims)", "new Tensor(type, type === 'int64' ? data.map(BigInt) : data, dims)"
    )
    found = script(run + "return { result, said, equal };", model=path.read_bytes(), plan=plan, feeds=feeds)
    assert found["said"] == [] and found["equal"] and not started_python(script.page)
    np.testing.assert_allclose(found["result"]["y"]["values"], np.maximum(x, 0).ravel(), RTOL, ATOL)
    feeds["sr"]["data"] = ["8000"]
    found = script(
        run + "await session.release(); return { result, said };", model=path.read_bytes(), plan=plan, feeds=feeds
    )
    why = "the plan is for sr = 16000, not for sr = 8000"
    assert found["said"][0] == f"pyruntime: {why}: the session goes on with Python"
    np.testing.assert_allclose(found["result"]["y"]["values"], np.exp(-x).ravel(), RTOL, ATOL)


def test_other_value__no_python_to_go_on_with__one_error_says_why_it_is_needed(script: Script, tmp_path: Path) -> None:
    script.page.route("**/pyodide/**", lambda route: route.fulfill(status=404))
    script.guard.allow("404")
    path = saved(tmp_path, BRANCHES)
    plan = compile_model(path, {"x": [(1, 8)]}, values={"sr": [16000]})
    told = script(
        """const session = await InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) });
        const run = (sr) => session.run({ x: new Tensor('float32', new Float32Array(8), [1, 8]),
          sr: new Tensor('int64', [BigInt(sr)], []) }).then(({ y }) => y.dims, ({ name, message }) => [name, message]);
        const told = [await run(8000), await run(16000), await run(8000)];
        await session.release();
        return told;""",
        model=path.read_bytes(),
        plan=plan,
    )
    assert told[0] == told[2] and told[1] == [1, 8]
    name, message = told[0]
    assert name == "Fail"
    assert message.startswith(
        "the plan is for sr = 16000, not for sr = 8000: the session needs Python for that. Python "
    )
    assert "/pyodide/pyodide.mjs cannot be fetched (HTTP status 404)" in message


@pytest.mark.parametrize(
    ("size", "python"), [(1, False), (2, False), (3, True)], ids=["one", "two", "what was not stated"]
)
def test_sizes_one_and_two__each__runs_without_python(script: Script, tmp_path: Path, size: int, python: bool) -> None:
    path = saved(tmp_path, TABLE)
    plan = compile_model(path, {"x": [(1, 4), (2, 4)]})
    feeds = {"x": np.arange(-2, 4 * size - 2, dtype=np.float32).reshape(size, 4)}
    found = script(
        RUN + "await session.release(); return { result, said };", model=path.read_bytes(), plan=plan, feeds=fed(feeds)
    )
    assert started_python(script.page) == python
    np.testing.assert_allclose(found["result"]["y"]["values"], np.maximum(feeds["x"], 0).ravel(), RTOL, ATOL)


@pytest.mark.parametrize(
    ("model", "plan", "reason"),
    [
        (ENLARGE, compile_model(DIGITS), "it is for another model"),
        (DIGITS, compile_model(DIGITS)[:-1], "it is cut off"),
        (DIGITS, b"<!doctype html>", "it is no plan"),
    ],
    ids=["another model", "cut off", "a web page"],
)
def test_plan_that_does_not_fit__python_plans__and_the_console_says_why(
    script: Script, model: Path, plan: bytes, reason: str
) -> None:
    feeds = feeds_of(model, 1)
    found = script(
        RUN + "await session.release(); return { result, said };",
        model=model.read_bytes(),
        plan=plan,
        feeds=fed(feeds),
    )
    expected = onnxruntime.InferenceSession(model).run(None, feeds)[0]
    (value,) = found["result"].values()
    np.testing.assert_allclose(np.reshape(value["values"], value["dims"]), expected, RTOL, ATOL)
    assert found["said"][0].startswith(f"pyruntime: the plan is not used, Python plans: {reason}")


def test_plan_for_shader_f16__adapter_without__python_plans_anew(script: Script, tmp_path: Path) -> None:
    if script("return (await navigator.gpu.requestAdapter()).features.has('shader-f16');"):
        pytest.skip("this adapter has shader-f16")
    path = tmp_path / "half.onnx"
    path.write_bytes(half_models.attention().SerializeToString())
    feeds = half_models.feeds()
    found = script(
        RUN + "await session.release(); return { result, said };",
        model=path.read_bytes(),
        plan=compile_model(path, target=Target(features=frozenset({"shader-f16"}))),
        feeds=fed(feeds),
    )
    assert found["said"][0] == "pyruntime: the plan is not used, Python plans: it is for devices with shader-f16"
    y, tolerance = found["result"]["y"], half_models.TOLERANCE
    expected = half_models.attention_in_float64(**feeds)
    np.testing.assert_allclose(np.reshape(y["values"], y["dims"]), expected, tolerance, tolerance / 8)


def test_weights_in_another_file__plan_that_names_it__runs_without_python_until_it_has_changed(
    script: Script, site_server: Server, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    path = split_digits(tmp_path)
    path.with_suffix(".plan").write_bytes(compile_model(path))
    site_server.mounts["/e2e/split/"] = tmp_path
    images = from_counts(load_split().heldout_counts[:1])
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"image": images})
    body = """
        const said = [];
        const { info } = console;
        console.info = (text) => said.push(text);
        const session = await InferenceSession.create('/e2e/split/split.onnx', { plan: '/e2e/split/split.plan' });
        const { probabilities } = await session.run({ image: new Tensor('float32', image, [1, 1, 16, 16]) });
        console.info = info;
        await session.release();
        return [[...probabilities.data], said];
        """
    values, said = script(body, image=images.ravel().tolist())
    np.testing.assert_allclose(values, expected.ravel(), RTOL, ATOL)
    assert said == []
    assert not started_python(script.page)
    weights = tmp_path / "data" / "weights.bin"
    weights.write_bytes(bytes(weights.stat().st_size))
    values, said = script(body, image=images.ravel().tolist())
    np.testing.assert_allclose(values, np.full(10, 0.1), RTOL, ATOL)
    assert said[0].startswith("pyruntime: the plan is not used, Python plans: ")


def test_widget__plan__answers_without_python(script: Script) -> None:
    found = script(
        """
        await import('/src/web/widget.js');
        const element = document.createElement('pyruntime-model');
        element.setAttribute('src', '/models/digits.onnx');
        element.setAttribute('plan', '/models/digits.plan');
        document.body.append(element);
        const { probabilities } = await element.run({ image: new Float32Array(256) });
        element.remove();
        return [...probabilities.data];
        """
    )
    feeds = {"image": np.zeros((1, 1, 16, 16), np.float32)}
    np.testing.assert_allclose(found, onnxruntime.InferenceSession(DIGITS).run(None, feeds)[0].ravel(), RTOL, ATOL)
    assert not started_python(script.page)


def test_weights_and_input_in_pieces__across_blocks_at_odd_places__as_onnxruntime(
    script: Script, tmp_path: Path
) -> None:
    """Weights of 9.6 MB from byte offsets that no block and no word begins at; an input that is sent in pieces."""
    random = np.random.default_rng(3)
    w = (random.random((1200, 2000), np.float32) - 0.5) / 30
    offsets = set()
    for pad in ("", "p", "pp"):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("ReduceMean", ["product"], ["y"], axes=[0]),
        ]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [600, 1200])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2000])
        graph = helper.make_graph(nodes, "g" + pad, [x], [y], [numpy_helper.from_array(w, "w")])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = tmp_path / f"large{pad}.onnx"
        onnx.save(made, path)
        offsets.add(path.read_bytes().index(w.tobytes()[:64]) % 4)
    assert offsets - {0}
    path = next(p for p in tmp_path.glob("large*.onnx") if p.read_bytes().index(w.tobytes()[:64]) % 4)
    plan = compile_model(path)
    found = script(
        """
        const data = new Float32Array(600 * 1200).map((_, i) => ((i * 7919) % 1000) / 1000);
        const session = await InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) });
        const { y } = await session.run({ x: new Tensor('float32', data, [600, 1200]) });
        await session.release();
        return [...y.data];
        """,
        model=path.read_bytes(),
        plan=plan,
    )
    data = ((np.arange(600 * 1200) * 7919) % 1000 / 1000).astype(np.float32).reshape(600, 1200)
    np.testing.assert_allclose(found, (data @ w).mean(0), RTOL, ATOL)
    assert not started_python(script.page)
