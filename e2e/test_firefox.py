"""Firefox: the page, the JavaScript API, the Python API; and that no wait there takes a timer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import numpy as np
import onnxruntime
import pytest

from e2e.harness import codec
from e2e.harness.bidi import Session
from e2e.harness.firefox import launch
from tools.devkit.firefox import VARIABLE, ensure_firefox
from tools.devkit.server import Server
from tools.devkit.shell import ROOT
from tools.digits_data import from_counts, load_split

DIGITS = ROOT / "models" / "digits.onnx"
RTOL, ATOL = 1e-3, 1e-4  # float32


@pytest.fixture(scope="module")
def without_webgpu(tmp_path_factory: pytest.TempPathFactory, site_url: str) -> Iterator[Session]:
    """A Firefox that has WebGPU switched off."""
    with _launch(tmp_path_factory, dom_webgpu_enabled=False) as session:
        session.goto(site_url + "e2e/blank.html")
        yield session


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory, site_url: str) -> Iterator[Session]:
    with _launch(tmp_path_factory) as session:
        session.goto(site_url + "e2e/blank.html")
        if not session.evaluate("return Boolean(await navigator.gpu?.requestAdapter())"):
            pytest.skip("this Firefox finds no GPU adapter: a Vulkan driver is missing (Debian: mesa-vulkan-drivers)")
        yield session


def _launch(factory: pytest.TempPathFactory, **preferences: bool) -> AbstractContextManager[Session]:
    executable = ensure_firefox()
    if executable is None:
        pytest.skip(f"there is no Firefox here: install one, or set {VARIABLE} to one")
    return launch(executable, factory.mktemp("firefox"), **preferences)


@pytest.fixture
def page(firefox: Session, site_url: str) -> Iterator[Session]:
    """A fresh page of the site's; complaints of its console fail the test."""
    firefox.complaints.clear()
    firefox.goto(site_url + "e2e/blank.html")
    yield firefox
    assert not firefox.complaints


def wait_for(session: Session, condition: str, seconds: float = 60) -> None:
    """Until the JavaScript expression holds."""
    deadline = time.monotonic() + seconds
    while not session.evaluate(f"return Boolean({condition})"):
        assert time.monotonic() < deadline, f"never: {condition}"
        time.sleep(0.1)


def test_page__opened__predicts_its_demonstration_and_every_sample(page: Session, site_url: str) -> None:
    page.goto(site_url)
    wait_for(page, "document.querySelector('#loading-title')?.textContent === 'Loaded'")
    wait_for(page, "document.querySelector('.bar.best .bar-digit')?.textContent === '3'")
    assert (
        page.evaluate("return document.getElementById('adapter').textContent")
        == "Software adapter WebGPU, emulated on the CPU"
    )
    for digit in (7, 0, 8):
        page.evaluate("document.querySelectorAll('.sample')[digit].click()", digit=digit)
        wait_for(page, f"document.querySelector('.bar.best .bar-digit')?.textContent === '{digit}'", 10)


def test_javascript_api__digits__gives_onnxruntimes_answer(page: Session) -> None:
    images = from_counts(load_split().heldout_counts[:4])
    found = page.evaluate(
        """
        const { InferenceSession, Tensor } = await import('/src/web/pyruntime.js');
        const session = await InferenceSession.create('/models/digits.onnx', { executionProviders: ['webgpu'] });
        const answers = [];
        for (const image of images) {
            const { probabilities } = await session.run({ image: new Tensor('float32', image, [1, 1, 16, 16]) });
            answers.push([...probabilities.data]);
        }
        await session.release();
        return answers;
        """,
        images=[image.ravel().tolist() for image in images],
    )
    peer = onnxruntime.InferenceSession(DIGITS)
    expected = [peer.run(None, {"image": image[None]})[0][0] for image in images]
    np.testing.assert_allclose(found, expected, rtol=RTOL, atol=ATOL)


def test_create__ports_copy_what_they_carry__no_thread_is_made_that_downloads(page: Session) -> None:
    """Firefox copies what goes through a MessagePort, so the worker that hosts Python downloads, too."""
    found = page.evaluate(
        """
        const made = [];
        globalThis.Worker = class extends Worker {
            constructor(url, options) {
                super(url, options);
                made.push(String(url).split('/').pop());
            }
        };
        const { InferenceSession } = await import('/src/web/pyruntime.js');
        const session = await InferenceSession.create('/models/digits.onnx');
        const names = session.inputNames;
        await session.release();
        return { made, names };
        """
    )
    assert found == {"made": ["worker.js"], "names": ["image"]}


