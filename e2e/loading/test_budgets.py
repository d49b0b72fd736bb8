"""What a first visit may fetch until the first result: the one place that limits bytes and requests of pages."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page

from e2e.loading.test_startup import RUN_DIGITS
from tools.devkit.snapshot import SWITCH

ENCODED = (".js", ".mjs", ".wasm", ".json", ".html")
"""Files that hosts compress; here by gzip, a fifth larger than by Brotli."""
QUICK = 2_300_000
"""What the quick encoding of the snapshot adds."""


@dataclass(frozen=True)
class Budget:
    """The most bytes and requests of a page with the digits model, the model among them."""

    bytes: int
    requests: int


WITH_PYTHON = Budget(bytes=11_400_000, requests=85)


def test_first_visit__python_plans__keeps_to_its_budget(page: Page, site: Path, site_url: str) -> None:
    fetched: list[str] = []
    page.context.on("request", lambda request: fetched.append(request.url.removeprefix(site_url)))
    page.goto(site_url + "e2e/blank.html")
    fetched.clear()
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    sizes = {}
    for name in fetched:
        content = (site / name).read_bytes()
        sizes[name] = len(gzip.compress(content)) if name.endswith(ENCODED) else len(content)
    allowance = QUICK if os.environ.get(SWITCH) == "quick" else 0
    data = [name for name in fetched if not name.endswith((".js", ".mjs"))]  # page and worker share modules
    assert len(data) == len(set(data)), "a file was requested twice"
    assert len(fetched) <= WITH_PYTHON.requests
    assert sum(sizes.values()) <= WITH_PYTHON.bytes + allowance, sizes
