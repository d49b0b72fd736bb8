"""In JavaScript each output has memory of its own, wherever Python is and wherever the model runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onnx import helper
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.modes import Mode, model_bytes, tensor

node = helper.make_node

MODELS = {
    "the input": model_bytes([], [tensor("x")], [tensor("x")]),
    "Identity twice": model_bytes(
        [node("Identity", ["x"], ["y"]), node("Identity", ["x"], ["z"])], [tensor("x")], [tensor("y"), tensor("z")]
    ),
    "the input and Identity": model_bytes([node("Identity", ["x"], ["y"])], [tensor("x")], [tensor("x"), tensor("y")]),
    "two outputs of one value": model_bytes(
        [node("Add", ["x", "x"], ["y"]), node("Identity", ["y"], ["z"])], [tensor("x")], [tensor("y"), tensor("z")]
    ),
}


@pytest.fixture(scope="module", params=["worker", "page"])
def shared_script(browser: Browser, site_url: str, request: pytest.FixtureRequest) -> Iterator[Mode]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        yield Mode(page, guard, request.param)


@pytest.mark.parametrize("provider", ["webgpu", "cpu"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs__of_one_value__are_owned(script: Mode, name: str, provider: str) -> None:
    found = script(
        """
        const session = await load(model, { executionProviders: [provider] });
        const ends = [];
        for (let k = 0; k < 3; k++) {
          const data = Float32Array.of(1, 2, 3, 4);
          const results = Object.values(await session.run({ x: new Tensor('float32', data, [4]) }));
          const values = results.map((result) => [...result.data]);
          results.forEach((result, i) => result.data.fill(50 + i));
          ends.push({ input: [...data], values, after: results.map((result) => [...new Set(result.data)]) });
        }
        await session.release();
        return ends;
        """,
        model=MODELS[name],
        provider=provider,
    )
    for end in found:
        assert end["input"] == [1, 2, 3, 4]
        assert all(value in ([1, 2, 3, 4], [2, 4, 6, 8]) for value in end["values"])
        assert end["after"] == [[50 + i] for i in range(len(end["after"]))]