@pytest.mark.parametrize("modules", ["page", "wheel"])
def test_python_api__digits__gives_onnxruntimes_answer(
    page: Session, site_url: str, lenient_server: Server, modules: str
) -> None:
    image = from_counts(load_split().heldout_counts[:1])
    page.goto(site_url + "e2e/python.html" if modules == "page" else lenient_server.url + "e2e/python.html?alone")
    source = """
from pyruntime import InferenceSession
session = await InferenceSession.create(model, None, ["WebGpuExecutionProvider"])
for _ in range(3):
    (y,) = await session.run_async(None, {"image": image})
y
"""
    data = codec.encode({"model": DIGITS.read_bytes(), "image": image})
    answer = codec.decode(page.evaluate("return runPython(source, data)", source=source, data=data))
    assert "error" not in answer, answer
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image})
    np.testing.assert_allclose(answer["value"], expected, rtol=RTOL, atol=ATOL)


def test_python_api__run_without_await__gives_onnxruntimes_answer(page: Session, site_url: str) -> None:
    """By WebAssembly's stack switching (JSPI), which Firefox has since 153."""
    if not page.evaluate("return 'Suspending' in WebAssembly"):
        pytest.skip("this Firefox has no WebAssembly stack switching")
    image = from_counts(load_split().heldout_counts[:1])
    page.goto(site_url + "e2e/python.html")
    source = """
from pyruntime import InferenceSession
session = InferenceSession(model, providers=["WebGpuExecutionProvider"])
answers = [session.run(None, {"image": image})[0] for _ in range(3)]
answers[-1]
"""
    data = codec.encode({"model": DIGITS.read_bytes(), "image": image})
    answer = codec.decode(page.evaluate("return runPython(source, data)", source=source, data=data))
    assert "error" not in answer, answer
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image})
    np.testing.assert_allclose(answer["value"], expected, rtol=RTOL, atol=ATOL)


def test_wait__for_nothing_at_all__is_soon_answered_by_a_question_or_two(page: Session) -> None:
    """Without submissions, Firefox looks every 100 ms; the first waits find out, by about 200 questions each."""
    found = page.evaluate(
        """
        const { attend } = await import('/src/web/gpu/waiting.js');
        const device = await (await navigator.gpu.requestAdapter()).requestDevice();
        let questions = 0;
        const push = device.pushErrorScope.bind(device);
        device.pushErrorScope = (kind) => { questions += 1; push(kind); };
        const buffer = device.createBuffer({ size: 4, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
        const counts = [];
        for (let run = 0; run < 20; run += 1) {
            questions = 0;
            device.queue.writeBuffer(buffer, 0, new Uint32Array([run]));
            device.queue.submit([]);
            await attend(device, buffer.mapAsync(GPUMapMode.READ), { recording: buffer });
            buffer.unmap();
            counts.push(questions);
        }
        device.destroy();
        return counts;
        """
    )
    assert np.median(found[-10:]) <= 20, found
    assert max(found) <= 2000, found


def test_create__webgpu_switched_off__names_firefoxs_way_and_numpy_answers(without_webgpu: Session) -> None:
    image = from_counts(load_split().heldout_counts[:1])
    found = without_webgpu.evaluate(
        """
        const { InferenceSession, Tensor } = await import('/src/web/pyruntime.js');
        let said = '';
        await InferenceSession.create('/models/digits.onnx', { executionProviders: ['webgpu'] })
            .catch((error) => { said = `${error.name}: ${error.message}`; });
        const session = await InferenceSession.create('/models/digits.onnx');
        const { probabilities } = await session.run({ image: new Tensor('float32', image, [1, 1, 16, 16]) });
        return { said, probabilities: [...probabilities.data] };
        """,
        image=image.ravel().tolist(),
    )
    assert found["said"].startswith("EPFail: ") and "about:config" in found["said"], found["said"]
    assert "dom.webgpu.enabled" in found["said"]
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(
        None, {"image": from_counts(load_split().heldout_counts[:1])}
    )
    np.testing.assert_allclose(found["probabilities"], expected[0], rtol=RTOL, atol=ATOL)
