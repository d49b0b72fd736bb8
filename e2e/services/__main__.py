"""The table of docs/browsers.md: `python -m e2e.services --write` runs the tests and writes it, `--check` compares."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from e2e.services.cases import LACKS, PLACES
from tools.devkit.chromium import ensure_chromium, version

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "browsers.md"
BEGIN, END = "<!-- written by `python -m e2e.services --write` -->", "<!-- end of what is written -->"
TESTS = ("e2e/services", "e2e/api/test_homes.py")
HEAD = re.compile(r"^\| where \| (?P<browser>[^|]+), (?P<date>\d{4}-\d\d-\d\d) \|$", re.M)


def table(browser: str, date: str) -> str:
    """What each lack costs, as tests saw it in `browser` on `date`."""
    rows = [*((f"without {lack.name}", lack.outcome) for lack in LACKS), *PLACES]
    return "\n".join([f"| where | {browser}, {date} |", "|---|---|", *(f"| {name} | {what} |" for name, what in rows)])


def written(document: str, browser: str, date: str) -> str:
    """The document with the table between its marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(browser, date)}\n\n{END}{after}"


def main() -> int:
    """Run the command; 1 where a test fails, or where the table is not what the cases say."""
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", action="store_true")
    group.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    document = DOCUMENT.read_text()
    if arguments.check:
        head = HEAD.search(document)
        if head is None or written(document, head["browser"], head["date"]) != document:
            print(f"{DOCUMENT.name} is not what e2e/services/cases.py says: run `python -m e2e.services --write`")
            return 1
        return 0
    browser = version(ensure_chromium(Path(sys.executable))) or "Chromium"
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", *TESTS], cwd=ROOT).returncode
    if status == 0:
        name = re.sub(r"^(\w+) (\d+).*", r"\1 \2", browser)
        DOCUMENT.write_text(written(document, name, f"{datetime.now(UTC):%Y-%m-%d}"))
    return status


if __name__ == "__main__":
    sys.exit(main())
