"""Builds the documentation site in `dist/docs/`, served with the page: `python3 dev.py docs`."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

from tools.devkit.shell import CACHE, DIST, ROOT, SetupError, check, fingerprint, put_stamp, say, stamped
from tools.docs.pages import PAGES, repository, write_pages

FOLDER = CACHE / "docs"
REQUIREMENTS = ROOT / "requirements-docs.txt"
CONFIGURATION = ROOT / "tools" / "docs" / "mkdocs.yml"


def ensure_generator(python: Path) -> Path:
    """Return the interpreter of an environment with exactly the pinned packages of the site generator."""
    tools = FOLDER / "venv"
    stamp, value = FOLDER / "venv.stamp", fingerprint(REQUIREMENTS)
    if not stamped(stamp, value):
        say(f"installing the packages of {REQUIREMENTS.name} into {tools.relative_to(ROOT)}")
        check([python, "-m", "venv", "--clear", tools])
        pip: list[str | Path] = [tools / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes"]
        check([*pip, "--requirement", REQUIREMENTS], env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
        put_stamp(stamp, value)
    return tools / "bin" / "zensical"


def build_docs(python: Path) -> Path:
    """Build the site in .cache/ if any of its sources has changed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        generator, site, stamp = ensure_generator(python), FOLDER / "site", FOLDER / "site.stamp"
        sources = [ROOT / name for name in ("docs", "pyruntime", "web", "tools/docs", "examples", "notebooks", *PAGES)]
        value = fingerprint(*sources, REQUIREMENTS, CONFIGURATION, Path(__file__), repository())
        if stamped(stamp, value):
            return site
        for folder in ("pages", "site"):
            shutil.rmtree(FOLDER / folder, ignore_errors=True)
        (FOLDER / "pages").mkdir()
        write_pages(FOLDER / "pages")
        shutil.copyfile(CONFIGURATION, FOLDER / CONFIGURATION.name)
        done = subprocess.run(
            [generator, "build", "--strict"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            told = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)
            raise SetupError(f"The documentation site was not built: {told}")
        (site / "404.html").unlink()  # its addresses are those of a site at the root
        put_stamp(stamp, value)
        return site


def publish_docs(python: Path) -> Path:
    """Copy the site to `dist/docs/`."""
    target = DIST / "docs"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(build_docs(python), target)
    return target
