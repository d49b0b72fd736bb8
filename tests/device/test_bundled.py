"""The modules that the wheel carries for pages without them: all of those, and nothing that a script cannot have."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pyruntime.device.webgpu import bundled as subject
from pyruntime.device.webgpu.bundled import bundled, reached
from tools.devkit.shell import ROOT


def test_wheel__javascript__is_what_the_device_reaches() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    forced = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    web = {source: target for source, target in forced.items() if source.startswith("web/")}
    assert web == {f"web/{name}": f"pyruntime/web/{name}" for name in reached("gpu/device.js")}


def test_bundled__device__has_each_module_once_after_those_it_needs() -> None:
    names = list(reached("gpu/device.js"))
    assert names[-1] == "gpu/device.js"
    assert names.index("net/pieces.js") < names.index("gpu/staging.js") < names.index("gpu/player.js")
    text = bundled("gpu/device.js")
    for function in ("play", "uploadNow", "bind", "described", "timed", "attend", "allocate"):
        assert len(re.findall(rf"^(?:async )?function {function}\(", text, re.M)) == 1, function
    assert not re.search(r"^(import|export)\b", text, re.M) and "import.meta" not in text


def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    for name, text in texts.items():
        (tmp_path / f"{name}.js").write_text(text)
    monkeypatch.setattr(subject, "_root", lambda: tmp_path)


def test_bundled__of_all_forms__is_one_expression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _folder(
        tmp_path,
        monkeypatch,
        top="import { one, two } from './low.js';\nexport { two } from './low.js';\n"
        "export async function run() {\n  return one + two();\n}\nexport class Kept {}\n",
        low="export const one = 1;\n/** import('./top.js') in a comment */\nexport function two() {\n  return 2;\n}\n",
    )
    assert bundled("top.js") == (
        "(() => {\n'use strict';\n"
        "const module0 = (() => {\nconst one = 1;\n/** import('./top.js') in a comment */\n"
        "function two() {\n  return 2;\n}\n"
        "return { one, two };\n})();\n"
        "const module1 = (() => {\nconst { one, two } = module0;\n"
        "async function run() {\n  return one + two();\n}\nclass Kept {}\n"
        "return { run, Kept, two: module0.two };\n})();\n"
        "return module1;\n})()"
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"a": "import { b } from './b.js';\n", "b": "import { a } from './a.js';\n"}, "imports itself"),
        ({"a": "export default 3;\n"}, "export default 3;"),
        ({"a": "import * as b from './b.js';\n", "b": ""}, "import \\* as b"),
        ({"a": "import { c as d } from './b.js';\n", "b": "export const c = 1;\n"}, "import { c as d }"),
        ({"a": "const b = () => import(address);\n"}, "import\\("),
    ],
    ids=["circle", "default", "namespace", "renamed", "late"],
)
def test_bundled__what_it_does_not_know__is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: dict[str, str], said: str
) -> None:
    _folder(tmp_path, monkeypatch, **texts)
    with pytest.raises(ValueError, match=said):
        bundled("a.js")
