"""The pictures of Python's memory that the sites start from, and the wheels with bytecode (see tools/snapshot)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tools.devkit.chromium import VARIABLE, ensure_chromium
from tools.devkit.shell import CACHE, ROOT, SetupError, check, fingerprint, put_stamp, say, stamped

SWITCH = "PYRUNTIME_SNAPSHOT"
SCRIPTS = (ROOT / "web" / "snapshot" / "snapshot.js", ROOT / "web" / "snapshot" / "memory.js")
SOURCES = (ROOT / "tools" / "snapshot", *SCRIPTS, ROOT / "models" / "digits.onnx")


def ensure_snapshot(
    python: Path, runtime: Path, wheels: Sequence[Path], kind: Literal["page", "kernel"] = "page"
) -> Path:
    """A folder with `snapshot/` and the wheels; `kind` says who starts from it (tools/snapshot).

    It takes a browser to make them. Where there is none, where it fails, and where PYRUNTIME_SNAPSHOT=0 wants a quick
    build, the snapshot says that there is none and the wheels get no bytecode: the site starts Python from nothing.
    PYRUNTIME_SNAPSHOT=quick spends little time on packing what is made; the same files are a tenth larger.
    """
    folder = CACHE / "startup" / kind
    switch = os.environ.get(SWITCH)
    wanted, quick = switch != "0", ["--quick"] if switch == "quick" else []
    stamp = folder / ".stamp"
    value = fingerprint(str(wanted), *quick, (runtime / ".stamp").read_text(), *wheels, *SOURCES)
    if stamped(stamp, value):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if wanted:
            browser = ensure_chromium(python)
            say(f"taking a snapshot of Python's memory, for the {kind}")
            command = [python, "-m", "tools.snapshot", *quick, kind, runtime, folder, *wheels]
            check(command, env={VARIABLE: str(browser)}, quiet=True)
            put_stamp(stamp, value)
            return folder
    except SetupError as error:
        say(f"the {kind} will start without a snapshot: {error}")
    do_without(folder, wheels)
    if not wanted:
        put_stamp(stamp, value)
    return folder


def do_without(folder: Path, wheels: Sequence[Path]) -> None:
    """What a site without a snapshot has in its place: nothing that is missing when it is asked for."""
    snapshot = folder / "snapshot"
    shutil.rmtree(snapshot, ignore_errors=True)
    snapshot.mkdir()
    (snapshot / "manifest.json").write_text("null\n")
    (snapshot / "memory.gz").write_bytes(b"")
    for wheel in wheels:
        shutil.copyfile(wheel, folder / wheel.name)
