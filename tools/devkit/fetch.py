"""Downloads by URL and from npm, verified against pinned hashes before use."""

from __future__ import annotations

import base64
import hashlib
import http.client
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from tools.devkit.pins import TRANSFORMERS_JS, NpmPackage
from tools.devkit.shell import CACHE, ROOT, SetupError, check, fingerprint, put_stamp, say, stamped

CONNECT_TIMEOUT_S = 5.0
LOCK = ROOT / "tools" / "npm"


class HashMismatch(Exception):
    """A download does not match its pinned hash."""


UNAVAILABLE = (OSError, http.client.HTTPException, HashMismatch)


def download(url: str, destination: Path, sha256: str) -> None:
    """Download `url` to `destination`.

    Raises:
        UNAVAILABLE: no response within CONNECT_TIMEOUT_S, an HTTP error, or a hash mismatch.
    """
    with urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT_S) as response:
        data = response.read()
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise HashMismatch(f"{url}: sha256 is {found}, expected {sha256}")
    destination.write_bytes(data)


def npm_package(package: NpmPackage) -> Path:
    """Return the folder of a package in tools/npm/package-lock.json; `npm ci` installs all of them, once."""
    folder = CACHE / "npm"
    stamp, value = folder / ".stamp", fingerprint(LOCK)
    if not stamped(stamp, value):
        say(f"npm ci of {LOCK.relative_to(ROOT)}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(LOCK, folder)
        check([npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, quiet=True)
        put_stamp(stamp, value)
    return folder / "node_modules" / package.name


def npm_files(package: NpmPackage, members: tuple[str, ...], folder: Path) -> Path:
    """Fill `folder` with the files of a package that match `members` (paths below its root), once."""
    stamp, value = folder / ".stamp", fingerprint(package.integrity, *members)
    if not stamped(stamp, value):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            extract(pack(package, Path(temporary)), members, folder)
        put_stamp(stamp, value)
    return folder


def transformers_js() -> Path:
    """Return a folder with transformers.js' files, without its dependencies."""
    members = ("package.json", "LICENSE", "dist/transformers.web.js", "dist/transformers.min.js")
    return npm_files(TRANSFORMERS_JS, members, CACHE / "transformers")


def npm() -> str:
    """Return the path of npm.

    Raises:
        SetupError: npm is not installed.
    """
    if found := shutil.which("npm"):
        return found
    raise SetupError("npm is needed: install Node.js with npm.")


def pack(package: NpmPackage, folder: Path) -> Path:
    """Download the tarball of `package` and check its integrity."""
    command = [npm(), "pack", f"{package.name}@{package.version}", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    tarballs = list(folder.glob("*.tgz"))
    if done.returncode or len(tarballs) != 1:
        raise SetupError(f"`{' '.join(command)}` ended with status {done.returncode}:\n{done.stderr.strip()}")
    algorithm, expected = package.integrity.split("-", 1)
    found = base64.b64encode(hashlib.new(algorithm, tarballs[0].read_bytes()).digest()).decode()
    if found != expected:
        raise SetupError(f"{package.name}@{package.version}: integrity is {algorithm}-{found}, not {package.integrity}")
    return tarballs[0]


def extract(tarball: Path, members: tuple[str, ...], folder: Path) -> None:
    """Extract the files that match `members` (paths below the package's root). Links are never followed or created."""
    with tarfile.open(tarball) as tar:
        for entry in tar:
            path = PurePosixPath(*PurePosixPath(entry.name).parts[1:])
            if entry.isfile() and ".." not in path.parts and any(fnmatchcase(str(path), m) for m in members):
                tar.extract(entry.replace(name=str(path)), folder, filter="data")
