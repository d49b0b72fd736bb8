"""The picture of Python's memory that the site starts from, and the wheel with bytecode (see tools/snapshot)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.devkit.chromium import VARIABLE, ensure_chromium
from tools.devkit.shell import CACHE, ROOT, SetupError, check, fingerprint, put_stamp, say, stamped

FOLDER = CACHE / "startup"
SWITCH = "PYRUNTIME_SNAPSHOT"
SOURCES = (ROOT / "tools" / "snapshot", ROOT / "web" / "snapshot.js", ROOT / "models" / "digits.onnx")
FILES = ("memory.gz", "packages.gz")


def ensure_snapshot(python: Path, runtime: Path, wheel: Path) -> Path:
    """A folder with `snapshot/` and the wheel.

    It takes a browser to make them. Where there is none, where it fails, and where PYRUNTIME_SNAPSHOT=0 wants a quick
    build, the snapshot says that there is none and the wheel has no bytecode: the site starts Python from nothing.
    """
    wanted = os.environ.get(SWITCH) != "0"
    stamp, value = FOLDER / ".stamp", fingerprint(str(wanted), (runtime / ".stamp").read_text(), wheel, *SOURCES)
    if stamped(stamp, value):
        return FOLDER
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        if wanted:
            take(python, runtime, wheel)
            put_stamp(stamp, value)
            return FOLDER
    except SetupError as error:
        say(f"the site will start without a snapshot: {error}")
    do_without(wheel)
    if not wanted:
        put_stamp(stamp, value)
    return FOLDER


def take(python: Path, runtime: Path, wheel: Path) -> None:
    browser = ensure_chromium(python)
    say("taking a snapshot of Python's memory")
    check([python, "-m", "tools.snapshot", runtime, wheel, FOLDER], env={VARIABLE: str(browser)}, quiet=True)


def do_without(wheel: Path) -> None:
    """What a site without a snapshot has in its place: nothing that is missing when it is asked for."""
    folder = FOLDER / "snapshot"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "manifest.json").write_text("null\n")
    for name in FILES:
        (folder / name).write_bytes(b"")
    shutil.copyfile(wheel, FOLDER / wheel.name)
