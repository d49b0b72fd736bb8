"""The memory snapshots that the sites start Python from (see tools/snapshot)."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tools.devkit.chromium import VARIABLE, ensure_chromium
from tools.devkit.shell import CACHE, ROOT, SetupError, check, fingerprint, put_stamp, say, stamped

SWITCH = "PYRUNTIME_SNAPSHOT"
SCRIPTS = tuple(sorted((ROOT / "web" / "snapshot").glob("*.js")))
SOURCES = (ROOT / "tools" / "snapshot", *SCRIPTS, ROOT / "models" / "digits.onnx")


def ensure_snapshot(
    python: Path, runtime: Path, wheels: Sequence[Path], kind: Literal["page", "kernel"] = "page"
) -> Path:
    """Create a folder with `snapshot/` and the wheels; `kind` says who starts from it (tools/snapshot).

    That needs a browser. Without one, after a failure, and with PYRUNTIME_SNAPSHOT=0 there is no snapshot, and the site
    starts Python without one. PYRUNTIME_SNAPSHOT=quick compresses in a hundredth of the time, by a third less, unless
    there is a smaller one already.
    """
    (CACHE / "startup").mkdir(parents=True, exist_ok=True)
    with (CACHE / "startup" / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the page's site and the notebooks' may be built at the same time
        return ensured(python, runtime, wheels, kind)


def ensured(python: Path, runtime: Path, wheels: Sequence[Path], kind: str) -> Path:
    """Do what `ensure_snapshot` says, while no other process does."""
    folder = CACHE / "startup" / kind
    switch = os.environ.get(SWITCH)
    wanted, options = switch != "0", ["--fast"] if switch == "quick" else []
    stamp, version = folder / ".stamp", (runtime / ".stamp").read_text()
    value, small = (fingerprint(str(wanted), *chosen, version, *wheels, *SOURCES) for chosen in (options, []))
    if stamped(stamp, value) or stamped(stamp, small):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if wanted:
            browser = ensure_chromium(python)
            say(f"taking a snapshot of Python's memory, for the {kind}")
            command: list[str | Path] = [python, "-m", "tools.snapshot", *options, kind, runtime, folder, *wheels]
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
    """Write the files of a site without a snapshot, so that no request of them fails."""
    snapshot = folder / "snapshot"
    shutil.rmtree(snapshot, ignore_errors=True)
    snapshot.mkdir()
    (snapshot / "manifest.json").write_text("null\n")
    for name in ("memory.bin", "zstd.wasm"):
        (snapshot / name).write_bytes(b"")
    for wheel in wheels:
        shutil.copyfile(wheel, folder / wheel.name)
