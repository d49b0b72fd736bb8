"""A test whose page lost its process fails and says so; the tests after it get a new browser.

On a busy machine Chromium loses the process of one page in some ten thousand while Python starts there; the cause is
unknown. Pages and browsers are shared by tests, which would all fail.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress

import pytest
from _pytest._code.code import ExceptionRepr

__all__ = ["pytest_runtest_makereport", "pytest_runtest_teardown"]

CRASHED = ("Target crashed", "Page crashed")
"""Playwright's errors of a page without a process."""

LOST = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and any(error in report.longreprtext for error in CRASHED):
        item.stash[LOST] = True
        if isinstance(report.longrepr, ExceptionRepr) and report.longrepr.reprcrash:
            report.longrepr.reprcrash.message = "Chromium lost the process of this test's page"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if item.stash.get(LOST, False):
        with suppress(Exception):  # every fixture is torn down, also where a lost page raises
            item.session._setupstate.teardown_exact(None)
