"""docs/api.md is what its tool writes, has every public name, and its links lead somewhere."""

from __future__ import annotations

import re

import pytest

import pyruntime
from tools import api_docs
from tools.devkit.shell import ROOT


def test_page__in_the_checkout__is_up_to_date() -> None:
    message = "run `python -m tools.api_docs`"
    assert api_docs.TARGET.read_text() == api_docs.page(), message


def test_page__public_names__are_all_there_with_their_docstrings() -> None:
    page = api_docs.page()
    for name in pyruntime.__all__:
        if name != "errors":
            assert f"### {name}\n" in page or f"- **{name}** (" in page, name
    assert "#### InferenceSession.run_with_iobinding\n" in page, "members of base classes"
    assert "`path_or_bytes`: path, URL" in page
    assert not re.search(r"\n### \w+\n\n###", page), "an entry without a word"


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links__of_each_page__lead_to_files_and_headings(path: object) -> None:
    from pathlib import Path

    assert isinstance(path, Path)
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", text):
        if not re.match(r"https?:", target):
            assert target == "" or (path.parent / target).exists(), target
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]*)\)", text):
        if not re.match(r"https?:", target):
            page = (path.parent / target).read_text() if target else path.read_text()
            headings = [re.sub(r"[^\w -]", "", line).lower().replace(" ", "-")
                        for line in re.findall(r"^#+ (.*)$", page, re.M)]  # fmt: skip
            assert anchor in headings, f"{target}#{anchor}"


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "docs/contributing/kernel.md", "docs/contributing/pass.md",
                                  "docs/contributing/device.md", "docs/contributing/page-feature.md"])  # fmt: skip
def test_files__that_guides_tell_to_open__exist(name: str) -> None:
    """Paths in code spans, from the root, from pyruntime/ or from web/; those with a placeholder in capitals aside."""
    spans = re.findall(r"`([\w./-]+/[\w./-]*\.\w+)`", (ROOT / name).read_text())
    paths = [path for path in spans if not re.search(r"NAME|FAMILY|KIND", path)]
    assert len(paths) > 5
    missing = [
        p for p in paths if not any((ROOT / at / p).exists() for at in (".", "pyruntime", "pyruntime/passes", "web"))
    ]
    assert not missing
