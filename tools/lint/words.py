"""Private words: `python -m tools.lint.words [FOLDER ...]` lists uses of words that are not terms of the field.

`tools/lint/words.toml` maps regular expressions to the terms to write instead. They apply to identifiers, prose and
file names. A line that needs such a word (a name, a quotation) is in its `exceptions`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["complaints"]

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".toml")
SUFFIXES = {".py", ".js", ".ts", ".wgsl", ".md", ".toml", ".html", ".css", ".ipynb", ".txt"}
LEFT_OUT = ("bench/results/", "docs/decisions/", "models/", "tools/lint/words.toml")
"""Records of what was, data, and the list itself."""


def complaints(folders: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield (place, word, replacement) for each private word in the files below `folders` (default: all)."""
    given = tomllib.loads(LIST.read_text("utf-8"))
    words = {re.compile(_whole(word), re.I): instead for word, instead in given["words"].items()}
    allowed = [re.compile(pattern) for pattern in given["exceptions"]]
    listed = subprocess.run(["git", "ls-files", "--", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if name.startswith(LEFT_OUT) or path.suffix not in SUFFIXES or not path.is_file():
            continue
        for number, line in enumerate((name, *path.read_text("utf-8").splitlines())):
            if any(pattern.search(line) for pattern in allowed):
                continue
            for word, instead in words.items():
                for match in word.finditer(line):
                    yield f"{name}:{number}", match[0], instead


def _whole(word: str) -> str:
    """Return a regular expression that matches whole words in prose, snake_case and camelCase."""
    return rf"(?<![A-Za-z])(?:{word})(?![a-z])"


def main(argv: Sequence[str]) -> int:
    """Print every use, and the number of uses of each word."""
    found = list(complaints(argv))
    for place, word, instead in found:
        print(f"{place}: {word!r}: write {instead}")
    for word, count in Counter(word.lower() for _, word, _ in found).most_common():
        print(f"{count:6} {word}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
