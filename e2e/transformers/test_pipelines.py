"""transformers.js, unmodified, on this project: its pipelines give what they give on onnxruntime-web.

The models have random weights, so that only the whole way counts: files, tokenizers, sessions, caches, post-processing.
Both run in the same browser, this project on WebGPU, onnxruntime-web on the processor (its WebAssembly).
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from playwright.sync_api import Browser, Page, Worker

from e2e.harness.browser import Guard, guarded_page
from e2e.transformers.matching import write_matching
from e2e.transformers.packed import BUILT
from e2e.transformers.repositories import write_repositories
from tests.genai.greedy import greedy
from tools.devkit import fetch, pins
from tools.devkit.server import Server
from tools.devkit.site import WEB

pytestmark = pytest.mark.unguarded

PAGES = Path(__file__).parent / "pages"
WATCH = Path(__file__).parents[1] / "pages/watch.js"
CASES = [
    name
    for script in ("cases.js", "matching.js")
    for name in re.findall(r"^  async '?([^'(]+)'?\(", (PAGES / script).read_text(), re.M)
]
ATOL = 1e-3  # float32: embeddings, scores, logits

OURS = "/web/pyruntime.js"
PEER = "/ort/dist/ort.webgpu.bundle.min.mjs"
LIBRARY = "/transformers/dist/transformers.web.js"
BUNDLE = "/transformers/dist/transformers.min.js"
WASM = "/ort/dist/ort-wasm-simd-threaded.asyncify.wasm"

Json = dict[str, Any]

GPU: Json = {"device": "webgpu", "dtype": "fp32"}
"""As a page asks for WebGPU."""

PROCESSOR: Json = {"device": "wasm", "dtype": "fp32"}

UNNAMED: Json = {"device": "gpu", "dtype": "fp32"}
"""The bundled files know no device by its name where the runtime is another one than theirs."""


def _imports(runtime: str) -> str:
    names = {"onnxruntime-web/webgpu": runtime, "onnxruntime-common": runtime, "@huggingface/transformers": LIBRARY}
    return f'<script type="importmap">{json.dumps({"imports": names})}</script>'


HTML = {
    "ours": _imports(OURS) + '<script type="module" data-page src="page.js"></script>',
    "in-page": _imports("/web/page.js") + '<script type="module" data-page src="page.js"></script>',
    "peer": _imports(PEER) + f'<script type="module" data-page data-wasm="{WASM}" src="page.js"></script>',
    "bundle": f'<script type="module" data-page data-symbol="/web/transformers.js" data-library="{BUNDLE}" '
    'src="page.js"></script>',
    "own-worker": '<script type="module" src="own-worker.js"></script>',
}


@pytest.fixture(scope="module")
def url(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pages, the library, both runtimes and the models on one server."""
    folder = tmp_path_factory.mktemp("transformers")
    write_repositories(folder / "models")
    write_matching(folder / "models")
    for name, body in HTML.items():
        (folder / f"{name}.html").write_text(f"<!doctype html>\n<meta charset='utf-8'>\n{body}\n")
    for script in (*PAGES.iterdir(), WATCH):
        (folder / script.name).write_bytes(script.read_bytes())
    mounts = {
        "/": folder,
        "/web/": WEB,
        "/web/vendor/": site / "web" / "vendor",
        "/ort/": fetch.npm_package(pins.ONNXRUNTIME_WEB),
        "/transformers/": fetch.transformers_js(),
        **{f"/{path.name}": path for path in site.iterdir() if path.suffix == ".whl"},
        **{f"/{name}/": site / name for name in ("pyodide", "snapshot")},
    }
    with Server(mounts, policy=None) as server:  # an import map in the page needs a policy of its own
        yield server.url


@contextmanager
def opened(browser: Browser, url: str, name: str) -> Iterator[tuple[Page, Guard]]:
    with guarded_page(browser, url) as (page, guard):
        guard.allow("404|powerPreference|Some nodes were not assigned|VerifyEachNodeIsAssignedToAnEp|Too many inputs")
        page.goto(f"{url}{name}.html")
        page.wait_for_function("globalThis.ready")
        yield page, guard


@pytest.fixture(scope="module")
def pages(browser: Browser, url: str) -> Iterator[dict[str, Page]]:
    """A page with each runtime, kept: Python starts once."""
    with ExitStack() as stack:
        made = {name: stack.enter_context(opened(browser, url, name))[0] for name in ("ours", "peer")}
        made["ours"].evaluate(f"import('{OURS}').then(({{ preload }}) => preload())")
        pythons(made["ours"])[0].evaluate("() => import('/watch.js').then(() => null)")
        yield made


