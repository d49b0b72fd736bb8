"""`python -m tests.mutations [WORD ...]`: take each defence away in a copy of the project and see its tests fail.

With words: only defences with one of them in their name. Ends with status 1 where tests passed without the defence.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutations.table import MUTATIONS, Mutation
from tools.devkit.shell import CACHE, ROOT

SECONDS = 120
"""After which tests that wait for ever have noticed, too."""
BUILD = "import pathlib, sys; from tools.devkit import site; site.build_site(pathlib.Path(sys.executable))"


def copy_project(target: Path) -> None:
    """What git has or would take, the built site, and the cache."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    for folder in (CACHE, ROOT / "dist"):
        if folder.is_dir():
            shutil.copytree(folder, target / folder.name, symlinks=True)


def unnoticed(mutation: Mutation, project: Path) -> list[str]:
    """The tests that pass without the defence."""
    file = project / mutation.path
    text = file.read_text()
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        if mutation.in_browser:
            subprocess.run([sys.executable, "-c", BUILD], cwd=project, check=True, capture_output=True)
        return [test for test in mutation.tests if passes(test, project)]
    finally:
        file.write_text(text)


def passes(test: str, project: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    try:
        ended = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    if ended.returncode not in (0, 1):
        raise SystemExit(f"pytest {test} ended with status {ended.returncode}:\n{ended.stdout[-3000:]}")
    return ended.returncode == 0


def main(words: list[str]) -> int:
    chosen = [m for m in MUTATIONS if not words or any(word in m.defence for word in words)]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder).resolve()
        copy_project(project)
        for mutation in chosen:
            passed = unnoticed(mutation, project)
            missed += bool(passed)
            verdict = f"NOT NOTICED by {', '.join(passed)}" if passed else f"noticed by {len(mutation.tests)}"
            print(f"without {mutation.defence}: {verdict}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
