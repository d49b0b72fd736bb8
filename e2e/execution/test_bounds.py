"""Integers that kernels clamp, as positions are: refused in runs that Python has no part in, as Python refuses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from playwright.sync_api import Page

from e2e.harness.browser import Guard
from e2e.harness.script import Script
from pyruntime.ir import Array
from pyruntime.session.aot.compile_ahead import compile_model
from tests.session.run.test_positions import HALF, MICROSOFT, ROWS, X, model, on_numpy, positions, rotary

RUN = """
const tensor = ({ type, data, dims }) => (
  new Tensor(type, type.startsWith('int64') ? data.map(BigInt) : data, dims));
const run = async (session, feeds) => {
  const given = Object.fromEntries(Object.entries(feeds).map(([name, fed]) => [name, tensor(fed)]));
  try {
    return { y: [...(await session.run(given, ['y'])).y.data] };
  } catch ({ name, message }) {
    return { error: `${name}: ${message}` };
  }
};
"""


def fed(feeds: dict[str, Array]) -> dict[str, Any]:
    return {n: {"type": str(v.dtype), "data": v.ravel().tolist(), "dims": list(v.shape)} for n, v in feeds.items()}


def attention(past: int) -> tuple[bytes, dict[str, Array]]:
    """GroupQueryAttention of one query."""
    names = ["q", "q", "q", "pk", "pv", "seqlens_k", "total"]
    op = helper.make_node(
        "GroupQueryAttention", names, ["y", "nk", "nv"], domain=MICROSOFT, num_heads=1, kv_num_heads=1
    )
    row, cache = np.ones((1, 1, 2 * HALF), np.float32), np.ones((1, 1, past, 2 * HALF), np.float32)
    feed = {"q": row, "pk": cache, "pv": cache, "seqlens_k": np.array([past], np.int32)}
    return model([op], feed, {"total": np.array(past + 1, np.int32)}), feed


def offsets(tokens: int, first: int) -> dict[str, Array]:
    return {"x": np.ones((1, tokens, 2 * HALF), np.float32), "p": np.array([first])}


CASES: dict[str, tuple[bytes, dict[str, Array], dict[str, Array]]] = {
    "positions": (
        model([rotary("")], {"x": X, "p": positions(0, 1, 2)}, {}),
        {"x": X, "p": positions(0, 1, ROWS - 1)},
        {"x": X, "p": positions(0, ROWS, 2)},
    ),
    "negative positions": (
        model([rotary(MICROSOFT)], {"x": X, "p": positions(0, 1, 2)}, {}),
        {"x": X, "p": positions(0, 1, 2)},
        {"x": X, "p": positions(0, 1, -1)},
    ),
    "an offset of tokens": (
        model([rotary(MICROSOFT)], {"x": X, "p": np.array([1])}, {}, open_tokens=True),
        offsets(5, ROWS - 5),
        offsets(5, ROWS - 4),
    ),
    "token ids": (
        model([helper.make_node("Gather", ["table", "i"], ["y"])], {"i": positions(0, 2)}, {"table": X[0]}),
        {"i": positions(-3, 2)},
        {"i": positions(0, 3)},
    ),
    "tuples of indices": (
        model([helper.make_node("GatherND", ["x", "i"], ["y"])], {"x": X, "i": np.array([[0, 2, 7]])}, {}),
        {"x": X, "i": np.array([[0, -3, 7]])},
        {"x": X, "i": np.array([[0, 3, 2]])},
    ),
    "steps": (
        model(
            [helper.make_node("RNN", ["x", "w", "r", "", "i"], ["y"], hidden_size=1)],
            {"x": X, "i": np.array([1, 2, 0], np.int32)},
            {"w": np.ones((1, 1, 2 * HALF), np.float32), "r": np.ones((1, 1, 1), np.float32)},
        ),
        {"x": X, "i": np.array([1, 0, 1], np.int32)},
        {"x": X, "i": np.array([1, 0, 2], np.int32)},
    ),
    "lengths": (*attention(8), attention(8)[1] | {"seqlens_k": np.array([9], np.int32)}),
}


@pytest.fixture
def script(page: Page, guard: Guard, site_url: str) -> Script:
    page.goto(f"{site_url}e2e/blank.html")
    return Script(page, guard)


def expected(source: bytes, feed: dict[str, Array]) -> Array:
    made: Array = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(["y"], feed)[0]
    return made.ravel()


@pytest.mark.parametrize("name", CASES)
def test_plan__integers_outside__are_refused_as_in_python_and_without_it(
    script: Script, tmp_path: Path, name: str
) -> None:
    source, right, wrong = CASES[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(source)
    shapes = {"x": [(1, 3, 2 * HALF), (1, 7, 2 * HALF)]} if name == "an offset of tokens" else None
    found = script(
        RUN + "const session = await InferenceSession.create(decode(model), { plan: decode(plan) });"
        "const found = []; for (const feeds of all) found.push(await run(session, feeds));"
        "await session.release(); return found;",
        model=source,
        plan=compile_model(path, shapes),
        all=[fed(feeds) for feeds in (wrong, right, wrong, right)],
    )
    assert not any(w.url.endswith("/worker.js") for w in script.page.workers), "Python was started"
    for answer in found[1::2]:
        np.testing.assert_allclose(answer["y"], expected(source, right), 1e-4, 1e-5)
    assert found[::2] == [{"error": f"RuntimeException: {on_numpy(source, wrong)}"}] * 2


@pytest.mark.parametrize("name", CASES)
def test_replay__integers_outside__are_refused_as_in_python_and_runs_go_on(watched_script: Script, name: str) -> None:
    source, right, wrong = CASES[name]
    feeds = [right, right, right, wrong, right, wrong]
    if name == "an offset of tokens":
        feeds = [offsets(3, 0), offsets(7, 2), *feeds]
    watched_script(RUN + "globalThis.session = await InferenceSession.create(decode(model));", model=source)
    found, before = [], []
    for feed in feeds:
        before.append(watched_script.worker.evaluate("() => submits.withoutPython"))
        found.append(watched_script(RUN + "return run(session, feeds);", feeds=fed(feed)))
    watched_script("await session.release();")
    for feed, answer in zip(feeds, found, strict=True):
        if feed is wrong:
            assert answer == {"error": f"RuntimeException: {on_numpy(source, wrong)}"}
        else:
            np.testing.assert_allclose(answer["y"], expected(source, feed), 1e-4, 1e-5)
    assert before[-1] == before[-2] + 1, "runs after the refused one are replayed"
