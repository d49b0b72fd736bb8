"""Code in the documents for users, as their readers copy it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tools.devkit.shell import ROOT

SHOWN_ONLY = re.compile(r"<!-- shown only: \S.* -->\n$")

PAGES = sorted(
    [ROOT / "README.md", *(page for f in ("", "api", "library") for page in (ROOT / "docs" / f).glob("*.md"))]
)
"""Documents whose code runs. That of docs/contributing/ does in tests/tools/test_walks.py."""


@dataclass(frozen=True)
class Snippet:
    """A block of code. `is_run` is False where the line before says `<!-- shown only: why -->`."""

    language: str
    code: str
    is_run: bool


def snippets(page: Path) -> list[Snippet]:
    """All blocks of a page, in order."""
    text = page.read_text()
    found = []
    for block in re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = text[: block.start()].rpartition("\n\n")[2]
        found.append(Snippet(block[1], block[2], is_run=not SHOWN_ONLY.search(before)))
    return found


def code(page: Path, language: str) -> list[str]:
    """The blocks of a language that run."""
    return [one.code for one in snippets(page) if one.language == language and one.is_run]
