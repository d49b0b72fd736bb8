"""Pyodide 314 with this project's code: it is started, saved, restored, and waits without a growing stack.

NumPy for it is on Pyodide's CDN alone, so sessions are not tested here: `PYRUNTIME_PYODIDE=314 dev.py test` does, where
the CDN answers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from e2e.harness.browser import guarded_page
from tools.devkit import fetch, pins
from tools.devkit.server import Server
from tools.devkit.site import WEB, build_wheel

NEWER = pins.PYODIDES["314"]
PREPARE = """async () => {
    const { placeLibraries } = await import('/web/snapshot/snapshot.js');
    const { compile } = await import('/web/snapshot/memory.js');
    const { fixStack } = await import('/web/worker/stack.js');
    const indexURL = `${location.origin}/pyodide/`;
    const { loadPyodide, version } = await import(`${indexURL}pyodide.mjs`);
    globalThis.fixStack = fixStack;
    globalThis.start = async (options) => {
        let ready = false;
        const placed = await placeLibraries(indexURL, compile(`${indexURL}pyodide.asm.wasm`), [],
            async () => { ready = true; }, { version });
        try {
            const pyodide = await loadPyodide({ indexURL, ...placed.options, ...options });
            if (!ready || placed.module !== pyodide._module) throw new Error('Pyodide was started past placeLibraries');
            return pyodide;
        } finally {
            placed.restore();
        }
    };
    return version;
}"""


@pytest.fixture(scope="module")
def newer(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("newer")
    (folder / "index.html").write_text("<!doctype html><title>Pyodide 314</title>")
    wheel = build_wheel(Path(sys.executable))
    mounts = {
        "/": folder,
        "/web/": WEB,
        "/pyodide/": fetch.npm_package(pins.locked(NEWER.npm)),
        "/pyruntime.whl": wheel,
    }
    with Server(mounts, policy=None) as server, guarded_page(browser, server.url) as (page, guard):
        guard.allow("favicon|404")
        page.goto(server.url)
        assert page.evaluate(PREPARE) == NEWER.version
        yield page


def test_memory__saved_and_restored__has_what_python_had(newer: Page) -> None:
    script = """async () => {
        const first = await start({ _makeSnapshot: true });
        first.runPython('import json; kept = json.dumps([1, 2])');
        const second = await start({ _loadSnapshot: first.makeMemorySnapshot() });
        return second.runPython('kept');
    }"""
    assert newer.evaluate(script) == "[1, 2]"


def test_stack__after_many_waits__is_where_it_was(newer: Page) -> None:
    script = """async () => {
        const pyodide = await start({});
        fixStack(pyodide._module);
        const before = pyodide._module.stackSave();
        await pyodide.runPythonAsync('import asyncio\\nfor _ in range(1000): await asyncio.sleep(0)');
        await new Promise((resolve) => { setTimeout(resolve); });
        return before - pyodide._module.stackSave();
    }"""
    assert newer.evaluate(script) == 0


def test_package__compiled_by_its_python__gives_no_warning(newer: Page) -> None:
    script = """async () => {
        const pyodide = await start({});
        pyodide.unpackArchive(await (await fetch('/pyruntime.whl')).arrayBuffer(), 'wheel', { extractDir: '/package' });
        return pyodide.runPython(`
import pathlib, sys, warnings
warnings.simplefilter("error")
files = sorted(pathlib.Path("/package/pyruntime").rglob("*.py"))
for file in files:
    compile(file.read_text(), str(file), "exec")
f"{sys.version_info.major}.{sys.version_info.minor}", len(files)
`).toJs();
    }"""
    python, count = newer.evaluate(script)
    assert python == NEWER.python
    assert count > 300
