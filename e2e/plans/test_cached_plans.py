"""Plans kept for the next visit (`cachePlan`): what a later page does without Python, and when it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import BrowserContext

from e2e.conftest import mounts
from e2e.harness.browser import fresh_page
from e2e.harness.script import Script
from tests.compiler.test_saved import DIGITS, computed_weights
from tests.onnx.ort_files import converted
from tools.devkit.server import Server

pytestmark = pytest.mark.unguarded

RTOL, ATOL = 1e-3, 1e-4  # float32, as in test_javascript_api.py

RUN = """
if (inPage) env.worker = false;
const said = [];
const info = console.info;
console.info = (text) => { said.push(String(text)); info(text); };
const session = await InferenceSession.create(model, { cachePlan: true, ...options });
const results = [];
for (const dims of shapes) {
  const size = dims.reduce((product, dim) => product * dim, 1);
  const data = new Float32Array(size).map((_, i) => ((i * 7919) % 1000) / 1000);
  const outputs = await session.run({ [session.inputNames[0]]: new Tensor('float32', data, dims) });
  results.push([...outputs[session.outputNames[0]].data]);
}
const { usage } = await import('/src/web/plans/plan_cache.js');
"""


class Visits:
    """Visits of one browser profile to one origin: each is a page of its own."""

    def __init__(self, script: Script, url: str, folder: Path) -> None:
        self.script, self.url, self.folder = script, url, folder

    def __call__(self, path: Path, *shapes: list[int], body: str = "", **options: Any) -> dict[str, Any]:
        """Run a model at `/x/NAME` on data of these shapes; the session is released, which keeps what is new."""
        self.script.page.goto(f"{self.url}e2e/blank.html")
        in_page = options.pop("in_page", False)
        found: dict[str, Any] = self.script(
            RUN + body + "; await session.release(); return { results, said, usage: await usage() };",
            model=f"/x/{path.name}",
            shapes=shapes,
            options=options,
            inPage=in_page,
        )
        assert len(found["results"]) == len(shapes)
        reference = onnxruntime.InferenceSession(path)
        for dims, result in zip(shapes, found["results"], strict=True):
            data = ((np.arange(np.prod(dims)) * 7919) % 1000 / 1000).astype(np.float32).reshape(dims)
            (expected,) = reference.run(None, {reference.get_inputs()[0].name: data})
            np.testing.assert_allclose(result, np.ravel(expected), RTOL, ATOL)
        return found

    @property
    def python(self) -> bool:
        """Whether the last visit has started Python in a worker."""
        return any(w.url.endswith("/worker.js") for w in self.script.page.workers)

    def evaluate(self, code: str) -> Any:
        """JavaScript in the page of the last visit."""
        return self.script.page.evaluate(code)


@pytest.fixture
def visits(context: BrowserContext, site: Path, tmp_path: Path) -> Iterator[Visits]:
    with Server(mounts(site) | {"/x/": tmp_path}) as server, fresh_page(context, server.url) as (page, guard):
        yield Visits(Script(page, guard), server.url, tmp_path)
        guard.allow("404")  # the icon of a page that has none


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    path = tmp_path / "digits.onnx"
    path.write_bytes(DIGITS.read_bytes())
    return path


ONE, TWO, SEVEN = [1, 1, 16, 16], [2, 1, 16, 16], [7, 1, 16, 16]


@pytest.mark.parametrize("in_page", [False, True], ids=["worker", "page"])
def test_second_visit__same_model__runs_without_python_and_gives_the_same_bits(
    visits: Visits, digits: Path, in_page: bool
) -> None:
    first = visits(digits, ONE, in_page=in_page)
    assert first["said"] == [] and first["usage"]["plans"] == 1
    assert in_page or visits.python
    summary = "results.push((await session.summary())); const whole = results.pop();"
    second = visits(digits, ONE, in_page=in_page, body=summary + "said.push(JSON.stringify(whole));")
    assert second["results"] == first["results"]
    assert '"placement":"gpu"' in second["said"][0] and len(second["said"]) == 1
    fetched = visits.evaluate("performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname)")
    assert [n for n in fetched if "pyodide" in n or n.endswith((".whl", "worker.js", "host.js"))] == []


def test_second_visit__model_in_ort_format__runs_without_python_and_gives_the_same_bits(
    visits: Visits, digits: Path
) -> None:
    path = digits.with_suffix(".ort")
    data = converted(digits.read_bytes())
    assert data is not None
    path.write_bytes(data)
    first = visits(path, ONE, TWO)
    assert first["said"] == [] and visits.python
    second = visits(path, ONE, TWO)
    assert second["results"] == first["results"]
    assert not visits.python


def test_other_shapes__are_added__and_later_visits_have_all(visits: Visits, digits: Path) -> None:
    visits(digits, ONE)
    second = visits(digits, ONE, TWO)
    assert second["said"] == ["pyruntime: no plan runs these inputs and outputs: the session goes on with Python"]
    third = visits(digits, TWO, ONE)
    assert third["said"] == [] and not visits.python
    visits(digits, SEVEN)
    fourth = visits(digits, SEVEN, ONE, TWO)
    assert fourth["said"] == [] and not visits.python
    assert fourth["usage"]["plans"] == 1


def test_computed_weights__kept__are_computed_again(visits: Visits, tmp_path: Path) -> None:
    path = tmp_path / "computed.onnx"
    onnx.save(computed_weights(), path)
    visits(path, [3, 160])
    assert visits(path, [3, 160])["said"] == [] and not visits.python


def large_weights(path: Path, scale: float = 1) -> list[str]:
    """A model of weights in two files, one of 42 MB, which a worker holds outside its memory; these files."""
    random = np.random.default_rng(5)
    w, b = ((random.random(shape, np.float32) - 0.5) * scale / 40 for shape in ((1500, 7000), (7000, 40)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1500])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 40])
    files = [f"{path.stem} 1.data", f"{path.stem}_2.data"]
    initializers = []
    for name, value, file, pad in (("w", w, files[0], 3), ("b", b, files[1], 0)):
        (path.parent / file).write_bytes(bytes(pad) + value.tobytes() + b"end")
        tensor = TensorProto(
            name=name, dims=value.shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
        )
        entries = {"location": file, "offset": str(pad), "length": str(value.nbytes)}
        for key, entry in entries.items():
            tensor.external_data.add(key=key, value=entry)
        initializers.append(tensor)
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    return files


@pytest.mark.parametrize("given", [False, True], ids=["fetched", "externalData"])
def test_external_data__two_files__runs_without_python_and_gives_the_same_bits(
    visits: Visits, tmp_path: Path, given: bool
) -> None:
    files = large_weights(tmp_path / "large.onnx")
    options: dict[str, Any] = {"externalData": [{"path": f, "data": f"/x/{f}"} for f in files]} if given else {}
    first = visits(tmp_path / "large.onnx", [2, 1500], **options)
    assert first["said"] == [] and first["usage"]["plans"] == 1
    assert first["usage"]["bytes"] < 1 << 20, "weights are not in the plan"
    second = visits(tmp_path / "large.onnx", [2, 1500], **options)
    assert second["said"] == [] and not visits.python
    assert second["results"] == first["results"]


def test_external_data__changed_under_the_same_model__is_planned_anew(visits: Visits, tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    large_weights(path)
    visits(path, [2, 1500])
    before = path.read_bytes()
    large_weights(path, scale=0.5)
    assert path.read_bytes() == before
    found = visits(path, [2, 1500])  # the results are compared with onnxruntime's
    assert found["said"][0].startswith("pyruntime: the plan is not used, Python plans: it is for another model")
    assert visits(path, [2, 1500])["said"] == [] and not visits.python


def test_options__others__have_plans_of_their_own(visits: Visits, digits: Path) -> None:
    visits(digits, ONE)
    found = visits(digits, ONE, freeDimensionOverrides={"N": 1})
    assert found["said"] == [] and visits.python
    assert found["usage"]["plans"] == 2
    assert visits(digits, ONE, freeDimensionOverrides={"N": 1})["said"] == [] and not visits.python


def test_model__another_one_at_the_address__is_planned_and_kept(visits: Visits, digits: Path) -> None:
    visits(digits, ONE)
    model = onnx.load(digits)
    weights = next(i for i in model.graph.initializer if i.data_type == TensorProto.FLOAT)
    data = onnx.numpy_helper.to_array(weights)
    weights.CopyFrom(onnx.numpy_helper.from_array(data * np.float32(0.5), weights.name))
    onnx.save(model, digits)
    found = visits(digits, ONE)
    assert found["said"][0].startswith("pyruntime: the plan is not used, Python plans: it is for another model")
    assert visits(digits, ONE)["said"] == [] and not visits.python


EDIT = """async () => {
    const cache = await caches.open('pyruntime-plans');
    for (const request of await cache.keys()) {
        if (request.url.endsWith('/order')) continue;
        const response = await cache.match(request);
        let bytes = new Uint8Array(await response.arrayBuffer());
        const made = JSON.parse(decodeURIComponent(response.headers.get('X-Made')));
        CHANGE;
        const headers = { 'Content-Length': String(bytes.length), 'X-Made': encodeURIComponent(JSON.stringify(made)) };
        await cache.delete(request);
        await cache.put(request.url + SUFFIX, new Response(bytes, { headers }));
    }
}"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("made.version = '0.0.1'; SUFFIX = 'x'", "the cached plan is of pyruntime 0.0.1"),
        ("made.adapter.architecture = 'other'; SUFFIX = 'x'", "the cached plan is for another adapter"),
        ("bytes = bytes.slice(0, -1)", "it is cut off"),
        ("bytes[bytes.length - 5] ^= 4", "it is damaged"),
        ("bytes = bytes.slice(0, 0)", "it is no plan"),
    ],
    ids=["version", "adapter", "cut off", "flipped", "empty"],
)
def test_cached_plan_that_does_not_fit__python_plans__says_why_and_keeps_another(
    visits: Visits, digits: Path, change: str, reason: str
) -> None:
    first = visits(digits, ONE)
    visits.evaluate("async () => { globalThis.SUFFIX = ''; }")
    visits.evaluate(EDIT.replace("CHANGE", change))
    second = visits(digits, ONE)
    assert second["said"][0].startswith(f"pyruntime: the plan is not used, Python plans: {reason}")
    assert second["results"] == first["results"] and visits.python
    assert second["usage"]["plans"] == (2 if "adapter" in change else 1)
    assert visits(digits, ONE)["said"] == [] and not visits.python


