"""TypeScript declarations as Markdown, in place of `<!-- declarations: FILE NAME ... -->`."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

PLACE = re.compile(r"^<!-- declarations: (\S+) (.*) -->$", re.MULTILINE)
START = r"(?:export |interface |type |declare |import )"
BLOCK = re.compile(rf"((?:^/\*\*(?:(?!\*/).)*\*/\n)?)^({START}.*?)(?=^(?:/\*\*|{START})|\Z)", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"export (?:declare )?(?:abstract )?(?:class|interface|type|function|const|namespace) (\w+)")


def declarations(text: str) -> dict[str, tuple[str, str]]:
    """Return the comment and the code of each exported name. A namespace is merged with the class of its name."""
    found: dict[str, tuple[str, str]] = {}
    for comment, code in BLOCK.findall(text):
        if name := NAMED.match(code):
            told, before = found.get(name[1], ("", ""))
            found[name[1]] = (told or _prose(comment), f"{before}{code.rstrip()}\n")
    return found


def _prose(comment: str) -> str:
    """Return a comment's paragraphs as Markdown; indented ones are code."""
    lines = [re.sub(r"^\s*(/\*\*|\*/|\*)? ?|\s*\*/$", "", line) for line in comment.strip().splitlines()]
    paragraphs = textwrap.dedent("\n".join(lines)).strip("\n").split("\n\n")
    return "\n\n".join(
        f"```ts\n{textwrap.dedent(one)}\n```" if one.startswith("  ") else " ".join(one.split()) for one in paragraphs
    )


def expand(markdown: str, root: Path) -> str:
    """Replace the placeholders of a page with declarations; an unknown name is an error."""

    def entries(place: re.Match[str]) -> str:
        known = declarations((root / place[1]).read_text())
        return "\n".join(
            f"## {name}\n\n{known[name][0]}\n\n```ts\n{known[name][1].rstrip()}\n```\n" for name in place[2].split()
        )

    return PLACE.sub(entries, markdown)
