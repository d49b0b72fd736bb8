"""`dev.py notebook`: serves JupyterLite with this package, or runs every notebook headless."""

from __future__ import annotations

from tools.devkit import chromium
from tools.devkit.notebook_site import FIRST, SITE, build_notebook_site
from tools.devkit.server import Server
from tools.devkit.shell import python, run, say
from tools.devkit.venv import ensure_venv


def notebook(*, once: bool, write: bool, port: int) -> int:
    """Build the site; serve it, or run the notebooks and compare (`write`: store) their outputs."""
    ensure_venv()
    build_notebook_site(python())
    say(f"the notebook site is in {SITE}")
    if once or write:
        executable = chromium.ensure_chromium(python())
        options = ["--write"] if write else []
        return run([python(), "-m", "tools.notebooks", *options], env={chromium.VARIABLE: str(executable)})
    with Server({"/": SITE}, port=port, policy=None) as server:
        say(f"serving {server.url}lab/index.html?path={FIRST} (Ctrl+C ends)")
        server.wait()
    return 0
