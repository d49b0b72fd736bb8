"""The sources of the documentation site: docs/, documents outside of it, and declarations in place of placeholders.

Documents are read on the site and in the repository, so their links are relative paths in the repository. Links to
files that are not on the site point to the repository if its address is known, and are removed otherwise.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

from tools.docs.declarations import expand

ROOT = Path(__file__).parents[2]
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "OPERATORS.md": "operators.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "benchmark.md",
}
"""Documents outside docs/, and their names on the site."""
SOURCES = ("examples/*.html", "examples/*.js", "examples/*.py", "notebooks/*.ipynb")
"""What has a page that shows its source, in `sources/` of the site."""

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def repository() -> str:
    """Return the repository's address on the web, if the environment has it, as in GitHub's workflows."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}/blob/{os.environ['GITHUB_SHA']}"
    return ""


def write_pages(folder: Path) -> None:
    """Fill an empty folder with the site's sources: docs/ and PAGES as Markdown, and the images of docs/."""
    for source in sorted((ROOT / "docs").rglob("*")):
        target = folder / source.relative_to(ROOT / "docs")
        if source.suffix == ".md":
            write_page(source, target)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for path, name in PAGES.items():
        write_page(ROOT / path, folder / name)
    (folder / "sources").mkdir()
    for pattern in SOURCES:
        for source in ROOT.glob(pattern):
            (folder / site_path(source.relative_to(ROOT).as_posix())).write_text(source_page(source))


def write_page(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(linked(expand(source.read_text(), ROOT), source.relative_to(ROOT).as_posix()))


def source_page(source: Path) -> str:
    """Return the page that shows an example: a notebook's cells, or a file's contents."""
    title, text = f"# {source.relative_to(ROOT).as_posix()}\n\n", source.read_text()
    if source.suffix != ".ipynb":
        return f"{title}````{source.suffix[1:]}\n{text}````\n"
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    parts = (cell if kind == "markdown" else f"````python\n{cell}\n````" for kind, cell in cells)
    return title + re.sub("^# ", "## ", "\n\n".join(parts), count=1) + "\n"


def linked(markdown: str, path: str) -> str:
    """Convert a document's links for the site; code is unchanged."""
    parts = re.split(r"(^```.*?^```|`[^`\n]*`)", markdown, flags=re.DOTALL | re.MULTILINE)
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(lambda found: _link(found[1], found[2], path), parts[i])
    return "".join(parts)


def _link(text: str, target: str, path: str) -> str:
    if re.match(r"[a-z]+:|#", target):
        return f"[{text}]({target})"
    file, mark, anchor = target.partition("#")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
    if page := site_path(wanted):
        here = posixpath.dirname(site_path(path) or "")
        return f"[{text}]({posixpath.relpath(page, here or '.')}{mark}{anchor})"
    return f"[{text}]({repository()}/{wanted})" if repository() else text


def site_path(path: str) -> str:
    """Return the path of a repository file on the site; '' if it is not there."""
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    if any(fnmatchcase(path, pattern) for pattern in SOURCES):
        return f"sources/{posixpath.basename(path).replace('.', '_')}.md"
    return PAGES.get(path, "")
