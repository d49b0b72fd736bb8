"""Limit of 30 files in a folder, and paths that differ in case alone: `python -m tools.lint.folders`."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import PurePath

from tools.devkit.shell import ROOT

MOST = 30
RECORDS = "docs/decisions"
"""Dated records, which are found by their numbers: every decision adds one."""


def complaints(files: list[str]) -> list[str]:
    """Return a line for each folder with too many of `files`, and for paths that are one where case is ignored."""
    counts = Counter(str(PurePath(file).parent) for file in files if not file.startswith(RECORDS))
    large = {folder: count for folder, count in sorted(counts.items()) if count > MOST}
    spelled = Counter(file.lower() for file in files)
    return [
        *(f"{folder}: {count} files; the limit is {MOST}" for folder, count in large.items()),
        *(f"{file}: {count} paths, which are one on macOS and Windows" for file, count in spelled.items() if count > 1),
    ]


def main() -> int:
    """Print the complaints; return their number."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = complaints(listed.stdout.splitlines())
    print(*found, sep="\n")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
