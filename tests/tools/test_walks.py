"""The code of docs/contributing/ runs as it stands there: modules are made of it, and its native tests called."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tools.devkit.shell import ROOT

WALKS = ROOT / "docs" / "contributing"
RUN = """
import importlib, sys, types
from tests.passes.support import apply, cleaned, graph_of, node

def module(path, code):
    name = path.removesuffix(".py").replace("/", ".")
    made = types.ModuleType(name)
    sys.modules[name] = made
    exec(compile(code, path, "exec"), made.__dict__)
    package, _, last = name.rpartition(".")
    setattr(importlib.import_module(package), last, made)
    return made

def tests(names):
    found = [value for name, value in names.items() if name.startswith("test_")]
    assert found
    for test in found:
        test()

def fragment(code, made):
    names = globals() | {made.__name__.rpartition(".")[2]: made}
    exec(code, names)
    tests(names)
"""


def blocks(page: str) -> list[tuple[str, str]]:
    """(path in the first line, or '', and code) of each Python block."""
    found = re.findall(r"```python\n(?:# (\S+\.py)\n)?(.*?)```", (WALKS / page).read_text(), re.S)
    return [(path, code) for path, code in found]


@pytest.mark.parametrize("page", ["operator.md", "pass.md"])
def test_walk__its_code__runs(page: str) -> None:
    lines = [RUN]
    for path, code in blocks(page):
        if path.startswith("pyruntime/"):
            lines.append(f"made = module({path!r}, {code!r})")
        elif path.startswith("tests/"):
            lines.append(f"tests(module({path!r}, {code!r}).__dict__)")
        elif not path and "def test_" in code:
            lines.append(f"fragment({code!r}, made)")
    assert len(lines) > 2
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
