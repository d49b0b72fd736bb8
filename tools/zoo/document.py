"""docs/MODELS.md: a title, and a section for each survey that writes one."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["PATH", "with_section", "write_section"]

PATH = Path(__file__).parents[2] / "docs" / "MODELS.md"

HEAD = """# Models

Written by `python3 dev.py zoo` and `python3 dev.py zoo --trained`; do not edit.
"""


def with_section(text: str, section: str) -> str:
    """Replace the section of a document that has the same '## ' heading as `section`."""
    heading = section.splitlines()[0]
    parts = re.split(r"^(?=## )", text or HEAD, flags=re.MULTILINE)
    found = [i for i, part in enumerate(parts) if part.splitlines()[:1] == [heading]]
    if not found:
        parts.append("")
        found = [len(parts) - 1]
    parts[found[0]] = section
    return "\n\n".join(part.strip() for part in parts) + "\n"


def write_section(section: str) -> None:
    """Write a section into docs/MODELS.md."""
    PATH.write_text(with_section(PATH.read_text() if PATH.is_file() else HEAD, section))
    print(f"wrote {section.splitlines()[0].removeprefix('## ')!r} of docs/{PATH.name}")
