"""tests/times.json, the processor seconds of each test, recorded by a run with this plugin:

    python -m pytest -p tests.record_times FILE_OR_FOLDER ...

Seconds are of all processors together and of every process that a test started, browsers too, so that another load of
the machine changes little. Functions that run replace what was recorded of them; those whose file is gone are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.devkit.shell import ROOT

TARGET = ROOT / "tests" / "times.json"
TICKS = os.sysconf("SC_CLK_TCK")

_seconds: dict[str, dict[str, list[float]]] = {}


def processor_seconds(root: int) -> float:
    """What a process, and those that it started, have used of all processors."""
    used: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        process = int(entry.parent.name)
        children.setdefault(int(fields[1]), []).append(process)
        used[process] = sum(map(int, fields[11:15]))  # its own, and of children that ended
    total, left = 0, [root]
    while left:
        process = left.pop()
        total += used.get(process, 0)
        left += children.get(process, [])
    return total / TICKS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test with its fixtures."""
    began = processor_seconds(os.getpid())
    result = yield
    file, _, name = item.nodeid.partition("::")
    cases = _seconds.setdefault(file, {}).setdefault(name.partition("[")[0], [])
    cases.append(max(0.0, processor_seconds(os.getpid()) - began))
    return result


def pytest_sessionfinish() -> None:
    TARGET.write_text(json.dumps(merged(json.loads(TARGET.read_text()), _seconds), indent=0) + "\n")


def merged(
    times: dict[str, dict[str, float]], measured: dict[str, dict[str, list[float]]]
) -> dict[str, dict[str, float]]:
    """Times with the mean of what was measured of each function; files that are gone are left out."""
    for file, functions in measured.items():
        means = {name: round(sum(cases) / len(cases), 2) for name, cases in functions.items()}
        times[file] = times.get(file, {}) | means
    return {file: dict(sorted(times[file].items())) for file in sorted(times) if (ROOT / file).is_file()}
