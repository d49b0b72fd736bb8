"""Paths of the checkout, messages, subprocesses, and stamps of finished work."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
DIST = ROOT / "dist"
VENV = ROOT / ".venv"


class SetupError(Exception):
    """Set-up cannot continue; the message says what is missing and what to do."""


def say(message: str) -> None:
    print(f"[dev] {message}", flush=True)


def child_environment() -> dict[str, str]:
    """Return the environment for processes that import the project, which share bytecode."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, quiet: bool = False, cwd: Path = ROOT
) -> int:
    """Run `command`; return its exit status. `quiet` shows its output only if it fails."""
    argv = [str(part) for part in command]
    merged = {**child_environment(), **(env or {})}
    if not quiet:
        return subprocess.run(argv, cwd=cwd, env=merged).returncode
    done = subprocess.run(argv, cwd=cwd, env=merged, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(f"$ {shlex.join(argv)}\n{done.stdout}", flush=True)
    return done.returncode


def check(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, quiet: bool = False, cwd: Path = ROOT
) -> None:
    """Like `run`, but raise SetupError for a non-zero exit status."""
    if status := run(command, env=env, quiet=quiet, cwd=cwd):
        raise SetupError(f"`{shlex.join(map(str, command))}` ended with status {status}.")


def python() -> Path:
    """Return the interpreter of the checkout's virtual environment."""
    return VENV / "bin" / "python"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(*parts: str | bytes | Path) -> str:
    """Return a digest of strings, bytes and the contents of files and folders."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            files = sorted(p for p in part.rglob("*") if p.is_file()) if part.is_dir() else [part]
            for file in files:
                if "__pycache__" not in file.parts:
                    digest.update(f"{file.relative_to(part)}\0{sha256(file)}\0".encode())
        else:
            digest.update(part.encode() if isinstance(part, str) else part)
            digest.update(b"\0")
    return digest.hexdigest()


def stamped(stamp: Path, value: str) -> bool:
    """Return whether the work of `stamp` was done with this `value`."""
    return stamp.is_file() and stamp.read_text() == value


def put_stamp(stamp: Path, value: str) -> None:
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(value)
