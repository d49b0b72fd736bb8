"""Visits of one browser profile to one origin, for data that a page keeps between visits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Route

from e2e.harness.script import Script
from tools.devkit.server import Server

__all__ = ["PYTHON", "Visits"]

PYTHON = ("**/pyodide/**", "**/*.whl", "**/worker.js", "**/host.js", "**/snapshot/**")
"""What Python is started from."""

SAID = """
const said = [];
const info = console.info;
console.info = (text) => { said.push(String(text)); info(text); };
"""


class Visits:
    """Visits of one browser profile to one origin, each in a new page."""

    def __init__(self, script: Script, server: Server, folder: Path) -> None:
        self.script, self.server, self.folder = script, server, folder

    @property
    def url(self) -> str:
        """URL of the site."""
        return self.server.url

    def __call__(self, body: str, **arguments: Any) -> Any:
        """Run JavaScript in a new page; `said` has the console messages."""
        self.script.page.goto(f"{self.url}e2e/blank.html")
        return self.script(SAID + body, **arguments)

    def has_python(self) -> bool:
        """Return whether the last visit has started Python in a worker."""
        return any(w.url.endswith("/worker.js") for w in self.script.page.workers)

    def without_pyodide(self) -> None:
        """Prevent Python from starting from now on."""
        for pattern in PYTHON:
            self.script.page.route(pattern, _aborted)


def _aborted(route: Route) -> None:
    route.abort()
