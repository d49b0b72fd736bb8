"""A Firefox for the smoke test: an installed one, else Debian's package (about 300 MB), with a software adapter."""

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
    """Return the executable of a Firefox that starts; None if there is none.

    PYRUNTIME_FIREFOX names one; if it is empty, Firefox is not used.
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
    """Return a Firefox that can read profiles in any folder, which a snap (Ubuntu's) cannot."""
    named = [path for name in NAMES if (path := shutil.which(name))]
    paths = [Path(path) for path in (*named, *APPLICATIONS) if Path(path).exists()]
    return next((path for path in paths if not is_snap(path) and version(path)), None)


def is_snap(path: Path) -> bool:
    """Return whether the file belongs to a snap, or is Ubuntu's wrapper for one."""
    target = path.resolve()
    signpost = target.stat().st_size < 4096 and b"/snap/" in target.read_bytes()
    return target.name == "snap" or "snap" in target.parts or signpost


def install() -> Path | None:
    """Install Debian's package if possible."""
    if apt.distribution() == "debian" and apt.install("firefox-esr"):
        return installed()
    return None
