"""The site's modules: what one exports another imports, and types that are named are used."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tools.devkit.shell import ROOT

USERS = (
    "index.html",
    "web/**/*",
    "e2e/**/*",
    "examples/**/*",
    "tools/**/*",
    "bench/**/*",
    "tests/**/*",
    "pyruntime/**/*",
)
KINDS = {".js", ".mjs", ".ts", ".html", ".py"}
EXPORT = re.compile(r"^export (?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)
EXPORTS = re.compile(r"^export \{([^}]*)\}", re.MULTILINE)
TYPE = re.compile(r"@typedef \{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\} (\w+)|@callback (\w+)")


@cache
def texts() -> dict[Path, str]:
    """Every file that may use a module of the site."""
    found = {p for pattern in USERS for p in ROOT.glob(pattern) if p.suffix in KINDS and p != Path(__file__)}
    return {p: p.read_text() for p in sorted(found)}


def exported(text: str) -> list[str]:
    named = [n.split(" as ")[-1].strip() for several in EXPORTS.findall(text) for n in several.split(",")]
    return [*EXPORT.findall(text), *(n for n in named if n)]


def unused_exports(module: Path, users: dict[Path, str]) -> list[str]:
    """Exports whose names stand in no other file that names the module."""
    others = [text for path, text in users.items() if path != module and module.name in text]
    return [n for n in exported(users[module]) if not any(re.search(rf"\b{n}\b", text) for text in others)]


def unused_types(module: Path, users: dict[Path, str]) -> list[str]:
    """Types that neither the module nor another one names."""
    text, unused = users[module], []
    for pair in TYPE.findall(text):
        name = pair[0] or pair[1]
        own = re.findall(rf"\b{name}\b", re.sub(rf"import\('[^']*'\)\.{name}\b", "", text))
        asked = rf"{re.escape(module.name)}'\)\.{name}\b"
        if len(own) < 2 and not any(re.search(asked, t) for p, t in users.items() if p != module):
            unused.append(name)
    return unused


def test_exports__of_the_site__are_imported() -> None:
    found = {str(p.relative_to(ROOT)): names for p in modules() if (names := unused_exports(p, texts()))}
    assert not found, "no other file names these: make them the module's own, or take them out"


def test_types__of_the_site__are_named_somewhere() -> None:
    found = {str(p.relative_to(ROOT)): names for p in modules() if (names := unused_types(p, texts()))}
    assert not found, "take these typedefs out"


def modules() -> list[Path]:
    return [p for p in texts() if p.suffix == ".js" and p.is_relative_to(ROOT / "web")]


@pytest.mark.parametrize(
    "user", ["import { used } from './module.js';", "import('./module.js').then(({ used }) => used);"]
)
def test_finding__made_up_modules__what_is_unused_alone(user: str) -> None:
    module, other = ROOT / "web" / "module.js", ROOT / "web" / "other.js"
    text = "/** @typedef {import('./x.js').Kind} Kind */\nexport const used = 1;\n"
    text += "function own() {}\nexport { own as named };\n"
    users = {module: text + "/** @typedef {{a: number}} Read @param {Read} x */", other: user}
    assert unused_exports(module, users) == ["named"]
    assert unused_types(module, users) == ["Kind"]
    assert not unused_types(module, {**users, other: "/** @type {import('./module.js').Kind} */"})
