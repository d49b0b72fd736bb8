"""A browser test whose page is lost fails with one message, and leaves no shared page to the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CONFTEST = "from e2e.harness.crashes import pytest_runtest_makereport, pytest_runtest_teardown\n"

TESTS = """
import pytest

made = []


@pytest.fixture(scope="session")
def browser():
    made.append(len(made))
    yield made[-1]
    assert made[-1], "the browser is gone"


def test_lost(browser):
    assert browser == 7, "Page.evaluate: Target crashed"


def test_next(browser):
    assert browser == 1


def test_wrong(browser):
    assert browser == 7, "another number"


def test_last(browser):
    assert browser == 1
"""


def test_lost_page__shared_by_a_session__fails_one_test_with_one_message(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYRUNTIME", "COV"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    env |= {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False).stdout
    assert "test_lost - Chromium lost the process of this test's page" in said
    assert "test_wrong - AssertionError: another number" in said
    assert "2 failed, 2 passed in" in said