def test_model_that_needs_python__nothing_is_kept__and_it_works(visits: Visits, tmp_path: Path) -> None:
    path = tmp_path / "nonzero.onnx"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    visits.script.page.goto(f"{visits.url}e2e/blank.html")
    found = visits.script(
        """
        const session = await InferenceSession.create('/x/nonzero.onnx', { cachePlan: true });
        const { y } = await session.run({ x: new Tensor('float32', new Float32Array([1, 0, 2]), [3]) });
        await session.release();
        const { usage } = await import('/src/web/plans/plan_cache.js');
        return { y: [...y.data].map(Number), usage: await usage() };
        """
    )
    assert found == {"y": [0, 2], "usage": {"plans": 0, "bytes": 0}}


def test_gpu_tensors__of_another_session__go_to_a_session_from_a_cached_plan(visits: Visits, tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    visits(path, [4])
    visits.script.page.goto(f"{visits.url}e2e/blank.html")
    found = visits.script(
        """
        const other = await InferenceSession.create('/x/relu.onnx', { preferredOutputLocation: 'gpu-buffer' });
        const { y: kept } = await other.run({ x: new Tensor('float32', new Float32Array([1, -1, 2, -2]), [4]) });
        const session = await InferenceSession.create('/x/relu.onnx', { cachePlan: true });
        const { y } = await session.run({ x: kept });
        return [kept.location, ...y.data];
        """
    )
    assert found == ["gpu-buffer", 1, 0, 2, 0]


def test_storage__full__forgets_what_was_not_used_for_longest(visits: Visits) -> None:
    visits.script.page.goto(f"{visits.url}e2e/blank.html")
    found = visits.script(
        """
        const { clear, find, put, usage } = await import('/src/web/plans/plan_cache.js');
        const adapter = { vendor: 'v', architecture: '', device: '', description: '' };
        const made = { version: '1', adapter };
        for (let i = 0; i < 64; i += 1) await put(`model${i}`, made, new ArrayBuffer(100));
        const [first] = await find('model0');
        await first.read();
        for (let i = 64; i < 66; i += 1) await put(`model${i}`, made, new ArrayBuffer(100));
        const left = [];
        for (let i = 0; i < 66; i += 1) if ((await find(`model${i}`)).length) left.push(i);
        const many = await usage();
        const large = [];
        for (let i = 0; i < 5; i += 1) large.push(await put(`large${i}`, made, new ArrayBuffer(15 << 20)));
        const heavy = await usage();
        const tooLarge = await put('huge', made, new ArrayBuffer((16 << 20) + 1));
        await clear();
        return { left, many, large, heavy, tooLarge, after: await usage() };
        """
    )
    assert found["left"] == [0, *range(3, 66)]
    assert found["many"] == {"plans": 64, "bytes": 6400}
    assert found["large"] == [True] * 5 and not found["tooLarge"]
    assert found["heavy"]["bytes"] <= 64 << 20 and found["heavy"]["plans"] < 64
    assert found["after"] == {"plans": 0, "bytes": 0}


def test_widget__cache_plan__second_visit_answers_without_python(visits: Visits, digits: Path) -> None:
    answers = []
    for _ in range(2):
        visits.script.page.goto(f"{visits.url}e2e/blank.html")
        answers.append(
            visits.script(
                """
                await import('/src/web/widget.js');
                const element = document.createElement('pyruntime-model');
                element.setAttribute('src', '/x/digits.onnx');
                element.setAttribute('cache-plan', '');
                document.body.append(element);
                const { probabilities } = await element.run({ image: new Float32Array(256) });
                await element.session.release();
                return [...probabilities.data];
                """
            )
        )
    assert answers[0] == answers[1] and not visits.python
