"""What README.md shows, copied from it, runs: in a bare page of another origin, and in Python."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, expect

from e2e.harness.browser import guarded_page
from tools.devkit.server import Server
from tools.devkit.shell import ROOT


def snippet(language: str) -> str:
    """All code of the language, one piece after the other."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert found
    return "\n".join(found)


def test_html__pasted_into_a_bare_page__draws_and_answers(browser: Browser, site: Path, tmp_path: Path) -> None:
    with Server({"/": site}, shared=True) as home:
        pasted = snippet("html").replace("http://localhost:8000/", home.url)
        assert home.url in pasted
        (tmp_path / "index.html").write_text(f"<!doctype html><title>Bare</title><body>{pasted}")
        with (
            Server({"/": tmp_path}, policy=None) as other,
            guarded_page(browser, "http://127.0.0.1:") as (page, guard),
        ):
            guard.allow("favicon|404")
            page.goto(other.url)
            page.locator("pyruntime-model .pad").wait_for()
            expect(page.locator("body")).to_contain_text(re.compile(r"(0\.\d+(e-\d+)? ?){10}"))


def test_python__pasted__runs() -> None:
    code = snippet("python") + "\nassert probabilities.shape == (1, 10)\nassert y.shape == x.shape\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
