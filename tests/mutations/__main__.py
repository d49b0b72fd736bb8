"""`python -m tests.mutations [--ci | WORD ...]`: take defences away in a copy of the project and see their tests fail.

With words: only defences with one of them in their name. `--ci`: what CI has time for, each native test of the table;
and the browser tests of defences of which the branch changes a file. Ends with status 1 where tests passed without the
defence.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
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
            built = subprocess.run([sys.executable, "-c", BUILD], cwd=project, capture_output=True, text=True)
            if built.returncode:
                raise SystemExit(f"without {mutation.defence} the site is not built:\n{built.stderr[-3000:]}")
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


def part_of_ci(mutations: Sequence[Mutation], changed: set[str]) -> list[Mutation]:
    """Those with native tests, without their browser tests; as they are where one of their files changed."""
    native = [tuple(test for test in m.tests if test.startswith("tests/")) for m in mutations]
    part = [m if changed & m.files else replace(m, tests=own) for m, own in zip(mutations, native, strict=True)]
    return [m for m in part if m.tests]


def changed_files() -> set[str]:
    """The files that differ from the commit at which the branch left main: none where git knows no main."""
    for main in ("origin/main", "main"):
        if base := git("merge-base", "HEAD", main):
            return set(git("diff", "--name-only", base[0]))
    return set()


def git(*arguments: str) -> list[str]:
    """The lines that git prints; none where it fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()


def main(words: list[str]) -> int:
    if words == ["--ci"]:
        chosen = part_of_ci(MUTATIONS, changed_files())
    else:
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
