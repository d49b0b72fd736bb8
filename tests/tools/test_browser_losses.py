"""Tests of the browser whose browser is lost: run once more, told, and failed when it happens again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFTEST = """
from e2e.harness.crashes import run_again


def pytest_runtest_protocol(item, nextitem):
    return run_again(item, nextitem)
"""

BEGIN = """
import subprocess

import pytest

made = []


@pytest.fixture(scope="session")
def browser():
    made.append(len(made))
    yield made[-1]
    assert made[-1], "the browser is gone"
"""

LOST = """

def test_one(browser):
    assert browser == 1, "Page.evaluate: Target crashed"
"""

OTHER = """

def test_another(browser):
    assert browser == 7, "Page crashed"
"""

WRONG = """

def test_wrong(browser):
    assert browser == 1, "another number"
"""

STILL = """

def test_still(browser):
    if browser == 0:
        assert subprocess.run(["sh", "-c", "sleep 60; exit $?"]).returncode == 0
"""


def outcome(folder: Path, tests: str, still: str = "0") -> str:
    """What pytest says of these tests."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(BEGIN + tests)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYRUNTIME", "COV"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)]
    env |= {"PYTHONPATH": str(ROOT), "PYRUNTIME_STILL": still}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False).stdout


def test_lost_page__once__is_run_again_with_fixtures_made_anew_and_told(tmp_path: Path) -> None:
    said = outcome(tmp_path, LOST)
    assert "1 passed, 1 warning" in said and "lost the page's process" in said and "failed" not in said


@pytest.mark.parametrize(
    ("tests", "end"), [(LOST + OTHER, "1 failed, 1 passed, 1 warning"), (WRONG, "1 failed, 1 error in")]
)
def test_lost_page__again_or_another_failure__fails(tmp_path: Path, tests: str, end: str) -> None:
    assert end in outcome(tmp_path, tests)


def test_browser_that_stands_still__is_ended_and_the_test_run_again(tmp_path: Path) -> None:
    said = outcome(tmp_path, STILL, still="2")
    assert "1 passed, 1 warning" in said and "stood still" in said and "subprocess.run" in said
