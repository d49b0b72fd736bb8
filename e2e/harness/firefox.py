"""A headless Firefox with WebGPU, whose pages can only reach this machine."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.harness.bidi import Session

__all__ = ["PREFERENCES", "Firefox", "launch"]

PREFERENCES: dict[str, bool | int | str] = {
    "dom.webgpu.enabled": True,
    "dom.webgpu.workers.enabled": True,
    "gfx.webgpu.force-enabled": True,
    "gfx.webgpu.ignore-blocklist": True,  # software adapters are on it
    # Requests to other hosts go to a proxy that does not exist.
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "network.proxy.no_proxies_on": "127.0.0.1",
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
    "remote.active-protocols": 1,  # only WebDriver BiDi
}

_LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
_START_S = 60


@contextmanager
def launch(executable: Path, profile: Path, **preferences: bool | int | str) -> Iterator[Session]:
    """Start a Firefox and yield its session; Firefox ends with the session.

    Args:
        profile: an empty folder.
        preferences: changes to PREFERENCES, with underscores for dots.
    """
    chosen = PREFERENCES | {name.replace("_", "."): value for name, value in preferences.items()}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in chosen.items()]
    (profile / "user.js").write_text("".join(lines))
    process = subprocess.Popen(
        [executable, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port=0", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(profile), "MOZ_CRASHREPORTER_DISABLE": "1"},
    )
    try:
        with Session(f"{_address(process)}/session") as session:
            yield session
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Firefox:
    """The only page of a session, with Playwright's interface of browsers and pages."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def new_page(self) -> Firefox:
        """Return the page."""
        return self

    def goto(self, url: str) -> None:
        """See `Session.goto`."""
        self._session.goto(url)

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """Call a JavaScript function with the argument; return its result, as JSON."""
        return self._session.evaluate(f"return await ({function})(given);", given=argument)

    def close(self) -> None:
        """Load a blank page."""
        self._session.goto("about:blank")


def _address(process: subprocess.Popen[str]) -> str:
    """Read the address from Firefox's output; a separate thread drains the output, so that Firefox never blocks."""
    found: queue.Queue[str] = queue.Queue()
    said: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if match := _LISTENING.search(line):
                found.put(match[1])

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return found.get(timeout=0.2)
        except queue.Empty:
            continue
    raise RuntimeError("Firefox did not start:\n" + "".join(said[-20:]))
