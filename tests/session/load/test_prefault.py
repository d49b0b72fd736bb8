"""Pages of a model's mapped file are prefaulted while the GPU opens."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pytest

from pyruntime.onnx.formats.source import MemorySource, open_file
from pyruntime.session.load import prefault as prefaulting
from pyruntime.session.load.prefault import prefault

NBYTES = 16 << 20

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes(NBYTES))
    return path


def _finished(*sources: object) -> None:
    before = set(threading.enumerate())
    prefault(sources)
    for thread in set(threading.enumerate()) - before:
        thread.join()


def _mapped(path: Path) -> list[int]:
    """Return the bytes of each mapping of a file that are in the process's page table, in the order of addresses."""
    areas = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.M)
    found = [re.search(r"^Rss: +(\d+) kB$", area, re.M) for area in areas if str(path) in area]
    return [1024 * int(rss[1]) for rss in found if rss]


@on_linux
def test_prefault__mapped_file__all_its_pages_are_there(file: Path) -> None:
    source = open_file(file)
    assert _mapped(file) == [0]
    _finished(source, source)
    assert _mapped(file) == [NBYTES]


@on_linux
def test_prefault__more_than_the_limit__the_rest_is_left(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefaulting, "MOST", NBYTES * 3 // 2)
    _finished(*(sources := [open_file(file), open_file(file)]))
    half, whole = sorted(_mapped(file))
    assert len(sources) == 2 and whole == NBYTES and NBYTES // 2 <= half < NBYTES * 3 // 4


def test_prefault__no_mapped_file__starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    prefault([MemorySource(b"model"), b"raw"])
