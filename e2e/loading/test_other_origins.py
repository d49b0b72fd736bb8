"""Small models of other origins, which a page sees less of: they are read while they come as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from e2e.conftest import mounts
from e2e.harness.browser import guarded_page
from e2e.harness.chain import expected, loaded, model
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script
from tools.devkit.server import Server

LAYERS = 2
"""19 MB."""


@pytest.fixture(scope="module")
def script(site: Path, browser: Browser) -> Iterator[Script]:
    """In a page that may fetch from every port of this machine."""
    with Server(mounts(site), policy=None) as home:
        machine = home.url.rpartition(":")[0]
        with guarded_page(browser, f"{machine}:") as (page, guard):
            page.goto(home.url + "e2e/blank.html")
            yield Script(page, guard)


@pytest.fixture
def elsewhere() -> Iterator[Delivery]:
    with Delivery({}, shared=True) as server:
        yield server
        for file in server.served.values():
            file.opened.set()


@pytest.mark.parametrize("how", [{}, {"compressed": True}, {"ranges": False}, {"chunked": True}, {"etag": None}])
def test_create__file_of_another_origin__is_right(script: Script, elsewhere: Delivery, how: dict[str, bool]) -> None:
    """A page cannot see there whether it is compressed: the size that is announced may be another one."""
    file = elsewhere.served["/m/model.onnx"] = Served(model(LAYERS), **how)  # type: ignore[arg-type]
    np.testing.assert_array_equal(loaded(script, f"{elsewhere.url}m/model.onnx"), expected(LAYERS))
    assert [asked for asked in file.asked if not asked] == [""]
