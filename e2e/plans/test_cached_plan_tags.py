"""Second visits of a page with a cached plan: a file that its server says is the same is not hashed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from playwright.sync_api import BrowserContext

from e2e.harness.browser import fresh_page
from e2e.harness.chain import NBYTES, ROW, expected, model, weight
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script
from e2e.harness.visits import Visits

LAYERS = 2

VISIT = """
let hashed = 0;
const { digest } = SubtleCrypto.prototype;
SubtleCrypto.prototype.digest = function (name, data) {
  hashed += data.byteLength;
  return digest.call(this, name, data);
};
const session = await InferenceSession.create('/m/model.onnx', { cachePlan: true });
const { y } = await session.run({ x: new Tensor('float32', Float32Array.from(x), [1, x.length]) });
await session.release();
return { y: [...y.data], hashed, said };
"""


@pytest.fixture
def visits(context: BrowserContext, delivery: Delivery, tmp_path: Path) -> Iterator[Visits]:
    with fresh_page(context, delivery.url) as (page, guard):
        yield Visits(Script(page, guard), delivery, tmp_path)
        guard.allow("404")  # the icon of a page that has none


def visit(visits: Visits) -> dict[str, Any]:
    found: dict[str, Any] = visits(VISIT, x=ROW)
    found["python"] = visits.has_python()
    return found


@pytest.mark.parametrize(("etag", "known"), [('"one"', True), ('W/"one"', False), (None, False)])
def test_second_visit__same_file_by_its_tag__is_hashed_only_where_that_is_weak_or_missing(
    visits: Visits, served: dict[str, Served], etag: str | None, known: bool
) -> None:
    data = model(LAYERS, {1: ("model.onnx.data", 0)})
    served["/m/model.onnx"] = Served(data, etag=etag)
    served["/m/model.onnx.data"] = Served(weight(1), etag=etag)
    first, second = (visit(visits) for _ in range(2))
    assert first["python"] and not second["python"] and second["said"] == []
    np.testing.assert_array_equal(np.float32(second["y"]), expected(LAYERS))
    assert (second["hashed"] < NBYTES) == known
    assert known or second["hashed"] >= 2 * NBYTES


def test_second_visit__another_file_with_another_tag__is_planned_anew(
    visits: Visits, served: dict[str, Served]
) -> None:
    served["/m/model.onnx"] = Served(model(LAYERS))
    visit(visits)
    other = onnx.load_from_string(model(LAYERS))
    other.graph.initializer[0].raw_data = weight(4)
    served["/m/model.onnx"] = Served(other.SerializeToString(), etag='"two"')
    found = visit(visits)
    assert found["said"][0].startswith("pyruntime: the plan is not used, Python plans: it is for another model")
    np.testing.assert_array_equal(np.float32(found["y"]), 5 * expected(LAYERS))
    again = visit(visits)
    assert again["said"] == [] and not again["python"] and again["hashed"] < NBYTES


def test_second_visit__same_tag_and_another_length__is_planned_anew(visits: Visits, served: dict[str, Served]) -> None:
    served["/m/model.onnx"] = Served(model(LAYERS))
    visit(visits)
    served["/m/model.onnx"] = Served(model(LAYERS + 1))
    found = visit(visits)
    assert found["said"][0].startswith("pyruntime: the plan is not used, Python plans: it is for another model")
    np.testing.assert_array_equal(np.float32(found["y"]), expected(LAYERS + 1))
