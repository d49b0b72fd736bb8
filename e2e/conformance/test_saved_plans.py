"""ONNX's node tests and model sets as compiled models in a page that cannot get Python: the player gives their outputs.

Every seventh case; `PYRUNTIME_SAVED_CASES=all` runs all of them, `=light` the `light` models. Kernels have no guards in
their shaders: test_node_cases.py runs the same with guards.
"""

from __future__ import annotations

import base64
import os
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route

from e2e.conformance.cases import Case, light_cases
from e2e.conformance.known import known_failures
from e2e.conformance.runner import ATOL, RTOL, _compare
from e2e.conformance.saved import SavedCase, every_case, saved_cases
from e2e.conftest import mounts
from e2e.harness.browser import guarded_page
from e2e.harness.script import Script
from pyruntime.ir import DType, TensorType
from pyruntime.ir.encoding import decode
from tools.devkit.server import Server

EVERY = 7

RUN = """
const BITS = { float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array,
  uint32: Uint32Array, uint64: BigUint64Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array,
  bfloat16: Uint16Array, float16: globalThis.Float16Array ?? Uint16Array };
const encode = ({ buffer, byteOffset, byteLength }) => {
  const bytes = new Uint8Array(buffer, byteOffset, byteLength);
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
};
const results = [];
let said = '';
console.info = (text) => { said = String(text); };
for (const { plan, model, feeds } of cases) {
  try {
    const session = await InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) });
    const given = Object.fromEntries(Object.entries(feeds).map(([name, { type, dims, data }]) => (
      [name, new Tensor(type, new (BITS[type] ?? Uint8Array)(decode(data).buffer), dims)])));
    const outputs = await session.run(given);
    await session.release();
    results.push(Object.fromEntries(Object.entries(outputs).map(([name, { type, dims, data }]) => (
      [name, { type, dims: [...dims], data: encode(data) }]))));
  } catch (error) {
    results.push({ wrong: `${error.name}: ${error.message}; ${said}` });
  }
}
return results;
"""


@pytest.fixture
def player(unguarded_browser: Browser, site: Path) -> Iterator[Script]:
    """A page to which Pyodide, the wheel and the worker do not come."""
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    with Server(mounts(site)) as server, guarded_page(unguarded_browser, server.url) as (page, guard):
        for pattern in ("**/pyodide/**", "**/snapshot/**", "**/*.whl", "**/worker.js", "**/host.js"):
            page.route(pattern, refuse)
        page.goto(f"{server.url}e2e/blank.html")
        yield Script(page, guard)
        assert asked == [], "Python was asked for"
        guard.allow("404")  # the icon of a page that has none


def text(value: Any) -> Any:
    """Bytes as base64, for the way to the page."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return {k: text(v) for k, v in value.items()} if isinstance(value, dict) else value


def wrong(made: SavedCase, result: dict[str, Any]) -> str:
    """What is wrong with the outputs of a case, or nothing."""
    if isinstance(result.get("wrong"), str):
        return str(result["wrong"])
    rtol, atol = max(made.case.rtol, RTOL), max(made.case.atol, ATOL)
    for name, expected in made.expected.items():
        dtype, dims = DType.from_js_name(result[name]["type"]), tuple(result[name]["dims"])
        got = decode(base64.b64decode(result[name]["data"]), dtype, dims)
        if said := _compare(got, TensorType(dtype, dims), expected, rtol, atol, name):
            return said
    return ""


def run(player: Script, cases: Iterable[Case], folder: Path) -> dict[str, str]:
    """What is wrong with each case that can be compiled, or nothing; none of those listed as failing on the GPU."""
    warnings.simplefilter("ignore", RuntimeWarning)
    listed = {**known_failures("default"), **known_failures("without_fallback"), **known_failures("models")}
    compiled = [made for made in saved_cases(cases, folder)[0] if made.case.name not in listed]
    found: dict[str, str] = {}
    for at in range(0, len(compiled), 40):
        batch = compiled[at : at + 40]
        results = player(RUN, cases=[text(made.message()) for made in batch])
        found |= {made.case.name: wrong(made, result) for made, result in zip(batch, results, strict=True)}
    return found


def test_saved_cases__page_without_python__expected_outputs(player: Script, tmp_path: Path) -> None:
    chosen = os.environ.get("PYRUNTIME_SAVED_CASES", "")
    cases = light_cases() if chosen == "light" else islice(every_case(), 0, None, 1 if chosen else EVERY)
    found = run(player, cases, tmp_path)
    assert len(found) >= (7 if chosen == "light" else 1500 if chosen else 200)
    assert {name: said for name, said in found.items() if said} == {}
