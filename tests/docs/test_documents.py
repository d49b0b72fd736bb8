"""Links, sizes and names in the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pyruntime
from tools.devkit.shell import ROOT
from tools.docs import figure
from tools.docs.declarations import PLACE, declarations, expand
from tools.docs.pages import PAGES as MOVED
from tools.docs.pages import SOURCES, linked, site_path, source_page

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"])
MOST = {"README.md": 120, "ARCHITECTURE.md": 200, "bench/README.md": 150}
TABLES = {"OPERATORS.md"}
"""Generated, with a row for each operator that has a kernel."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> list[str]:
    return [
        re.sub(r"[^\w -]", "", line).lower().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links__of_each_page__lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for link in links:
        if re.match(r"https?:", link) or link.startswith(("../web/", "../models/")):
            continue  # the built site has these
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


FILE = re.compile(r"`((?:docs|e2e|examples|notebooks|pyruntime|shaders|tests|tools|web)/[\w./*-]+\.\w+)`")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files__named_in_a_sentence__exist(page: Path) -> None:
    """Capitals stand for a name that the reader chooses. Decisions are dated: their files may have gone since."""
    if "decisions" in page.parts:
        return
    for file in FILE.findall(page.read_text()):
        assert re.search(r"[A-Z]{4}", file) or [*ROOT.glob(file)], file


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages__are_short(page: Path) -> None:
    if name(page) not in TABLES:
        assert len(page.read_text().splitlines()) <= MOST.get(name(page), 250)


def test_counts_of_models__are_those_of_the_generated_pages() -> None:
    every = re.search(r"^\| all \|.* (\d+) \| \d+ \|$", (ROOT / "docs" / "architectures.md").read_text(), re.MULTILINE)
    files = re.search(r"^(\d+) of (\d+) files of", (ROOT / "docs" / "MODELS.md").read_text(), re.MULTILINE)
    assert every and files
    text = " ".join((ROOT / "docs" / "which-models.md").read_text().split())
    assert f"[{every[1]} architectures](architectures.md)" in text
    assert f"[{files[2]} trained files](MODELS.md)" in text and f"{files[1]} of them in Chromium" in text
    assert f"[{every[1]} architectures](docs/which-models.md)" in (ROOT / "README.md").read_text()


def test_navigation__of_the_site__has_every_page() -> None:
    text = (ROOT / "tools" / "docs" / "mkdocs.yml").read_text()
    listed = set(re.findall(r": ([\w/.-]+\.md)$", text, re.MULTILINE))
    pages = {site_path(name(page)) for page in PAGES} - {""}
    apart = {page for page in pages if page.startswith(("contributing/", "decisions/"))}  # linked by their parents
    assert listed == pages - apart


def test_python_reference__names_every_public_name() -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    named = {line.rpartition(".")[2] for line in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    errors = {name for name in pyruntime.__all__ if name in pyruntime.errors.__all__}
    assert set(pyruntime.__all__) - errors - {"errors", "gpu"} <= named
    assert {"errors", "Gpu"} <= named


@pytest.mark.parametrize("file", ["web/pyruntime.d.ts", "web/text/generator.d.ts", "web/widget.d.ts"])
def test_javascript_reference__names_every_export(file: str) -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    named = [name for place, names in PLACE.findall(text) if place == file for name in names.split()]
    assert sorted(named) == sorted(declarations((ROOT / file).read_text()))


def test_expand__a_place__has_comment_and_code_of_its_name(tmp_path: Path) -> None:
    text = (
        "/**\n * What\n * it is.\n *\n *     new A();\n */\nexport type A =\n  | 'a';\n"
        "type B = A;\n/** Else. */\nexport type C = B;\n"
    )
    (tmp_path / "x.d.ts").write_text(text)
    page = expand("# X\n\n<!-- declarations: x.d.ts C A -->\n", tmp_path)
    assert "## C\n\nElse.\n\n```ts\nexport type C = B;\n```" in page
    assert "## A\n\nWhat it is.\n\n```ts\nnew A();\n```\n\n```ts\nexport type A =\n  | 'a';\n```" in page
    assert page.index("## C") < page.index("## A")


@pytest.mark.parametrize(
    ("path", "link", "expected"),
    [
        ("docs/index.md", "[a](../SECURITY.md#limits)", "[a](security.md#limits)"),
        ("docs/api/values.md", "[a](../DIFFERENCES.md)", "[a](../DIFFERENCES.md)"),
        ("README.md", "[a](docs/generate.md)", "[a](generate.md)"),
        ("bench/README.md", "[a](../docs/performance.md)", "[a](performance.md)"),
        ("docs/examples.md", "[a](../examples/whisper.js)", "[a](sources/whisper_js.md)"),
        ("docs/notebooks.md", "[a](../notebooks/first_steps.ipynb)", "[a](sources/first_steps_ipynb.md)"),
        ("docs/index.md", "[a](../dev.py)", "a"),
        ("docs/index.md", "`[a](../dev.py)`", "`[a](../dev.py)`"),
        ("docs/index.md", "[a](https://example.org/)", "[a](https://example.org/)"),
    ],
)
def test_linked__a_link__is_the_sites(monkeypatch: pytest.MonkeyPatch, path: str, link: str, expected: str) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert linked(link, path) == expected


def test_source_page__of_a_notebook__has_its_text_and_code() -> None:
    page = source_page(ROOT / "notebooks" / "first_steps.ipynb")
    assert page.startswith("# notebooks/first_steps.ipynb\n\n## First steps\n")
    assert "````python\nimport numpy as np" in page


def test_gallery__of_the_page__links_every_example_to_its_source() -> None:
    page = (ROOT / "index.html").read_text()
    examples = [path for pattern in SOURCES for path in ROOT.glob(pattern) if path.name != "whisper.js"]
    assert len(examples) >= 9
    for path in examples:
        source = site_path(name(path)).replace(".md", ".html")
        assert f'href="docs/{source}"' in page
        assert path.suffix != ".html" or f'href="{name(path)}"' in page


def test_moved_pages__exist() -> None:
    assert all((ROOT / path).is_file() for path in MOVED)


def test_figure__of_the_layers__is_up_to_date() -> None:
    assert figure.TARGET.read_text() == figure.draw(), "run `python -m tools.docs.figure`"


def sources() -> str:
    """All Python and JavaScript, with strings that are written in several parts in one piece."""
    files = [*(ROOT / "pyruntime").rglob("*.py"), *(ROOT / "web").rglob("*.js")]
    return re.sub(r"""["'`]\s*\+?\s*\n\s*\+?\s*f?["'`]""", "", "\n".join(file.read_text() for file in files))


def test_troubleshooting__error_texts__are_those_of_the_code() -> None:
    section = (ROOT / "docs" / "troubleshooting.md").read_text().partition("## By error text")[2]
    texts = re.findall(r"^`([^`]+)`", section, re.MULTILINE)
    assert len(texts) > 20
    code = sources()
    missing = [text for text in texts for part in text.split("{...}") if part.strip() not in code]
    assert not missing


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/contributing/kernel.md", "docs/contributing/pass.md",
                                  "docs/contributing/device.md", "docs/contributing/page-feature.md"])  # fmt: skip
def test_files__that_guides_tell_to_open__exist(page: str) -> None:
    """Paths in code spans, from the root, from pyruntime/ or from web/; those with a placeholder in capitals aside."""
    spans = re.findall(r"`([\w./-]+/[\w./-]*\.\w+)`", (ROOT / page).read_text())
    paths = [path for path in spans if not re.search(r"NAME|FAMILY|KIND", path)]
    assert len(paths) > 5
    places = (".", "pyruntime", "pyruntime/passes", "web")
    assert [path for path in paths if not any((ROOT / place / path).exists() for place in places)] == []
