"""The page's snippets do what they say, as they are copied from it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

from e2e.harness.python import BrowserPython

ROOT = Path(__file__).parents[2]


def snippet(page: Page, title: str) -> str:
    """What the button of this snippet copies."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name=f"Copy: {title}").click()
    text = str(page.evaluate("navigator.clipboard.readText()"))
    assert text == page.get_by_role("region", name=f"Code: {title}").inner_text().strip("\n")
    return text


def test_snippet__notebook__gives_probabilities(ready_page: Page, python_in_browser: BrowserPython) -> None:
    """But for micropip's line: the tests' Python has the wheel already and no micropip."""
    first, install, *rest = snippet(ready_page, "In a notebook").splitlines()
    assert first == "import micropip, numpy as np"
    wheel = install.removeprefix('await micropip.install("').removesuffix('")')
    assert ready_page.request.get(wheel).ok
    probabilities = python_in_browser("\n".join(["import numpy as np", *rest, "probabilities"]))
    assert probabilities.shape == (1, 10)
    np.testing.assert_allclose(probabilities.sum(), 1, atol=1e-5)


def test_snippet__module__gives_probabilities(ready_page: Page) -> None:
    first, *lines, last = snippet(ready_page, "In a web page").splitlines()
    assert (first, last) == ('<script type="module">', "</script>")
    # A function body cannot have static imports, and the page's policy refuses inline modules.
    imports, *rest = lines
    imports = re.sub(r'^\s*import (\{.*\}) from (".*");$', r"const \1 = await import(\2);", imports)
    body = "\n".join([imports, *rest])
    probabilities = ready_page.evaluate(f"async () => {{ {body}\n return [...probabilities.data]; }}")
    assert len(probabilities) == 10
    assert abs(sum(probabilities) - 1) < 1e-5


def test_snippet__element__can_be_drawn_on(ready_page: Page) -> None:
    code = snippet(ready_page, "As an element")
    ready_page.evaluate(
        """code => {
            const { head } = new DOMParser().parseFromString(code, 'text/html');
            const script = Object.assign(document.createElement('script'), {
                type: 'module', src: head.querySelector('script').src });
            const element = new DOMParser().parseFromString(code, 'text/html').querySelector('pyruntime-model');
            element.setAttribute('loading', 'eager');
            document.body.append(script, document.adoptNode(element));
        }""",
        code,
    )
    try:
        ready_page.locator("pyruntime-model [part=input]").wait_for()
    finally:
        ready_page.evaluate("document.querySelector('pyruntime-model').remove()")


def test_snippet__desktop__gives_probabilities(ready_page: Page) -> None:
    code = snippet(ready_page, "In Python on a desktop") + "\nprint(probabilities.shape, float(probabilities.sum()))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "models", env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    shape, total = done.stdout.rsplit(" ", 1)
    assert shape == "(1, 10)"
    assert abs(float(total) - 1) < 1e-5
