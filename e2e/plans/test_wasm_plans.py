"""Plans for WebAssembly: sessions without Python and without a GPU, in the page's thread."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Page

from e2e.harness.browser import Guard
from e2e.harness.script import Script
from e2e.plans.test_plans import RUN, fed, feeds_of, started_python
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.target.named import read_target
from tests.compiler.test_saved import DIGITS, saved_model

WASM = read_target("wasm")
RTOL, ATOL = 1e-3, 1e-4

WITHOUT_GPU = "Object.defineProperty(navigator, 'gpu', { value: undefined });\n"


@pytest.fixture
def script(page: Page, guard: Guard, site_url: str) -> Script:
    """A page of its own: no test before it has started Python there."""
    page.goto(f"{site_url}e2e/blank.html")
    return Script(page, guard)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", ["digits", "enlarge3", "computed weights"])
def test_plan__models__onnxruntimes_answer_without_python_and_gpu(
    script: Script, page: Page, tmp_path: Path, name: str, inside: bool
) -> None:
    path, _ = saved_model(tmp_path, name)
    feeds = feeds_of(path, 1)
    found = script(
        WITHOUT_GPU + RUN + "const { providers } = await session.summary(); await session.release();"
        "return { result, equal, said, providers };",
        model=b"" if inside else path.read_bytes(),
        plan=compile_model(path, target=WASM, inside=inside),
        feeds=fed(feeds),
    )
    session = onnxruntime.InferenceSession(path)
    for output, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        values = np.reshape(found["result"][output.name]["values"], found["result"][output.name]["dims"])
        np.testing.assert_allclose(values, expected, rtol=RTOL, atol=ATOL)
    assert found["equal"] and found["said"] == [] and found["providers"] == ["CPUExecutionProvider"]
    assert not started_python(page)


def recurrent_model() -> onnx.ModelProto:
    """An LSTM whose state a caller hands on, as voice activity detection has it, for one of two rates."""
    random = np.random.default_rng(0)
    weights = {"w": (1, 64, 8), "r": (1, 64, 16), "b": (1, 128)}
    constants = [
        numpy_helper.from_array(random.standard_normal(s).astype(np.float32) / 3, n) for n, s in weights.items()
    ]
    given = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8]),
        *(helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 16]) for n in ("h", "c")),
        helper.make_tensor_value_info("fast", TensorProto.BOOL, []),
    ]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 16]) for n in ("h2", "c2")]
    branches = {
        f"{branch}_branch": helper.make_graph(
            [helper.make_node(kind, ["x"], ["z"])], branch, [], [helper.make_tensor_value_info("z", 1, [1, 1, 8])]
        )
        for branch, kind in (("then", "Neg"), ("else", "Identity"))
    }
    nodes = [
        helper.make_node("If", ["fast"], ["v"], **branches),
        helper.make_node("LSTM", ["v", "w", "r", "b", "", "h", "c"], ["", "h2", "c2"], hidden_size=16),
    ]
    graph = helper.make_graph(nodes, "g", given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


STEPS = """
const options = { plan: decode(plan), executionProviders: ['wasm'] };
const session = await InferenceSession.create(new Blob([decode(model)]), options);
let [h, c] = [0, 1].map(() => new Tensor('float32', new Float32Array(16), [1, 1, 16]));
for (let step = 0; step < 20; step += 1) {
  const x = new Tensor('float32', Float32Array.from({ length: 8 }, (_, i) => Math.sin(step + i)), [1, 1, 8]);
  const fast = new Tensor('bool', [step % 3 === 0], []);
  ({ h2: h, c2: c } = await session.run({ x, h, c, fast }));
}
return [...h.data];
"""


def test_plan__states_that_runs_hand_on__onnxruntimes_answer(script: Script, page: Page, tmp_path: Path) -> None:
    path = tmp_path / "steps.onnx"
    onnx.save(recurrent_model(), path)
    plan = compile_model(path, target=WASM, values={"fast": [True, False]})
    found = script(WITHOUT_GPU + STEPS, model=path.read_bytes(), plan=plan)
    session = onnxruntime.InferenceSession(path)
    h = c = np.zeros((1, 1, 16), np.float32)
    for step in range(20):
        x = np.sin(step + np.arange(8, dtype=np.float32)).reshape(1, 1, 8)
        h, c = session.run(None, {"x": x, "h": h, "c": c, "fast": np.array(step % 3 == 0)})
    np.testing.assert_allclose(found, h.ravel(), rtol=1e-4, atol=1e-5)
    assert not started_python(page)


OTHER = """
const said = [];
console.info = (text) => { said.push(String(text)); };
const options = { plan: decode(plan), executionProviders: [provider] };
const session = await InferenceSession.create(new Blob([decode(model)]), options);
const image = new Tensor('float32', new Float32Array(256 * count), [count, 1, 16, 16]);
const { probabilities } = await session.run({ image });
return { dims: [...probabilities.dims], said };
"""


@pytest.mark.parametrize(
    ("provider", "count", "reason"),
    [
        ("cpu", 3, "no plan runs these inputs and outputs: the session goes on with Python"),
        ("webgpu", 1, "the first execution provider is 'webgpu'"),
    ],
)
def test_plan__what_it_is_not_for__runs_in_python(script: Script, provider: str, count: int, reason: str) -> None:
    plan = compile_model(DIGITS, target=WASM)
    found = script(OTHER, model=DIGITS.read_bytes(), plan=plan, provider=provider, count=count)
    assert found["dims"] == [count, 10]
    assert any(reason in text for text in found["said"])


FORGED = """
h => h.module.code = [0, 2 ** 40]
h => h.module.code = null
h => h.module = null
h => h.module.pages = 0
h => h.module.pages = 2 ** 20
h => h.module.buffers[0] = 2 ** 31
h => h.module.buffers[0] = -4
h => h.module.buffers = []
h => h.module.arenas[0][0] = h.module.pages * 65536 - 4
h => h.module.arenas = [[]]
h => h.module.arenas = []
h => h.module.computed = [0, 0, 0]
h => h.programs[0].plan.downloads[0].region[0] = 2
h => h.programs[0].plan.uploads[0].region[2] = 2 ** 40
h => h.programs[0].sizes = { ranges: [[2, 9]], grows: [true], guards: [], values: {}, waste: 4 }
""".strip().splitlines()

FORGING = """
const { readPlan, Refused } = await import('/src/web/plans/plan.js');
const file = decode(plan);
const view = new DataView(file.buffer, file.byteOffset);
const packed = view.getUint32(12, true);
const inflated = async (data, Stream) => new Uint8Array(await new Response(
  new Blob([data]).stream().pipeThrough(new Stream('deflate'))).arrayBuffer());
