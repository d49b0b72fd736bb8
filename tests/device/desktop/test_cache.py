"""Files that processes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyruntime.device.desktop import cache
from pyruntime.errors import InvalidArgument


def test_store__folder__is_made_and_holds_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "new"))
    assert cache.load("plans", "a") is None
    cache.store(b"one", "plans", "a")
    cache.store(b"two", "plans", "a")
    assert cache.load("plans", "a") == b"two"
    assert [p.name for p in (tmp_path / "new" / "plans").iterdir()] == ["a"]


def test_store__no_folder_is_named__stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    cache.store(b"one", "plans", "a")
    assert cache.load("plans", "a") is None


def test_store__folder_that_is_a_file__is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(InvalidArgument, match="PYRUNTIME_CACHE: cannot write"):
        cache.store(b"one", "plans", "a")
