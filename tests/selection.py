"""Which tests a run has: with PYRUNTIME_TESTS=core or ci a part of them, the same each time.

`core` is for developers; `ci` has every native test, and more browser tests. Of e2e/, `core` has the flows of
`core.toml`. All else is chosen by time: `times.json` has the processor seconds that a case of each test function took
(`tests/record_times.py`). Tests are taken in this order until the seconds are used up: of each file the fastest
function's first case, then the first case of every other function, then all other cases; the faster ones first. What
has no recorded time counts as the mean of its suite.
"""

from __future__ import annotations

import functools
import json
import math
import os
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "SECONDS", "choose", "chosen_seconds", "core", "flows", "is_left_out", "leave_out", "longest_first", "of_flows",
    "pytest_terminal_summary", "pytest_testnodedown", "seconds",
]  # fmt: skip

ROOT = Path(__file__).parents[1]
TIMES = Path(__file__).with_name("times.json")
CORE = Path(__file__).with_name("core.toml")
SECONDS = {"core": {"tests": 120.0}, "ci": {"tests": math.inf, "e2e": 380.0}}
"""Processor seconds of each suite that is chosen by time. All of tests/ is 1,300, so that `ci` takes 30 to 40 minutes
on two cores. Browsers wait, too: two of them take three times as long as two cores would for their seconds. What a
file's tests share is counted for its first test."""

TOLD = pytest.StashKey[str]()


@functools.cache
def recorded() -> dict[str, dict[str, float]]:
    """Seconds of one case by file and function."""
    times: dict[str, dict[str, float]] = json.loads(TIMES.read_text())
    return times


@functools.cache
def core() -> dict[str, Any]:
    return tomllib.loads(CORE.read_text())


@functools.cache
def flows() -> list[str]:
    """Patterns of the core's test functions in e2e/, 'e2e/demo/test_page.py::test_pad*'."""
    named = [name for names in core()["flows"].values() for name in names]
    return [f"e2e/{name if '::' in name else f'{name}::*'}" for name in named]


def is_left_out(path: Path) -> bool:
    """Whether this is a file of e2e/ without a test of the run, which need not be imported."""
    if os.environ.get("PYRUNTIME_TESTS") != "core" or not path.match("test_*.py"):
        return False
    file = path.relative_to(ROOT).as_posix()
    return file.startswith("e2e/") and file not in {name.partition("::")[0] for name in flows()}


def of_flows(tests: Sequence[str]) -> set[str]:
    """The cases that a flow names, and the first case of each function that it names."""
    first: dict[str, str] = {}
    for test in tests:
        first.setdefault(test.partition("[")[0], test)
    named = {test for function, test in first.items() if any(fnmatchcase(function, name) for name in flows())}
    return named | (set(flows()) & set(tests))


@functools.cache
def mean(suite: str) -> float:
    """Of all functions of a suite, 'tests' or 'e2e'."""
    known = [cost for file, costs in recorded().items() if file.startswith(f"{suite}/") for cost in costs.values()]
    return sum(known) / len(known) if known else 0.0


def seconds(test: str) -> float:
    """What one case of this test took, 'tests/test_x.py::test_y[case]'."""
    file, _, name = test.partition("::")
    known = recorded().get(file, {}).get(name.partition("[")[0])
    return mean(file.partition("/")[0]) if known is None else known


def chosen_seconds(tests: Sequence[str]) -> float:
    return sum(map(seconds, tests))


def choose(tests: Sequence[str], budget: float) -> set[str]:
    """Those that run: every file is among them, also where that takes more than `budget` seconds."""
    ranks: list[tuple[int, float, int, str]] = []
    functions: set[str] = set()
    fastest: dict[str, float] = {}
    for test in tests:
        file = test.partition("::")[0]
        fastest[file] = min(seconds(test), fastest.get(file, seconds(test)))
    files: set[str] = set()
    for place, test in enumerate(tests):
        file, function = test.partition("::")[0], test.partition("[")[0]
        rank = 2 if function in functions else 1
        if file not in files and seconds(test) == fastest[file]:
            files.add(file)
            rank = 0
        functions.add(function)
        ranks.append((rank, seconds(test), place, test))
    chosen, used = set(), 0.0
    for rank, cost, _, test in sorted(ranks):
        if rank and used + cost > budget:
            continue
        used += cost
        chosen.add(test)
    return chosen


def leave_out(config: pytest.Config, items: list[pytest.Item], suite: str) -> None:
    """Deselect what is not in the run that PYRUNTIME_TESTS names; without it nothing."""
    run = os.environ.get("PYRUNTIME_TESTS")
    if not run:
        return
    names = [item.nodeid for item in items]
    chosen = choose(names, SECONDS[run][suite]) if suite in SECONDS[run] else of_flows(names)
    others = [name for name in names if name not in chosen]
    files = [path for path in (ROOT / suite).rglob("test_*.py") if is_left_out(path)]
    told = (
        f"{run}: {len(chosen):,} tests of {suite}/ (about {chosen_seconds(sorted(chosen)):,.0f} s of one processor). "
        f"--all adds {len(others):,} of the same files (about {chosen_seconds(others):,.0f} s)"
        + (f", and {len(files)} other files." if files else ".")
    )
    config.stash[TOLD] = told
    if hasattr(config, "workeroutput"):
        config.workeroutput["told"] = told
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def longest_first(items: list[pytest.Item]) -> None:
    """Order files by their recorded seconds, so that no process is left alone with a long one."""
    files: dict[Path, list[str]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item.nodeid)
    expected = {path: chosen_seconds(tests) for path, tests in files.items()}
    items.sort(key=lambda item: -expected[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process of xdist has chosen: all of them choose the same."""
    if told := getattr(node, "workeroutput", {}).get("told"):
        node.config.stash[TOLD] = told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was left out."""
    if told := config.stash.get(TOLD, ""):
        terminalreporter.write_line(told)
