"""Wheel and sdist install in a clean environment, and the README's Python runs from there; one version everywhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import pyruntime
from tests.docs.snippets import code
from tools.devkit import pins
from tools.devkit.packages import build_packages
from tools.devkit.sbom import components, write_sbom
from tools.devkit.shell import ROOT, SetupError

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def hatch(target: str, source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hatch("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheels(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of the checkout, and the one that is built from the sdist."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked)  # ours; Python 3.11.2, Debian's, has no filters yet
    (source,) = unpacked.iterdir()
    return {
        "checkout": hatch("wheel", ROOT, tmp_path_factory.mktemp("wheel")),
        "sdist": hatch("wheel", source, tmp_path_factory.mktemp("wheel of sdist")),
    }


def test_sdist__its_wheel__has_the_files_of_the_checkouts(wheels: dict[str, Path]) -> None:
    contents = {}
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            contents[name] = {one.filename: one.CRC for one in archive.infolist() if "dist-info" not in one.filename}
    assert contents["checkout"] == contents["sdist"]
    assert "pyruntime/py.typed" in contents["checkout"]


@pytest.mark.parametrize("kind", ["checkout", "sdist"])
def test_wheel__in_a_clean_environment__runs_the_readme(wheels: dict[str, Path], kind: str, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120)
    python = environment / "bin" / "python"
    install = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([sys.executable, *install, str(wheels[kind])], check=True, timeout=120)
    (packages,) = environment.glob("lib/python*/site-packages")
    for found in Path(np.__file__).parents[1].glob("numpy*"):  # the one dependency, without a network
        (packages / found.name).symlink_to(found)
    (tmp_path / "models").symlink_to(ROOT / "models")
    program = "\n".join([*code(ROOT / "README.md", "python"), "print(ort.__file__)"])
    done = subprocess.run([python, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(environment) in done.stdout


def test_version__in_every_file__is_that_of_the_project() -> None:
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    packed = json.loads((ROOT / "package.json").read_text())["version"]
    assert {pyruntime.__version__, packed, cited[1]} == {VERSION}


def test_packages__tag_of_another_version__is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=rf"v9\.9\.9, and the version .* {re.escape(VERSION)}"):
        build_packages(Path(sys.executable), tmp_path / "packages", "v9.9.9")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    names = ["pyodide/pyodide.mjs", "pyodide/python_stdlib.zip", "pyodide/numpy-1.whl", "web/vendor/tokenizers.js",
             "web/vendor/jinja.js"]  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "pyodide" / "pyodide-lock.json").write_text('{"info": {"python": "3.13.2"}}')
    return tmp_path


def test_sbom__of_a_site__has_versions_and_files_and_the_notice_names_each(site: Path) -> None:
    found = {one["name"]: one for one in components(site)}
    assert found["numpy"]["version"] == pins.NUMPY_VERSION
    assert found["cpython"]["purl"] == "pkg:generic/cpython@3.13.2"
    assert [file["name"] for file in found["numpy"]["components"]] == ["pyodide/numpy-1.whl"]
    notice = (ROOT / "NOTICE").read_text().lower()
    assert [name for name in found if name not in notice] == []


def test_sbom__a_file_that_the_site_lacks__raises(site: Path) -> None:
    (site / "web" / "vendor" / "jinja.js").unlink()
    with pytest.raises(FileNotFoundError, match="jinja"):
        components(site)


def test_sbom__a_wheel_with_files_of_others__raises(site: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other/code.py", "")
    with pytest.raises(ValueError, match="other/code"):
        write_sbom(site, wheel, "1.0")
