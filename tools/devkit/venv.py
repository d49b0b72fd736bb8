"""The virtual environment `.venv`, with the packages that requirements-dev.txt pins by hash."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tools.devkit import apt
from tools.devkit.shell import ROOT, VENV, SetupError, check, fingerprint, put_stamp, python, run, say, stamped

REQUIREMENTS = ROOT / "requirements-dev.txt"
STAMP = VENV / "pyruntime-dev.stamp"


def ensure_venv() -> Path:
    """Return the interpreter of an environment with the pinned packages; an existing one is updated."""
    value = fingerprint(REQUIREMENTS)
    if python().is_file() and stamped(STAMP, value):
        return python()
    if not python().is_file():
        create()
    say(f"installing the packages of {REQUIREMENTS.name} into .venv")
    command: list[str | Path] = [
        python(),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",  # Python does it for what is imported
        "--require-hashes",
        "--requirement",
        REQUIREMENTS,
    ]
    check(command, env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    put_stamp(STAMP, value)
    return python()


def create() -> None:
    """Create `.venv`; on Debian, where Python has no ensurepip, install python3-venv first."""
    if importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        if not apt.install(package, "python3-venv"):
            raise SetupError(
                f"this Python has no ensurepip: install {package} (or a Python that has it), then try again."
            )
    say(f"making .venv with Python {sys.version.split()[0]}")
    if run([sys.executable, "-m", "venv", "--clear", VENV]):
        raise SetupError("`python3 -m venv .venv` failed; its message is above.")
