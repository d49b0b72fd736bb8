"""Packages of Debian and Ubuntu, installed only if that needs no password."""

from __future__ import annotations

import os
import shutil
import subprocess

from tools.devkit.shell import run, say

# Another apt may be running on a fresh machine (unattended upgrades): wait for it.
APT = ("apt-get", "-o", "DPkg::Lock::Timeout=600", "--yes", "--quiet")


def prefix() -> list[str] | None:
    """Return the prefix of apt-get: nothing as root, `sudo -n` if that asks for no password; None if neither works."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def distribution() -> str:
    """Return the distribution from /etc/os-release, such as `debian` or `ubuntu`; empty if unknown."""
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            fields = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    except OSError:
        return ""
    return fields.get("ID", "").strip('"')


def install(*alternatives: str) -> bool:
    """Install the first of the packages that can be installed; return whether one was."""
    before = prefix()
    if before is None:
        return False
    command = [*before, "env", "DEBIAN_FRONTEND=noninteractive", *APT]
    say(f"apt-get install {alternatives[0]}")
    run([*command, "update"], quiet=True)
    return any(
        run([*command, "install", "--no-install-recommends", package], quiet=True) == 0 for package in alternatives
    )
