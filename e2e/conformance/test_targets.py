"""The nine light models in a browser whose device has the limits of a phone and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from e2e.conformance.suites import SUITES, Results, run_in_browser
from e2e.harness.browser import guarded_page
from e2e.harness.python import BrowserPython
from pyruntime.device.desktop.targets import LIMITS
from pyruntime.target.named import read_target

SAMPLE = ("light_shufflenet", "light_squeezenet")

LIMITS_OF_DEVICE = """
from pyruntime.session import environment
limits = (await environment.device()).target.limits
[limits.invocations, limits.workgroup_x, limits.uniform_bytes]
"""

pytestmark = pytest.mark.unguarded  # As e2e/conformance/test_models.py.


def of_browser(name: str) -> str:
    """A target as e2e/pages/limited.js reads it."""
    target = read_target(name)
    camel = {own: theirs.title().replace("-", "") for own, theirs in LIMITS.items()}
    limits = {camel[own][0].lower() + camel[own][1:]: getattr(target.limits, own) for own in LIMITS}
    level = "compatibility" if name == "compatibility" else "core"
    return quote(json.dumps({"limits": limits, "features": sorted(target.features), "level": level}))


@contextmanager
def python_on(name: str, browser: Browser, site_url: str) -> Iterator[BrowserPython]:
    with guarded_page(browser, site_url) as (page, guard):
        yield BrowserPython(page, guard, site_url, target=of_browser(name))


def check(results: Results) -> None:
    results.check(part=True)
    assert {name: facts["host"] for name, facts in results.facts.items() if facts["host"]} == {}


def test_light_models__limits_of_a_phone__right_and_on_the_gpu_alone(browser: Browser, site_url: str) -> None:
    with python_on("phone", browser, site_url) as python:
        results = run_in_browser(SUITES["light"], python, batch=1)
    assert len(results.wrong) == 9
    check(results)


def test_light_models__compatibility_mode__right_and_on_the_gpu_alone(browser: Browser, site_url: str) -> None:
    with python_on("compatibility", browser, site_url) as python:
        assert python(LIMITS_OF_DEVICE) == [128, 128, 16 << 10]
        results = run_in_browser(SUITES["light"], python, lambda case: case.name in SAMPLE)
    assert len(results.wrong) == len(SAMPLE)
    check(results)
