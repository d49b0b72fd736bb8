"""A Chromium for the tests: an installed one, else the distribution's package, else Playwright's download."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.devkit import apt
from tools.devkit.shell import CACHE, SetupError, put_stamp, run, say

VARIABLE = "PYRUNTIME_CHROMIUM"
STAMP = CACHE / "chromium.path"
DOWNLOADS = CACHE / "browsers"
NAMES = (
    "chromium",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "microsoft-edge-stable",
    "chromium-browser",
)
APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


def ensure_chromium(python: Path) -> Path:
    """Return the executable of a browser that starts: that of PYRUNTIME_CHROMIUM, else the first that is found."""
    if named := os.environ.get(VARIABLE):
        if version(Path(named)) is None:
            raise SetupError(f"{VARIABLE}={named} does not start.")
        return Path(named)
    if STAMP.is_file() and os.access(known := STAMP.read_text(), os.X_OK):
        return Path(known)
    found = installed() or downloaded() or install(python)
    if found is None:
        raise SetupError(f"no Chromium: install Chrome, Edge or Chromium, or set {VARIABLE} to one, then try again.")
    say(f"browser: {version(found)} ({found})")
    put_stamp(STAMP, str(found))
    return found


def version(executable: Path) -> str | None:
    """Return the output of `--version`; None if the file is not a browser that starts (Ubuntu's points to its snap)."""
    try:
        done = subprocess.run([executable, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def installed() -> Path | None:
    paths = [Path(path) for name in NAMES if (path := shutil.which(name))] + [Path(path) for path in APPLICATIONS]
    return next((path for path in paths if path.exists() and version(path)), None)


def downloaded() -> Path | None:
    """Return Playwright's downloaded full Chromium, if any; its headless shell has no WebGPU."""
    patterns = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*")
    paths = sorted(path for pattern in patterns for path in DOWNLOADS.glob(pattern))
    return next((path for path in reversed(paths) if version(path)), None)


def install(python: Path) -> Path | None:
    """Install Debian's package if possible (Ubuntu's is a snap, which cannot be used), else Playwright's Chromium."""
    if apt.distribution() == "debian" and apt.install("chromium") and (found := installed()):
        return found
    say("playwright install chromium")
    command: list[str | Path] = [python, "-m", "playwright", "install", "--no-shell", "chromium"]
    if apt.prefix() is not None:
        command.insert(-1, "--with-deps")
    if run(command, env={"PLAYWRIGHT_BROWSERS_PATH": str(DOWNLOADS)}):
        return None
    return downloaded()