def pythons(page: Page) -> list[Worker]:
    """The workers that run Python for `page`."""
    return [worker for worker in page.workers if worker.url.endswith("/web/worker.js")]


def gpu_bytes(page: Page) -> dict[str, int]:
    """What `page`'s Python has on the GPU, by label, without the buffers kept to read results with."""
    (python,) = pythons(page)
    held: dict[str, int] = python.evaluate("() => gpuBytes()")
    return {label: size for label, size in held.items() if label != "staging"}


SPECTROGRAMS = {
    "arena": sum(-(-4 * rows * columns // 256) * 256 for rows, columns in ((80, 201), (201, 3000), (80, 3000)))
}
SPECTROGRAMS["params"] = 256
"""What the library keeps for itself, once Whisper's mels were made: the session of a product, without weights."""


def left_on_gpu(page: Page) -> dict[str, int]:
    """`gpu_bytes`, once it is as small as it gets.

    Tensors that the library drops go when they are collected, and memory kept for the next ones with the next session.
    """
    for _ in range(20):
        held = gpu_bytes(page)
        if held in ({}, SPECTROGRAMS):
            break
        page.request_gc()
        page.wait_for_timeout(100)
        page.evaluate("async (o) => (await library.pipeline('feature-extraction', 'encoder', o)).dispose()", GPU)
    return held


def run(page: Page, name: str, options: Json) -> Any:
    return page.evaluate("([name, options]) => run(name, options)", [name, options])


@pytest.mark.parametrize("name", CASES)
def test_case__on_the_gpu__is_what_onnxruntime_web_gives(pages: dict[str, Page], name: str) -> None:
    """One Python serves all cases; nothing of a case is on the GPU once what it loaded is disposed of."""
    expected = run(pages["peer"], name, PROCESSOR)
    assert expected
    compare(run(pages["ours"], name, GPU), expected)
    pages["ours"].evaluate("disposeAll()")
    assert left_on_gpu(pages["ours"]) in ({}, SPECTROGRAMS)


OTHER_WAYS = [
    ("bundle", "feature-extraction", UNNAMED),
    ("bundle", "text-generation", UNNAMED),
    ("bundle", "translation", UNNAMED),
    ("bundle", "image-classification", UNNAMED),
    ("bundle", "tensor operations", UNNAMED),
    ("in-page", "feature-extraction", GPU),
    ("in-page", "a cache kept over turns", GPU),
    ("own-worker", "feature-extraction", UNNAMED),
    ("own-worker", "text-generation", UNNAMED),
    ("own-worker", "image-to-text", UNNAMED),
]


@pytest.fixture(scope="module", params=dict.fromkeys(way for way, _, _ in OTHER_WAYS))
def other_page(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, Page]]:
    """The bundled file with web/transformers.js, Python in the page's thread, a worker of the page's own."""
    with opened(browser, url, request.param) as (page, _):
        yield request.param, page


@pytest.mark.parametrize(
    ("other_page", "name", "options"), OTHER_WAYS, indirect=["other_page"], ids=[f"{w}-{n}" for w, n, _ in OTHER_WAYS]
)
def test_case__another_way_to_import__is_what_onnxruntime_web_gives(
    pages: dict[str, Page], other_page: tuple[str, Page], name: str, options: Json
) -> None:
    way, page = other_page
    compare(run(page, name, options), run(pages["peer"], name, PROCESSOR))
    assert len(pythons(page)) == (way != "in-page")


def test_session__of_a_pipeline__runs_on_the_gpu_and_says_what_it_was_asked(pages: dict[str, Page]) -> None:
    found = pages["ours"].evaluate(
        """async (options) => {
            const extract = await library.pipeline('feature-extraction', 'encoder', options);
            await extract('the city');
            const { model } = extract.model.sessions;
            const { providers, dispatches, nodes } = await model.summary();
            const { versions } = library.env.backends.onnx;
            await extract.dispose();
            return { providers, dispatches, versions, config: model.config, inputs: model.inputMetadata,
                     hosts: nodes.filter(({ placement }) => placement === 'host').length };
        }""",
        GPU,
    )
    assert found["providers"][0] == "WebGpuExecutionProvider"
    assert found["dispatches"] > 5
    assert "pyruntime" in found["versions"] and "web" not in found["versions"]
    assert found["config"] == {"dtype": "fp32", "device": "webgpu"}
    assert found["inputs"][0] == {
        "name": "input_ids",
        "isTensor": True,
        "type": "int64",
        "shape": ["batch_size", "length"],
    }


def test_caches__of_generation__stay_on_the_gpu_and_go_with_it(pages: dict[str, Page]) -> None:
    found = pages["ours"].evaluate(
        """async (options) => {
            const { client } = await import('/web/api/client.js');
            const kept = () => client().call('keptTensors', {});
            const before = await kept();
            const tokenizer = await library.AutoTokenizer.from_pretrained('story');
            const model = await library.AutoModelForCausalLM.from_pretrained('story', options);
            const inputs = tokenizer('Once upon');
            const { past_key_values } = await model.generate(
                { ...inputs, max_new_tokens: 6, do_sample: false, return_dict_in_generate: true });
            const places = Object.values(past_key_values).map(({ location }) => location);
            let during = await kept();
            for (const end = performance.now() + 20_000; during - before > 4 && performance.now() < end;) {
                await new Promise((resolve) => { setTimeout(resolve, 50); }); // until runs begun ahead are given up
                during = await kept();
            }
            await past_key_values.dispose();
            await model.dispose();
            return { places, during: during - before, after: await kept() - before };
        }""",
        GPU,
    )
    assert found["places"] == ["gpu-buffer"] * 4, "a key and a value of each layer"
    assert found["during"] == 4, "those of the steps before are gone"
    assert found["after"] == 0


COUNT = """() => {
    const { createBuffer } = GPUDevice.prototype;
    const { destroy } = GPUBuffer.prototype;
    const count = self.countOfBuffers = { made: 0, there: new Map() };
    GPUDevice.prototype.createBuffer = function (what) {
        const buffer = createBuffer.call(this, what);
        count.made += 1;
        count.there.set(buffer, `${what.label}, ${what.size} bytes`);
        return buffer;
    };
    GPUBuffer.prototype.destroy = function () {
        count.there.delete(this);
        return destroy.call(this);
    };
    count.end = () => {
        GPUDevice.prototype.createBuffer = createBuffer;
        GPUBuffer.prototype.destroy = destroy;
    };
}"""


def test_pipelines__disposed__leave_nothing_on_the_gpu(pages: dict[str, Page]) -> None:
    page = pages["ours"]
    run(page, "several pipelines at once", GPU)
    (worker,) = (w for w in page.workers if w.url.endswith("/web/worker.js"))  # all pipelines have one Python
    worker.evaluate(COUNT)
    for name in ("several pipelines at once", "a cache kept over turns"):
        run(page, name, GPU)
    end = time.monotonic() + 20  # staging buffers are kept for some seconds
    while (there := worker.evaluate("() => [...countOfBuffers.there.values()]")) and time.monotonic() < end:
        page.wait_for_timeout(200)
    assert there == []
    assert worker.evaluate("() => { countOfBuffers.end(); return countOfBuffers.made; }") > 20


@pytest.mark.parametrize("dtype", ["q4", "q4f16"])
def test_generation__tied_embeddings_in_4_bits__is_what_onnxruntimes_cpu_gives(
    pages: dict[str, Page], url: str, dtype: str
) -> None:
    """onnxruntime-web's WebAssembly has no GatherBlockQuantized."""
    found = pages["ours"].evaluate(
        """async (options) => {
            const tell = await library.pipeline('text-generation', 'built-tied', options);
            const { input_ids } = tell.tokenizer('Once upon a time, in a land');
            const made = await tell.model.generate({ inputs: input_ids, max_new_tokens: 16, do_sample: false });
            await tell.dispose();
            return [input_ids, made].map(({ data }) => [...data].map(Number));
        }""",
        GPU | {"dtype": dtype},
    )
    prompt, made = found
    with urllib.request.urlopen(f"{url}models/built-tied/onnx/model_{dtype}.onnx") as answer:
        session = ort.InferenceSession(answer.read(), providers=["CPUExecutionProvider"])
    expected, _ = greedy(session, replace(BUILT, tied=True), prompt, 16)
    assert made == [*prompt, *expected]


def compare(found: Any, expected: Any, where: str = "result") -> None:
    """Equal, numbers within ATOL, bytes of pixels within 1: words, labels, tokens and dimensions may not differ."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            compare(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list) and expected and all(isinstance(v, float | int) for v in expected):
        assert len(found) == len(expected), where
        atol = 1 if where.endswith(".pixels") else ATOL
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=where)
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, value in enumerate(expected):
            compare(found[index], value, f"{where}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=ATOL), where
    else:
        assert found == expected, where