const header = new TextDecoder().decode(await inflated(file.slice(56, 56 + packed), DecompressionStream));
const reasons = [];
for (const change of changes) {
  const h = JSON.parse(header);
  change(h);
  const text = new TextEncoder().encode(JSON.stringify(h));
  const body = new Blob([await inflated(text, CompressionStream), file.slice(56 + packed)]);
  const bytes = new Uint8Array(await body.arrayBuffer());
  const head = file.slice(0, 56);
  const fields = new DataView(head.buffer);
  fields.setUint32(12, bytes.length - view.getUint32(20, true), true);
  fields.setUint32(16, text.length, true);
  head.set(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)), 24);
  const forged = await new Blob([head, bytes]).arrayBuffer();
  try {
    await readPlan(forged, { version: env.versions.pyruntime });
    reasons.push('was read');
  } catch (error) {
    reasons.push(error instanceof Refused ? error.message : `${error.name} ${error.message}`);
  }
}
return reasons;
"""


def test_plan__forged_module__is_refused_before_memory_is_allocated(script: Script) -> None:
    changes = f"const changes = [{', '.join(['() => {}', *FORGED])}];\n"
    first, *reasons = script(changes + FORGING, plan=base64.b64encode(compile_model(DIGITS, target=WASM)).decode())
    assert first == "was read"
    wrong = [(change, r) for change, r in zip(FORGED, reasons, strict=True) if not r.startswith("it is damaged")]
    assert wrong == []
