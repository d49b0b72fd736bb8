"""Sessions over models compiled ahead of time: web/plans/ without Python, and with it where a plan does not do."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
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
from pyruntime.plan.saved import FORMAT
from pyruntime.session.ahead import compile_model
from tests import half_models
from tests.plan.test_saved import DIGITS, ENLARGE, broken_plans, saved_model, split_digits
from tests.session.test_keeping import kept_file
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
@pytest.mark.parametrize("name", ["digits", "digits of any number", "enlarge3", "computed weights"])
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


def test_plan__model_in_a_blob_and_garbage_is_collected__every_session_is_made(script: Script) -> None:
    """Nobody but the browser holds a stream that is being read."""
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


REASONS = """
const { readPlan, Refused } = await import('/web/plans/plan.js');
const adapter = await navigator.gpu.requestAdapter();
const device = await adapter.requestDevice();
const reasons = [];
for (const text of plans) {
  try {
    await readPlan(decode(text).buffer, { version: env.versions.pyruntime, device, vendor: '' });
    reasons.push('was read');
  } catch (error) {
    reasons.push(error instanceof Refused ? error.message : `${error.name} ${error.message}`);
  }
}
return reasons;
"""


def test_broken_plans__all__are_refused_with_a_reason(script: Script) -> None:
    good = compile_model(DIGITS)
    plans = [data for _, data in broken_plans() if data != good]
    assert len(plans) >= 100
    texts = [base64.b64encode(data).decode() for data in (*plans, good)]
    *reasons, last = script(REASONS, plans=texts)
    assert last == "was read"
    assert [r for r in reasons if not r.startswith("it ")] == []


FORGED = """
h => h.programs[0].plan.commands[0].regions[0][2] = 2 ** 40
h => h.programs[0].plan.commands[0].regions[0][1] = 99
h => h.programs[0].plan.commands[0].regions[0][3] = 2 ** 31
h => h.programs[0].plan.commands[0].regions[0][2] = 4
h => h.programs[0].plan.commands[0].regions[0][0] = 7
h => h.programs[0].plan.commands[0].shader = 1e6
h => h.programs[0].plan.commands[0].grid = [1e9, 1, 1]
h => h.programs[0].plan.commands[0].grid = [-1, 1, 1]
h => h.programs[0].plan.commands[0].grid = [1]
h => h.programs[0].plan.commands[0].scaled = [0, 0, 0]
h => h.programs[0].plan.commands[0].params = [0, 1e9]
h => h.programs[0].plan.arenas = [2 ** 50]
h => h.programs[0].plan.arenas = Array(1000).fill(256)
h => h.programs[0].plan.arenas = [-1]
h => h.programs[0].plan.arenas = null
h => h.programs[0].plan.params = [0, 2 ** 40]
h => h.programs[0].plan.uploads[0].dims = [2 ** 30, 2 ** 30]
h => h.programs[0].plan.uploads[0].bits = 7
h => h.programs[0].plan.uploads[0].name = 5
h => h.programs[0].plan.uploads[0].name = '__proto__'
h => h.programs[0].plan.downloads = []
h => h.programs[0].plan.downloads[0].name = 'other'
h => h.programs[0].plan.expressions = [[[1, [0]]]]
h => h.programs[0].plan.patches = [[1e9, 'u32', 0]]
h => h.programs[0].plan.constants[0] = [1e6, 'float32', [1]]
h => h.programs[0].plan.shaders = [1e6]
h => h.programs[0].plan.commands = 'x'
h => h.programs[0].plan = null
h => h.programs[0].computed = { x: 0 }
h => h.programs = {}
h => h.programs = []
h => h.programs[0].plan.unread = null
h => h.programs[0].plan.unread = [{}]
h => h.programs[0].plan.unread = [{ name: 'x', type: 'float32', dims: [1.5], scaled: [] }]
h => h.programs[0].plan.unread = [{ name: 'x', type: 'float32', dims: [1], scaled: [0] }]
h => h.programs[0].plan.nodes = [['a', 'b', 'c', 'nowhere', '', []]]
h => h.programs[0].plan.nodes = null
h => h.programs[0].plan.memory = [-1, 0, 0, 0, 0]
h => h.programs = Array(65).fill(h.programs[0])
h => h.constants[0][1] = 2 ** 52
h => h.constants[0][2] = 2 ** 40
h => h.constants[0][3] = 50
h => h.constants[0][4] = 2 ** 40
h => h.constants[0] = []
h => h.constants[0][0] = 2
h => h.constants[0][0] = -1
h => h.model.inside = true
h => h.files = null
h => h.files = {}
h => h.files = [null]
h => h.files = [{ path: 'a', nbytes: -1, hash: '' }]
h => h.files = [{ path: 'a', nbytes: 2 ** 60, hash: '' }]
h => h.files = [{ path: 'a', nbytes: 4 }]
h => h.files = [{ path: '', nbytes: 4, hash: '' }]
h => h.files = [{ path: '../a', nbytes: 4, hash: '' }]
h => h.files = [{ path: 'a/../../b', nbytes: 4, hash: '' }]
h => h.files = [{ path: '/a', nbytes: 4, hash: '' }]
h => h.files = [{ path: 'https://example.org/a', nbytes: 4, hash: '' }]
h => h.files = [{ path: 'a\\\\b', nbytes: 4, hash: '' }]
h => { h.files = [{ path: 'a', nbytes: 4, hash: '' }]; h.constants[0][0] = 2; }
h => h.buffers[0][0] = 2 ** 27
h => h.buffers[0][0] = 2 ** 60
h => h.buffers = Array(1e5).fill([256, 1])
h => h.shaders = [1]
h => h.model = null
h => h.model.nbytes = -1
h => h.package = '9.9.9'
h => h.target.limits.storage_buffers = 1e6
h => h.target.limits = {}
h => h.target.features = ['float32-filterable-and-more']
h => h.target.vendor = 'other'
h => h.inputs = [null]
h => h.outputs = []
h => h.computed = [1]
h => { let e = []; for (let i = 0; i < 100; i++) e = [[1, [['//', e, []]]]]; h.programs[0].plan.expressions = [e]; }
h => h.programs[0].sizes = { ranges: [[0, 'x']], grows: [], guards: [], waste: 1 }
""".strip().splitlines()


FORGED_CACHES = """
(h, p) => p.inputs = null
(h, p) => p.inputs = {}
(h, p) => p.inputs = [5]
(h, p) => p.inputs = ['__proto__']
(h, p) => p.inputs = ['nothing']
(h, p) => p.inputs.push(p.inputs[0])
(h, p) => p.inputs = Array(1e5).fill('x')
(h, p) => p.inputs = []
(h, p) => p.outputs = null
(h, p) => p.outputs = ['nothing']
(h, p) => p.outputs = [p.inputs[0]]
(h, p) => p.outputs = [p.plan.kept[0].name]
(h, p) => p.computed = { [p.inputs[0]]: 0 }
(h, p) => p.plan.external = []
(h, p) => p.plan.external[0].region[3] = 2 ** 50
(h, p) => p.plan.external[0].region[2] = 256
(h, p) => p.plan.external[1].region[1] = p.plan.external[0].region[1]
(h, p) => p.plan.external[0].dims = [2 ** 40, 2 ** 40]
(h, p) => p.plan.kept = null
(h, p) => p.plan.kept = [null]
(h, p) => p.plan.kept = [{}]
(h, p) => p.plan.kept.push(p.plan.kept[0])
(h, p) => p.plan.kept[0].name = 'other'
(h, p) => p.plan.kept[0].name = '__proto__'
(h, p) => p.plan.kept[0].name = p.plan.downloads[0].name
(h, p) => p.plan.kept[0].input = p.plan.kept[1].input
(h, p) => p.plan.kept[0].input = p.plan.uploads[0].name
(h, p) => p.plan.kept[0].input = 7
(h, p) => p.plan.kept[0].type = 'int4'
(h, p) => p.plan.kept[0].bits = 1
(h, p) => p.plan.kept[0].dims = [1]
(h, p) => p.plan.kept[0].dims[2] = 2 ** 60
(h, p) => p.plan.kept[0].dims[2] = -1
(h, p) => p.plan.kept[0].scaled = [1e6, -1, -1, -1]
(h, p) => p.plan.kept[0].scaled = [0]
(h, p) => p.plan.kept[0].axis = 9
(h, p) => p.plan.kept[0].axis = 0.5
(h, p) => p.plan.kept[0].room = 99
(h, p) => p.plan.kept[0].room = 'x'
(h, p) => p.plan.kept[0].given = 5
(h, p) => p.plan.kept[0].given = { dims: [1], scaled: [] }
(h, p) => p.plan.kept[0].given = { dims: null, scaled: [] }
(h, p) => p.plan.kept[0].first = {}
(h, p) => p.plan.kept[0].first = { input: 3, offset: 0, expression: -1 }
(h, p) => p.plan.kept[0].end = { input: '', offset: 2 ** 60, expression: -1 }
(h, p) => p.plan.kept[0].end = { input: '', offset: 0, expression: 1e6 }
(h, p) => p.values = null
(h, p) => p.values = { nothing: [0, 4] }
(h, p) => p.values = { [p.inputs[0]]: [0, 4] }
(h, p) => p.values = { [p.plan.uploads[0].name]: [0, 2 ** 40] }
(h, p) => p.values = { [p.plan.uploads[0].name]: [2 ** 40, 4] }
(h, p) => p.values = { [p.plan.uploads[0].name]: [-4, 4] }
(h, p) => p.values = { [p.plan.uploads[0].name]: null }
(h, p) => h.outputs = h.outputs.slice(1)
""".strip().splitlines()

FORGED_ROOMS = """
(h, p) => p.plan.kept[0].axis = -1
(h, p) => p.plan.kept[0].given = null
(h, p) => p.plan.kept[0].scaled = []
(h, p) => p.plan.kept[0].given.scaled = p.plan.kept[0].given.scaled.map(() => 1e6)
(h, p) => p.plan.expressions = p.plan.expressions.map(() => [[1, [['//', [[1, [0]]], [[2, []]]]]]])
(h, p) => p.sizes.values = null
(h, p) => p.sizes.values = { x: 99 }
(h, p) => p.sizes.values = { x: -1 }
(h, p) => p.sizes = null
""".strip().splitlines()

FORGED_ROWS = """
(h, p) => p.plan.kept[0].first = null
(h, p) => p.plan.kept[0].end = null
(h, p) => p.plan.kept[0].axis = -1
(h, p) => p.plan.kept[0].first.expression = 1e6
(h, p) => p.plan.kept[0].first.offset = null
(h, p) => p.plan.kept[0].first.input = '__proto__'
""".strip().splitlines()


def forged(good: bytes, changes: list[str], script: Script) -> list[tuple[str, str]]:
    """Changes of the header of a plan, its hash right again, with why the plan is refused."""
    _, _, packed, _, _, _ = struct.unpack_from("<8sIIII32s", good)
    header = json.loads(zlib.decompress(good[56 : 56 + packed]))
    headers = script(
        f"const changes = [{', '.join(changes)}];"
        "return changes.map((change) => { const h = structuredClone(header);"
        "change(h, h.programs.find(({ plan }) => plan.kept.length)); return JSON.stringify(h); })",
        header=header,
    )
    sections = good[56 + packed :]
    plans = []
    for text in headers:
        data = zlib.compress(text.encode())
        body = data + sections
        head = struct.pack(
            "<8sIIII32s", b"pyrtplan", FORMAT, len(data), len(text.encode()), len(sections), sha256(body).digest()
        )
        plans.append(head + body)
    *reasons, last = script(REASONS, plans=[base64.b64encode(p).decode() for p in (*plans, good)])
    assert last == "was read"
    return list(zip(changes, reasons, strict=True))


def test_forged_headers__right_hash__are_refused_before_anything_is_allocated(script: Script) -> None:
    found = forged(compile_model(DIGITS), FORGED, script)
    assert [pair for pair in found if not pair[1].startswith("it ")] == []


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("concat", [*FORGED_CACHES, *FORGED_ROOMS]),
        ("group_query_scalar", [*FORGED_CACHES, *FORGED_ROOMS]),
        ("static scatter", [*FORGED_CACHES, *FORGED_ROWS]),
    ],
)
def test_forged_caches__right_hash__are_refused_before_anything_is_allocated(
    name: str, changes: list[str], script: Script
) -> None:
    with ThreadPoolExecutor(1) as thread:  # Playwright's loop runs in this one
        good = thread.submit(kept_file, name).result()
    found = forged(good, changes, script)
    assert [pair for pair in found if not pair[1].startswith("it ")] == []


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


def test_first_visit__plan_beside_the_model__fetches_little_and_no_python(script: Script, site: Path) -> None:
    """Scripts compressed with gzip, as static hosts send them; the plan as it is."""
    plan = compile_model(DIGITS)
    found = script(
        """
        const session = await InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) });
        await session.run({ image: new Tensor('float32', new Float32Array(256), [1, 1, 16, 16]) });
        return performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname);
        """,
        model=DIGITS.read_bytes(),
        plan=plan,
    )
    assert not started_python(script.page)
    assert [n for n in found if "pyodide" in n or n.endswith((".whl", "worker.js", "host.js"))] == []
    fetched = sorted({n for n in found if n.startswith("/web/")})
    assert "/web/plans/plan.js" in fetched
    sizes = {n: len(gzip.compress((site / n[1:]).read_bytes())) for n in fetched}
    assert "/web/generate/generator.js" not in fetched
    assert sum(sizes.values()) + len(plan) < 90_000, sizes


def test_widget__plan__answers_without_python(script: Script, site: Path) -> None:
    plan = site / "models" / "digits.plan"
    plan.write_bytes(compile_model(DIGITS))
    found = script(
        """
        await import('/web/widget.js');
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
