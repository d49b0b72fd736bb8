"""Runs Python source in the browser for a test."""

from __future__ import annotations

import textwrap
from typing import Any

from playwright.sync_api import Page

from e2e.harness import codec
from e2e.harness.browser import Guard


class BrowserPythonError(Exception):
    """Python in the browser raised; the message is its traceback."""


class BrowserPython:
    """Callable: `python_in_browser(source, **variables)` returns the value of the source's last expression.

    The source runs as a separate module with top-level `await`, in one worker for the whole test session, so imports
    persist. Values may be any that e2e/harness/codec.py encodes, including NumPy arrays. Python starts with or without
    the memory `snapshot`; `alone`: as in a notebook, the page has no JavaScript of this project; `target`: the adapter
    has the limits that e2e/pages/limited.js reads.
    """

    def __init__(
        self, page: Page, guard: Guard, base_url: str, *, snapshot: bool = False, alone: bool = False, target: str = ""
    ) -> None:
        self.page = page
        self.guard = guard
        query = "?snapshot" if snapshot else "?alone" if alone else f"?target={target}" if target else ""
        page.goto(base_url + "e2e/python.html" + query)

    def __call__(self, source: str, **variables: Any) -> Any:
        arguments = [textwrap.dedent(source), codec.encode(variables)]
        answer = self.page.evaluate("([source, data]) => runPython(source, data)", arguments)
        outcome = codec.decode(answer)
        if "error" in outcome:
            raise BrowserPythonError(outcome["error"])
        return outcome["value"]
