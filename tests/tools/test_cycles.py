"""tools/lint/cycles.py: which modules import each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lint.cycles import cycles, imports

FILES = {
    "a.js": "import { b } from './inner/b.js';\nexport const a = 1;",
    "inner/b.js": "/** @type {import('../a.js').A} */\nexport { c } from './c.js'; // import('./c.js')",
    "inner/c.js": "export const c = async () => import('../d.js');",
    "d.js": "import 'https://example.com/x.js';\nimport './e.js';",
    "e.js": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports__static_dynamic_and_in_comments__are_those_that_run(folder: Path) -> None:
    assert imports(folder) == {
        "a.js": ["inner/b.js"],
        "d.js": ["e.js"],
        "e.js": [],
        "inner/b.js": ["inner/c.js"],
        "inner/c.js": ["d.js"],
    }
    assert cycles(imports(folder)) == []


def test_cycles__modules_that_import_each_other__are_named(folder: Path) -> None:
    (folder / "e.js").write_text("import { a } from './a.js';")
    assert cycles(imports(folder)) == [["a.js", "inner/b.js", "inner/c.js", "d.js", "e.js", "a.js"]]
    assert cycles({"x": ["x"], "y": []}) == [["x", "x"]]
