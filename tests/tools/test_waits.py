"""Pauses of tests that are not conditions are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lint.waits import complaints


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("page.wait_for_timeout(500)", 1),
        ("time.sleep(0.1)", 1),
        ("await asyncio.sleep(0.3)", 1),
        ("await new Promise((resolve) => { setTimeout(resolve, 1200); });", 1),
        ("setTimeout(() => control.abort(new Error('x')), ms);", 1),
        ("while not found():\n    time.sleep(0.1)", 0),
        ("for _ in range(9):\n    if found():\n        break\n    page.wait_for_timeout(20)", 0),
        ("for x in y:\n    pass\ntime.sleep(1)", 1),
        ("for x in y:\n    def f():\n        time.sleep(1)", 1),
        ("await asyncio.sleep(0)", 0),
        ("setTimeout(resolve);  setTimeout(resolve, 0);", 0),
        ("time.sleep(0.1)  # a slow server, on purpose", 0),
        ("// a slow GPU\nsetTimeout(resolve, 50);", 0),
        ("setTimeout(() => reject(new Error('no answer')), 20_000);", 0),
    ],
)
def test_complaints__pause__is_named_unless_it_polls_or_says_why(tmp_path: Path, source: str, count: int) -> None:
    (tmp_path / "test_x.py").write_text(source)
    assert len(list(complaints(tmp_path / "test_x.py"))) == count
