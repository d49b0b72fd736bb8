"""The packages of a release: wheel, sdist, npm tarball and the list of third-party components."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.devkit.sbom import NAME
from tools.devkit.shell import ROOT, SetupError, check, say
from tools.devkit.site import PYPROJECT, build_site, build_wheel


def build_packages(python: Path, folder: Path, tag: str) -> None:
    """Write the packages to `folder`, which is emptied first.

    Args:
        tag: the release's tag, `v` and the version; '' without one.
    """
    version = PYPROJECT["project"]["version"]
    if tag and tag != f"v{version}":
        raise SetupError(f"The tag is {tag}, and the version in pyproject.toml {version}: one of them is wrong.")
    site, wheel = build_site(python), build_wheel(python)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(wheel, folder)
    shutil.copy(site / NAME, folder)
    check([python, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder.resolve()], cwd=ROOT)
    check(["npm", "pack", site, "--pack-destination", folder.resolve(), "--ignore-scripts", "--silent"], cwd=ROOT)
    say(f"packages in {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
