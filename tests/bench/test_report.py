"""bench/report.py: ratios, means, tables."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from bench import report


def engine(factor: float) -> dict[str, Any]:
    keys = ("create_ms", "first_ms", "ready_ms", "median_ms", "p95_ms", "gpu_bytes_peak", "dispatches", "pipelines")
    return {key: factor * (10 + i) for i, key in enumerate(keys)}


def measured() -> dict[str, Any]:
    """Two models: onnxruntime-web takes twice our time on one, half of it on the other."""
    results = [
        {
            "model": name,
            "engines": {"ours": engine(1), "peer": engine(factor)},
            "check": {"same": True, "max_difference": 0},
        }
        for name, factor in (("won", 2.0), ("lost", 0.5))
    ]
    return {
        "date": "2026-01-02T03:04:05Z",
        "browser": "Chromium 1",
        "adapter": {"vendor": "Some Vendor", "architecture": "arch", "description": ""},
        "cores": 2,
        "runs": 30,
        "repeats": 1,
        "results": results,
    }


def test_ratio__peer_takes_twice_as_long__is_two() -> None:
    won, lost = measured()["results"]
    assert report.ratio(won, "median_ms") == 2
    assert report.ratio(lost, "median_ms") == 0.5


def test_geometric_mean__two_and_a_half__is_one() -> None:
    assert report.geometric_mean([2, 0.5, None]) == pytest.approx(1)
    assert report.geometric_mean([None]) is None


def test_overview__win_and_loss__links_the_result_and_gives_the_means() -> None:
    row = report.overview(measured() | {"browser": "Chromium 156.0.8078.108"}, "2026-01-02-some-gpu-q8-3")
    link = "[some gpu, 2026-01-02](../bench/results/2026-01-02-some-gpu-q8-3.json)"
    assert row == ["2 in eight bits", link, "Chromium 156", "1.00", "0.50", "1.00", "1.00"]
    models, link, browser, *_ = report.overview(measured(), "2026-01-02-some")
    assert (models, browser) == ("2 of different kinds", "Chromium 1")
    assert link == "[some, 2026-01-02](../bench/results/2026-01-02-some.json)"


def test_table__win_and_loss__shows_both_and_the_mean() -> None:
    lines = report.table(measured()).splitlines()
    median = next(i for i, line in enumerate(lines) if "median run" in line)
    assert [cell.strip() for cell in lines[median + 2].split("|")[1:5]] == ["won", "13.0", "26.0", "2.00"]
    assert [cell.strip() for cell in lines[median + 3].split("|")[1:5]] == ["lost", "13.0", "6.50", "0.50"]
    assert lines[median + 4].split("|")[4].strip() == "1.00"


def test_table__outputs_differ__says_so() -> None:
    result = measured()
    result["results"][1]["check"] = {"same": False, "max_difference": 0.25}
    assert "same outputs: 1 of 2; NOT: lost by 0.25" in report.table(result)


def test_table__engine_failed__names_it_and_leaves_it_out_of_the_means() -> None:
    result = measured()
    result["results"][1]["engines"]["peer"] = {"error": "no backend"}
    text = report.table(result)
    assert "lost failed. peer: no backend" in text
    assert "| lost" not in text


def test_table__navigation__has_medians() -> None:
    result = measured()
    times = {"ours": 100.0, "peer": 250.0, "plain": 200.0}
    result["navigation"] = {"model": "digits"} | {
        name: {"cold_ms": [ms, ms, 9 * ms], "warm_ms": [ms], "phases": []} for name, ms in times.items()
    }
    line = next(line for line in report.table(result).splitlines() if "cold cache" in line)
    assert [cell.strip() for cell in line.split("|")[2:6]] == ["100", "250", "2.50", "200"]


def test_save__result__is_named_by_date_and_adapter(tmp_path: Path) -> None:
    path = report.save(measured(), tmp_path, "Tiny models")
    assert path.name == "2026-01-02-some-vendor-arch-tiny-models.json"
    assert json.loads(path.read_text()) == measured()


def test_docs__two_results__are_written_between_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = copy.deepcopy(measured()) | {"date": "2026-02-02T00:00:00Z"}
    for result in (measured(), later):
        report.save(result, tmp_path / "results")
    visit = {"model": "digits", "network": "10 Mbit/s", "bytes": 250_000, "requests": 7}
    rows = [visit | {"engine": engine, "ms": [3.0, 1.0, 2.0 + n]} for n, engine in enumerate(report.FIRST_VISITORS)]
    (tmp_path / "results" / "first_visits").mkdir()
    (tmp_path / "results" / "first_visits" / "2026-02-02.json").write_text(json.dumps({"results": rows}))
    page = tmp_path / "performance.md"
    marks = (report.BEGIN, report.BEGIN_VISITS)
    page.write_text("\n\n".join(["# Before", *(f"{begin}\n\nold\n\n{report.END}" for begin in marks), "## After\n"]))
    monkeypatch.setattr(report, "DOCS", page)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    report.write_docs()
    text = page.read_text()
    assert text.startswith("# Before\n") and text.endswith("\n## After\n") and "old" not in text
    assert text.index("2026-02-02") < text.index("2026-01-02")
    assert "| digits | pyruntime, compiled plan | 0.25 | 7 | 3 |" in text
    report.write_docs()
    assert page.read_text() == text
