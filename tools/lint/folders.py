"""Limit of 30 files in a folder: `python -m tools.lint.folders`."""

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
    """Return a line for each folder with too many of `files`."""
    counts = Counter(str(PurePath(file).parent) for file in files if not file.startswith(RECORDS))
    return [f"{folder}: {count} files; the limit is {MOST}" for folder, count in sorted(counts.items()) if count > MOST]


def main() -> int:
    """Print the folders that are too large; return their number."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = complaints(listed.stdout.splitlines())
    print(*found, sep="\n")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
