"""The session option `precision: 'float16'` in the browser: results, memory, plans, and the element's attribute."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from playwright.sync_api import Page

from e2e.harness.browser import Guard
from e2e.harness.script import Script
from pyruntime.ir import Array
from pyruntime.session.aot.compile_ahead import compile_model
from tests.compiler.test_saved import DIGITS
from tests.float32_models import bert, bert_feeds

TOLERANCE = 4e-3
"""Largest difference from float32, relative to the largest output."""

RUN = """
const said = [];
const info = console.info;
console.info = (text) => { said.push(String(text)); info(text); };
const session = await InferenceSession.create(new Blob([decode(model)]), options);
const int64 = (data, dims) => new Tensor('int64', data.map(BigInt), dims);
const { ids, mask, dims } = feeds;
const run = async () => (await session.run({ ids: int64(ids, dims), mask: int64(mask, dims) })).logits;
const [first, second] = [await run(), await run()];
const { precision, memory } = options.plan ? {} : await session.explain(); // which starts Python
await session.release();
const { weights, computed } = memory?.allocated ?? {};
const equal = String(first.data) === String(second.data);
return { type: first.type, values: [...first.data], precision, bytes: weights + computed, equal, said };
"""


@pytest.fixture
def script(page: Page, guard: Guard, site_url: str) -> Script:
    """A page of its own: no test before it has started Python there."""
    page.goto(f"{site_url}e2e/blank.html")
    return Script(page, guard)


@functools.cache
def expected() -> Array:
    session = onnxruntime.InferenceSession(bert(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, bert_feeds(1, 16))[0])


def run(script: Script, **options: Any) -> dict[str, Any]:
    feeds = bert_feeds(1, 16)
    plan = options.pop("plan", b"")
    body = "if (plan) options.plan = decode(plan);" + RUN
    given: dict[str, Any] = {n: v.ravel().tolist() for n, v in feeds.items()} | {"dims": [1, 16]}
    found: dict[str, Any] = script(body, model=bert(), plan=plan, options=options, feeds=given)
    assert found["type"] == "float32" and found["equal"]
    largest = np.abs(expected()).max()
    np.testing.assert_allclose(found["values"], expected().ravel(), 0, TOLERANCE * largest)
    return found


def started_python(page: Page) -> bool:
    return any(w.url.endswith("/worker.js") for w in page.workers)


def test_create__float16__computes_in_half_of_the_memory_and_says_so(script: Script) -> None:
    plain = run(script)
    half = run(script, precision="float16")
    assert plain["precision"] is None and "" in half["precision"].values()
    assert half["bytes"] <= 0.51 * plain["bytes"]
    assert half["values"] != plain["values"]


def test_create__float32_nodes__are_named_in_the_explanation(script: Script) -> None:
    name = next(n for n, why in run(script, precision="float16")["precision"].items() if not why)
    found = run(script, precision="float16", float32Nodes=[name] if name else [])
    assert found["precision"][name] == "the session's options name it"


def test_create__other_precision__is_refused(script: Script) -> None:
    with pytest.raises(Exception, match="precision must be 'float16' or 'float32', not 'half'"):
        run(script, precision="half")


def test_plan__of_float16__runs_without_python_where_the_session_wants_it(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "bert.onnx"
    path.write_bytes(bert())
    shapes = {"ids": [(1, 16)], "mask": [(1, 16)]}
    plan = compile_model(path, shapes, precision="float16")
    run(script, plan=plan, precision="float16")
    assert not started_python(script.page)
    found = run(script, plan=plan)
    assert started_python(script.page)
    assert any("it computes in float16, and the session is to in float32" in text for text in found["said"])


def test_element__precision__is_that_of_its_session(script: Script) -> None:
    found = script(
        """
        await import('/src/web/widget.js');
        const element = document.createElement('pyruntime-model');
        const attributes = { src: '/models/digits.onnx', input: 'none', precision: 'float16' };
        for (const [name, value] of Object.entries(attributes)) {
          element.setAttribute(name, value);
        }
        document.body.append(element);
        const image = new Float32Array(256).map((_, i) => (i % 7) / 7);
        const { probabilities } = await element.run({ image });
        const { precision } = await element.session.explain();
        element.remove();
        return { values: [...probabilities.data], half: Object.values(precision).filter((why) => !why).length };
        """
    )
    image = (np.arange(256) % 7 / 7).astype(np.float32).reshape(1, 1, 16, 16)
    (wanted,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image})
    assert found["half"] > 5
    np.testing.assert_allclose(found["values"], np.ravel(wanted), 0, TOLERANCE)
