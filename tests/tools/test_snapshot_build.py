"""The build of memory snapshots, without a browser."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

import pytest

from tools.devkit import snapshot


def test_ensure_snapshot__while_it_is_taken__no_other_build_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []

    def take(*_: object, **__: object) -> None:
        taken.append(None)
        with (tmp_path / "startup" / "page.lock").open("w") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setattr(snapshot, "CACHE", tmp_path)
    monkeypatch.setattr(snapshot, "ensure_chromium", lambda _: Path("browser"))
    monkeypatch.setattr(snapshot, "check", take)
    monkeypatch.delenv(snapshot.SWITCH, raising=False)
    (tmp_path / ".stamp").write_text("runtime")
    for _ in range(2):
        assert snapshot.ensure_snapshot(Path(sys.executable), tmp_path, []) == tmp_path / "startup" / "page"
    assert len(taken) == 1


def test_ensure_snapshot__fast_where_a_small_one_is__takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    monkeypatch.setattr(snapshot, "CACHE", tmp_path)
    monkeypatch.setattr(snapshot, "ensure_chromium", lambda _: Path("browser"))
    monkeypatch.setattr(snapshot, "check", lambda command, **_: taken.append("--fast" in command))
    (tmp_path / ".stamp").write_text("runtime")
    for switch in ("quick", "quick", "", "quick"):
        monkeypatch.setenv(snapshot.SWITCH, switch)
        snapshot.ensure_snapshot(Path(sys.executable), tmp_path, [])
    assert taken == [True, False]
