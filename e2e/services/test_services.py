"""A session over a model and its cached plan, where a feature is missing: the answers are onnxruntime's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from playwright.sync_api import Browser

from e2e.conftest import mounts
from e2e.harness.browser import guarded_page
from e2e.services.cases import LACKS, Lack
from tools.devkit.server import Server
from tools.devkit.shell import ROOT
from tools.digits_data import from_counts, load_split

RUN = """async image => {
    const { InferenceSession, Tensor } = await import('/web/pyruntime.js');
    const answers = [];
    for (let visit = 0; visit < 2; visit++) {
        const session = await InferenceSession.create('/models/digits.onnx', { cachePlan: true });
        const feeds = { image: new Tensor('float32', Float32Array.from(image), [1, 1, 16, 16]) };
        answers.push([...(await session.run(feeds)).probabilities.data]);
        await session.release();
    }
    return answers;
}"""


LEFT = """async expression => {
    const here = Boolean((0, eval)(expression));
    if (!globalThis.Worker) return [here];
    const script = new Blob([`postMessage(Boolean(${expression}));`], { type: 'text/javascript' });
    const worker = new Worker(URL.createObjectURL(script), { type: 'module' });
    return [here, await new Promise((resolve) => { worker.onmessage = ({ data }) => resolve(data); })];
}"""


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[Server]:
    """Without a policy, which would keep the tests from beginning workers by a script of theirs."""
    with Server(mounts(site), policy=None) as started:
        yield started


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.name)
def test_session__without_a_feature__answers_at_the_first_and_the_second_visit(
    lack: Lack, browser: Browser, server: Server
) -> None:
    image = from_counts(load_split().heldout_counts[:1])
    with guarded_page(browser, server.url) as (page, _):
        page.add_init_script(lack.init_script)
        page.goto(server.url + "e2e/blank.html")
        assert not any(page.evaluate(LEFT, lack.gone))
        answers = page.evaluate(RUN, image.ravel().tolist())
    (expected,) = onnxruntime.InferenceSession(ROOT / "models" / "digits.onnx").run(None, {"image": image})
    np.testing.assert_allclose(answers, [expected[0]] * 2, rtol=1e-3, atol=1e-4)
