"""tune() in a browser: kernels are measured, the winners run in later sessions and in the next visit."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Page

from e2e.harness.browser import Guard
from e2e.harness.script import Script
from tests.open_models import Writer


def product() -> tuple[bytes, np.ndarray]:
    """y = x @ w, x: float32 [24, 48], of weights that do not matter."""
    g = Writer(0)
    g.add("MatMul", "x", g.weight(48, 40), out="y")
    return g.model({"x": (1, (24, 48))}, ["y"]), np.random.default_rng(1).normal(size=(24, 48)).astype(np.float32)


TUNE = """
    const options = { extra: { 'pyruntime.disable': disable } };
    const feeds = { x: new Tensor('float32', new Float32Array(decode(x).buffer), [24, 48]) };
    const session = await InferenceSession.create(decode(model), options);
    const before = [...(await session.run(feeds)).y.data];
    const tuning = tune ? await session.tune() : null;
    await session.release();
    const later = await InferenceSession.create(decode(model), options);
    const after = [...(await later.run(feeds)).y.data];
    const { choices } = await later.explain();
    await later.release();
    return { before, after, tuning, choices };
"""


@pytest.mark.parametrize("kind", ["software", "gpu"])
def test_tune__of_a_product__winner_runs_later_and_in_the_next_visit(
    page: Page, guard: Guard, site_url: str, kind: str
) -> None:
    page.goto(f"{site_url}e2e/blank.html")
    script = Script(page, guard)
    model, x = product()
    # Small tiles alone, so that few kernels compile.
    disable = ",".join(["matmul_large", "matmul_split", "matmul_slices", *(["software"] if kind == "gpu" else [])])
    found = script(TUNE, model=model, x=x.tobytes(), disable=disable, tune=True)
    (measured,) = found["tuning"]["measured"]
    names = [c["name"] for c in measured["candidates"]]
    assert {"software": "direct_eight", "gpu": "s1"}[kind] in names
    assert len(names) > 1
    assert all(c["took"] > 0 for c in measured["candidates"])
    assert (found["tuning"]["rates"] is None) == (kind == "software")
    (choice,) = found["choices"]
    assert (choice["chosen"], choice["reason"]) == (measured["winner"], "measured")
    np.testing.assert_allclose(found["after"], found["before"], rtol=1e-5, atol=1e-5)
    page.reload()
    again = script(TUNE, model=model, x=x.tobytes(), disable=disable, tune=False)
    assert [(c["chosen"], c["reason"]) for c in again["choices"]] == [(measured["winner"], "measured")]
