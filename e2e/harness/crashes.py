"""Tests whose browser crashes or hangs are run once more, in a new browser.

On a busy machine Chromium loses the process of one page in some ten thousand while Python starts there; and twice it
did not respond for ten minutes, in the one test that fills Cache Storage. The causes are unknown. A second loss in the
same test process is a failure; the first is reported as a warning, with the running test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from _pytest.runner import runtestprotocol

__all__ = ["LostPage", "run_again"]

LOST = ("Target crashed", "Page crashed")
"""What Playwright says of a page without a process."""

STILL_S = float(os.environ.get("PYRUNTIME_STILL", "360"))
"""After so many seconds of one test its browsers are ended; the longest takes 200, on a slow machine. 0: never."""

_lost: list[str] = []


class LostPage(pytest.PytestWarning):
    """A page has lost its process, or its browser does not respond."""


def run_again(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Implementation of `pytest_runtest_protocol` for a browser test."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    ended = threading.Event()
    with _ended_when_still(ended):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    texts = [report.longreprtext for report in reports if report.failed]
    crashed = any(said in text for text in texts for said in LOST)
    if not _lost and (crashed or ended.is_set()):
        _lost.append(item.nodeid)
        found = "Chromium lost the page's process" if crashed else "its browser stood still"
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            item.warn(LostPage("\n".join([f"{item.nodeid} was run once more: {found}", *texts[:1]])))
        with suppress(Exception):  # everything is torn down, even if a dead browser raises
            item.session._setupstate.teardown_exact(None)
        item._initrequest()  # type: ignore[attr-defined]
        with _ended_when_still(threading.Event()):
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@contextmanager
def _ended_when_still(ended: threading.Event) -> Iterator[None]:
    """End all browsers of this process after `STILL_S`, which unblocks Playwright, and set `ended`."""

    def end() -> None:
        ended.set()
        for pid in _browsers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(STILL_S, end)
    timer.daemon = True
    if STILL_S and "PYRUNTIME_SOAK" not in os.environ:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _browsers() -> list[int]:
    """Return the descendants of this process without Playwright's driver, which is its child."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    own = os.getpid()

    def depth(pid: int) -> int:
        steps = 0
        while pid != own and pid in parents:
            pid, steps = parents[pid], steps + 1
        return steps if pid == own else 0

    return [pid for pid in parents if depth(pid) > 1]
