"""Packages of Debian and Ubuntu, where this user may install them without being asked for a password."""

from __future__ import annotations

import os
import shutil
import subprocess

from tools.devkit.shell import run, say

# Another apt may be at work on a fresh machine (unattended upgrades): wait for it rather than fail.
APT = ("apt-get", "-o", "DPkg::Lock::Timeout=600", "--yes", "--quiet")


def prefix() -> list[str] | None:
    """What comes before apt-get: nothing as root, `sudo -n` where that asks nothing, None where neither works."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def distribution() -> str:
    """`debian`, `ubuntu`, ... from /etc/os-release; empty where that file does not say."""
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            fields = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    except OSError:
        return ""
    return fields.get("ID", "").strip('"')


def install(*alternatives: str) -> bool:
    """Whether one of the packages could be installed; they are tried in order."""
    before = prefix()
    if before is None:
        return False
    command = [*before, "env", "DEBIAN_FRONTEND=noninteractive", *APT]
    say(f"apt-get install {alternatives[0]}")
    run([*command, "update"], quiet=True)
    return any(
        run([*command, "install", "--no-install-recommends", package], quiet=True) == 0 for package in alternatives
    )
