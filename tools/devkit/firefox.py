"""A Firefox for the smoke test: one that is installed, else Debian's (about 300 MB), with a software adapter."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.devkit import apt, vulkan
from tools.devkit.chromium import version
from tools.devkit.shell import CACHE, SetupError, put_stamp, say

VARIABLE = "PYRUNTIME_FIREFOX"
STAMP = CACHE / "firefox.path"
NAMES = ("firefox", "firefox-esr", "firefox-developer-edition", "firefox-nightly")
APPLICATIONS = ("/Applications/Firefox.app/Contents/MacOS/firefox",)


def ensure_firefox() -> Path | None:
    """The executable of a Firefox that starts, None where there is none to be had.

    PYRUNTIME_FIREFOX names one; an empty one says that there is none.
    """
    if (named := os.environ.get(VARIABLE)) is not None:
        if named and version(Path(named)) is None:
            raise SetupError(f"{VARIABLE}={named} does not start.")
        return Path(named) if named else None
    if STAMP.is_file() and os.access(known := STAMP.read_text(), os.X_OK):
        return Path(known)
    found = installed() or install()
    if found is None:
        say(f"no Firefox: its smoke test is skipped; install one, or set {VARIABLE} to one")
        return None
    vulkan.ensure_vulkan()
    say(f"browser: {version(found)} ({found})")
    put_stamp(STAMP, str(found))
    return found


def installed() -> Path | None:
    """A Firefox that may read a profile anywhere, as a snap (Ubuntu's) may not."""
    named = [path for name in NAMES if (path := shutil.which(name))]
    paths = [Path(path) for path in (*named, *APPLICATIONS) if Path(path).exists()]
    return next((path for path in paths if not is_snap(path) and version(path)), None)


def is_snap(path: Path) -> bool:
    """Whether the file belongs to a snap, or is Ubuntu's signpost to one."""
    target = path.resolve()
    signpost = target.stat().st_size < 4096 and b"/snap/" in target.read_bytes()
    return target.name == "snap" or "snap" in target.parts or signpost


def install() -> Path | None:
    """Debian's package where we may install it."""
    if apt.distribution() == "debian" and apt.install("firefox-esr"):
        return installed()
    return None
