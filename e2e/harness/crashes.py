"""A test whose page has lost its process is run once more, in a browser of its own.

Chromium loses one in some ten thousand of these pages while Python starts there, on a busy machine; why is not known. A
second loss in the same process of tests is a failure, and the first is told among the warnings.
"""

from __future__ import annotations

import warnings

import pytest
from _pytest.runner import runtestprotocol

__all__ = ["LostPage", "run_again"]

LOST = ("Target crashed", "Page crashed")
"""What Playwright says of such a page."""

_lost: list[str] = []


class LostPage(pytest.PytestWarning):
    """A page has lost its process."""


def run_again(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """`pytest_runtest_protocol` for a test of the browser."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if not _lost and any(report.failed and any(t in report.longreprtext for t in LOST) for report in reports):
        _lost.append(item.nodeid)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            item.warn(LostPage(f"{item.nodeid}: Chromium lost the page's process, so it was run once more"))
        item.session._setupstate.teardown_exact(None)
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
