"""WebKitGTK, which has no WebGPU: a model runs on NumPy, and the page says at once what to do for the GPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest

from e2e.harness.webkit import NEEDED, WebKit, launch
from tools.devkit.shell import ROOT

DIGITS = ROOT / "models" / "digits.onnx"


@pytest.fixture(scope="module")
def webkit(site_url: str) -> Iterator[WebKit]:
    if not all(map(shutil.which, NEEDED)):
        pytest.skip("needs WebKitGTK: Debian's packages webkit2gtk-driver and xvfb")
    with launch() as browser:
        browser.goto(site_url + "e2e/blank.html")
        yield browser


def test_session__default_providers__runs_on_numpy_as_onnxruntime(webkit: WebKit) -> None:
    image = np.random.default_rng(0).random((1, 1, 16, 16), np.float32)
    found = webkit.evaluate(
        """
        const { InferenceSession, Tensor } = await import('/web/pyruntime.js');
        const session = await InferenceSession.create('/models/digits.onnx');
        const image = new Tensor('float32', Float32Array.from(given[0]), [1, 1, 16, 16]);
        const outputs = await session.run({ [session.inputNames[0]]: image });
        const { providers } = await session.summary();
        await session.release();
        return { providers, values: [...outputs[session.outputNames[0]].data] };
        """,
        image.ravel().tolist(),
    )
    reference = onnxruntime.InferenceSession(DIGITS, providers=["CPUExecutionProvider"])
    (expected,) = reference.run(None, {reference.get_inputs()[0].name: image})[:1]
    assert found["providers"] == ["CPUExecutionProvider"]
    np.testing.assert_allclose(found["values"], expected.ravel(), rtol=1e-3, atol=1e-4)


def test_session__webgpu_alone__the_error_says_what_to_do(webkit: WebKit) -> None:
    message = webkit.evaluate(
        """
        const { InferenceSession } = await import('/web/pyruntime.js');
        const options = { executionProviders: ['webgpu'] };
        return InferenceSession.create('/models/digits.onnx', options).then(() => 'made', ({ message }) => message);
        """
    )
    assert "no WebGPU" in message and "use a current Chrome, Edge, Safari or Firefox" in message


def test_page__without_webgpu__one_sentence_at_once(webkit: WebKit, site_url: str) -> None:
    webkit.goto(site_url)
    said = webkit.evaluate(
        """
        for (let i = 0; i < 600; i++) {
          const said = document.body.innerText.match(/This browser has no WebGPU[^.]*[.]/);
          if (said) return said[0];
          await new Promise((resolve) => { setTimeout(resolve, 50); });
        }
        return document.body.innerText.slice(0, 500);
        """
    )
    assert said.startswith("This browser has no WebGPU, or it is switched off: ")
