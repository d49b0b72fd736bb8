"""WebKitGTK's MiniBrowser, driven by WebDriver on a virtual display. It has no WebGPU, so models run on NumPy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["NEEDED", "WebKit", "launch"]

NEEDED = ("WebKitWebDriver", "Xvfb")
"""Programs: Debian's packages webkit2gtk-driver and xvfb."""

_START_S, _SCRIPT_S = 30, 120


class WebKit:
    """A session of WebDriver."""

    def __init__(self, url: str) -> None:
        self._url = url
        options = {"browserName": "MiniBrowser", "timeouts": {"script": _SCRIPT_S * 1000}}
        made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self.version = made["capabilities"]["browserVersion"]
        self._session = f"/session/{made['sessionId']}"

    def goto(self, url: str) -> None:
        """Load a page."""
        self._send("POST", f"{self._session}/url", {"url": url})

    def evaluate(self, body: str, *arguments: Any) -> Any:
        """Run an async function with this body; return its result. `given` has the arguments."""
        script = f"""const given = [...arguments].slice(0, -1);
            const done = arguments[arguments.length - 1];
            const work = async () => {{ {body} }};
            work().then((value) => done({{ value }}), (error) => done({{ error: `${{error}}` }}));"""
        answer = self._send("POST", f"{self._session}/execute/async", {"script": script, "args": [*arguments]})
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    def close(self) -> None:
        """End the browser."""
        self._send("DELETE", self._session)

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_SCRIPT_S + 30) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def _running(*command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **variables}
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def launch() -> Iterator[WebKit]:
    """Yield a browser, which is ended together with its display."""
    driver, server = map(shutil.which, NEEDED)
    assert driver and server
    with ExitStack() as stack:
        display = stack.enter_context(_running(server, "-displayfd", "1", "-nolisten", "tcp"))
        assert display.stdout
        number, port = display.stdout.readline().strip(), _free_port()
        # WebKit's sandbox needs user namespaces, which containers lack.
        variables = {"DISPLAY": f":{number}", "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1", "GDK_BACKEND": "x11"}
        stack.enter_context(_running(driver, f"--port={port}", **variables))
        browser = _connected(port)
        stack.callback(browser.close)
        yield browser


def _connected(port: int) -> WebKit:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            return WebKit(f"http://127.0.0.1:{port}")
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
