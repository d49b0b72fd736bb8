"""`tests.selection` and tests/times.json."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import record_times as times
from tests import selection
from tests.selection import choose, flows, is_left_out, of_flows, recorded
from tools.devkit.shell import ROOT

TESTS = [
    *(f"tests/a.py::test_fast[{case}]" for case in range(4)),
    *(f"tests/a.py::test_slow[{case}]" for case in range(4)),
    "tests/b.py::test_slowest",
    "tests/b.py::test_new",  # no time: the mean, 31 seconds
    "tests/c.py::test_only[x]",
    "tests/c.py::test_only[y]",
]
TIMES = {
    "tests/a.py": {"test_fast": 0.5, "test_slow": 3.0},
    "tests/b.py": {"test_slowest": 100.0},
    "tests/c.py": {"test_only": 20.0},
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "recorded", lambda: TIMES)
    selection.mean.cache_clear()


def test_choose__no_time_at_all__takes_the_fastest_test_of_each_file() -> None:
    assert choose(TESTS, 0) == {"tests/a.py::test_fast[0]", "tests/b.py::test_new", "tests/c.py::test_only[x]"}


def test_choose__some_time__takes_each_function_before_a_second_case() -> None:
    chosen = choose(TESTS, 56)
    assert "tests/a.py::test_slow[0]" in chosen
    assert "tests/a.py::test_fast[1]" in chosen
    assert "tests/a.py::test_slow[1]" not in chosen
    assert "tests/b.py::test_slowest" not in chosen


def test_choose__enough_time__takes_all() -> None:
    assert choose(TESTS, 1000) == set(TESTS)


def test_merged__measured_again__has_the_mean_of_a_functions_cases() -> None:
    file = "tests/test_selection.py"
    before = {file: {"test_x": 9.0, "test_y": 1.0}, "tests/gone.py": {"test_z": 1.0}}
    assert times.merged(before, {file: {"test_x": [1.0, 2.0]}}) == {file: {"test_x": 1.5, "test_y": 1.0}}


def test_processor_seconds__of_a_process_with_a_child__counts_both() -> None:
    began = times.processor_seconds(os.getpid())
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert times.processor_seconds(os.getpid()) >= began + 0.25


def test_times__recorded__are_of_files_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert recorded()
    assert [file for file in recorded() if not (ROOT / file).is_file()] == []


FLOWS = ["e2e/demo/test_page.py::*", "e2e/text/test_text.py::test_greedy*", "e2e/text/test_text.py::test_seed[2]"]


def test_of_flows__files_functions_and_cases__have_one_case_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "flows", lambda: FLOWS)
    tests = [
        *(f"e2e/demo/test_page.py::test_pad[{case}]" for case in range(2)),
        "e2e/demo/test_page.py::test_raster",
        "e2e/demo/test_page_model.py::test_model",
        *(f"e2e/text/test_text.py::test_greedy__prompts[{case}]" for case in range(2)),
        *(f"e2e/text/test_text.py::test_seed[{case}]" for case in range(3)),
    ]
    assert of_flows(tests) == {tests[0], tests[2], tests[4], tests[8]}


@pytest.mark.parametrize(("run", "left_out"), [("core", True), ("ci", False)])
def test_is_left_out__file_of_no_flow__of_the_core_alone(
    run: str, left_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "flows", lambda: FLOWS)
    monkeypatch.setenv("PYRUNTIME_TESTS", run)
    assert is_left_out(ROOT / "e2e" / "text" / "test_window.py") is left_out
    assert not is_left_out(ROOT / "e2e" / "text" / "test_text.py")
    assert not is_left_out(ROOT / "tests" / "test_cli.py")
    assert not is_left_out(ROOT / "e2e" / "text")


def test_flows__every_name__is_of_tests_that_exist() -> None:
    for pattern in flows():
        file, _, function = pattern.partition("::")
        names = re.findall(r"^def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)
        assert fnmatch.filter(names, function.partition("[")[0]), pattern


def test_flows__every_folder_of_browser_tests__is_in_one_or_left_out_with_a_reason() -> None:
    left_out = selection.core()["left_out"]
    assert [name for name in left_out if not (ROOT / "e2e" / name).exists()] == []
    there = {path.relative_to(ROOT / "e2e").parts[0] for path in (ROOT / "e2e").rglob("test_*.py")}
    covered = {Path(name.partition("::")[0]).parts[1] for name in flows()}
    assert there - covered == {name for name in left_out if "/" not in name}
