"""tools/devkit/firefox.py: which Firefox the smoke test gets, and when it gets none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.devkit import apt, firefox, vulkan
from tools.devkit.shell import SetupError


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def note_installs(monkeypatch: pytest.MonkeyPatch, works: bool) -> list[str]:
    """The packages that are asked for from now on; nothing is installed."""
    asked: list[str] = []

    def install(*names: str) -> bool:
        asked.extend(names)
        return works

    monkeypatch.setattr(apt, "install", install)
    return asked


def test_snap__belonging_or_pointing_to_one__is_told(tmp_path: Path) -> None:
    inside = executable(tmp_path / "snap" / "firefox" / "firefox", "#!/bin/sh\n")
    signpost = executable(tmp_path / "bin" / "firefox", "#!/bin/sh\nexec /snap/bin/firefox\n")
    link = tmp_path / "bin" / "firefox-nightly"
    link.symlink_to(executable(tmp_path / "bin" / "snap", ""))
    own = executable(tmp_path / "opt" / "firefox", "#!/bin/sh\nexec /usr/lib/firefox/firefox\n")
    assert [firefox.is_snap(path) for path in (inside, signpost, link, own)] == [True, True, True, False]


def test_ensure__one_is_named__is_that_one_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = executable(tmp_path / "good", "#!/bin/sh\necho Mozilla Firefox 150\n")
    monkeypatch.setenv(firefox.VARIABLE, str(good))
    assert firefox.ensure_firefox() == good
    monkeypatch.setenv(firefox.VARIABLE, str(executable(tmp_path / "bad", "#!/bin/sh\nexit 1\n")))
    with pytest.raises(SetupError, match="does not start"):
        firefox.ensure_firefox()
    monkeypatch.setenv(firefox.VARIABLE, "")
    assert firefox.ensure_firefox() is None


def test_ensure__none_is_there_and_none_can_be_installed__is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(firefox.VARIABLE, raising=False)
    monkeypatch.setattr(firefox, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(firefox, "installed", lambda: None)
    monkeypatch.setattr(apt, "distribution", lambda: "debian")
    asked = note_installs(monkeypatch, works=False)
    assert firefox.ensure_firefox() is None
    assert asked == ["firefox-esr"]
    assert not firefox.STAMP.exists()


def test_ensure__installed_now__is_noted_with_a_vulkan_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(firefox.VARIABLE, raising=False)
    monkeypatch.setattr(firefox, "STAMP", tmp_path / "stamp")
    good = executable(tmp_path / "firefox", "#!/bin/sh\necho Mozilla Firefox 150\n")
    answers = [None, good]
    monkeypatch.setattr(firefox, "installed", lambda: answers.pop(0))
    monkeypatch.setattr(vulkan, "DRIVERS", (str(tmp_path / "none"),))
    monkeypatch.setattr(apt, "distribution", lambda: "debian")
    monkeypatch.setattr(apt, "prefix", list)
    asked = note_installs(monkeypatch, works=True)
    assert firefox.ensure_firefox() == good
    assert asked == ["firefox-esr", "mesa-vulkan-drivers"]
    assert firefox.ensure_firefox() == good, "by its stamp"
