"""The nine light models in a browser whose device has the limits of a phone and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from e2e.conformance.suites import SUITES, run_in_browser
from e2e.harness.browser import guarded_page
from e2e.harness.python import BrowserPython
from pyruntime.device.desktop.targets import LIMITS
from pyruntime.target.named import read_target
from tests.sampling import ALL

LIGHT = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19"),
    "zfnet512",
)

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


@pytest.fixture(scope="module")
def phone(browser: Browser, site_url: str) -> Iterator[BrowserPython]:
    with python_on("phone", browser, site_url) as python:
        yield python


@pytest.fixture(scope="module")
def compatibility(browser: Browser, site_url: str) -> Iterator[BrowserPython]:
    with python_on("compatibility", browser, site_url) as python:
        yield python


def check(name: str, python: BrowserPython) -> None:
    results = run_in_browser(SUITES["light"], python, lambda case: case.name == f"light_{name}")
    assert len(results.wrong) == 1
    results.check(part=True)
    assert [facts["host"] for facts in results.facts.values()] == [[]]


@pytest.mark.parametrize("name", LIGHT)
def test_light_model__limits_of_a_phone__right_and_on_the_gpu_alone(name: str, phone: BrowserPython) -> None:
    check(name, phone)


@pytest.mark.parametrize("name", LIGHT if ALL else ["shufflenet", "squeezenet"])
def test_light_model__compatibility_mode__right_and_on_the_gpu_alone(name: str, compatibility: BrowserPython) -> None:
    check(name, compatibility)


def test_device__compatibility_mode__has_its_limits(compatibility: BrowserPython) -> None:
    assert compatibility(LIMITS_OF_DEVICE) == [128, 128, 16 << 10]
