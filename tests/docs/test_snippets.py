"""Python and commands in the documents run as they stand there; JavaScript does in e2e/published/test_documents.py."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import PAGES, code, snippets
from tools.devkit.shell import ROOT

ELSEWHERE = ("python3 dev.py ", "npm ", "pip install ")
"""How commands begin that other tests run: those of dev.py, and packages (e2e/published/test_package.py)."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if code(page, "python")], ids=name)
def test_python__of_a_page__runs_from_top_to_bottom(page: Path) -> None:
    program = "\n".join(code(page, "python"))
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for shown in code(page, "text"):
        assert shown in done.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if code(page, "sh")], ids=name)
def test_commands__of_a_page__run_or_are_run_by_other_tests(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "models", tmp_path / "models")  # commands write next to the model
    for line in "".join(code(page, "sh")).splitlines():
        command = line.partition(" #")[0].strip()
        if not command.startswith("python -m pyruntime "):
            assert command.startswith(ELSEWHERE), f"no test runs {command!r}"
            continue
        words = [sys.executable, *shlex.split(command)[1:]]
        done = subprocess.run(
            words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr


def test_snippets__of_all_pages__have_a_language_and_a_reason_where_they_do_not_run() -> None:
    for page in PAGES:
        for one in snippets(page):
            assert one.language in ("python", "js", "html", "sh", "text", "ts", "tsx"), (name(page), one.code)
        asked = len(re.findall("<!-- shown only:", page.read_text()))
        assert asked == sum(not one.is_run for one in snippets(page)), f"{name(page)}: a mark that is not before code"
