"""A static server with the MIME types and the policy that the site needs, for `serve`, `demo` and the browser tests."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from tools.devkit.site import BENCH_POLICY, CONTENT_SECURITY_POLICY, DOCS_POLICY, EXAMPLES_POLICY

MIME_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".whl": "application/zip",
    ".zip": "application/zip",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves several folders, each below a URL prefix; the longest matching prefix applies."""

    protocol_version = "HTTP/1.1"
    # Without Nagle's algorithm, which would delay a short body after its header by 40 ms.
    disable_nagle_algorithm = True
    extensions_map: dict[str, str] = {**MIME_TYPES, "": "application/octet-stream"}  # noqa: RUF012

    def __init__(
        self,
        *args: object,
        mounts: Mapping[str, Path],
        policy: str | None,
        caching: str,
        shared: bool,
    ) -> None:
        self.mounts = mounts
        self.policy = policy
        self.caching = caching
        self.shared = shared
        super().__init__(*args)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        path = unquote(urlsplit(path).path)
        prefix = max((prefix for prefix in self.mounts if path.startswith(prefix)), key=len, default=None)
        if prefix is None:
            return "/nonexistent"
        root = self.mounts[prefix].resolve()
        target = (root / path.removeprefix(prefix)).resolve()
        if not target.is_relative_to(root):
            return "/nonexistent"
        return f"{target}/" if path.endswith("/") and target.is_dir() else str(target)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", self.caching)
        if self.shared:
            self.send_header("Access-Control-Allow-Origin", "*")
        if self.policy is not None:
            path = urlsplit(self.path).path
            policy = BENCH_POLICY if path.endswith(("/bench/", "/bench/index.html")) else self.policy
            policy = DOCS_POLICY if path.startswith("/docs/") else policy
            self.send_header("Content-Security-Policy", EXAMPLES_POLICY if "/examples/" in path else policy)
        super().end_headers()

    def handle(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # a browser may leave before the end
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server:
    """Serves this machine only, in separate threads: `with Server({"/": DIST}) as server: server.url`.

    `caching` is the value of Cache-Control; by default browsers revalidate each time. `shared` lets pages of other
    origins read the files. `handler` answers the requests.
    """

    def __init__(
        self,
        mounts: Mapping[str, Path],
        *,
        port: int = 0,
        policy: str | None = CONTENT_SECURITY_POLICY,
        caching: str = "no-cache",
        shared: bool = False,
        handler: type[Handler] = Handler,
    ) -> None:
        self.mounts = dict(mounts)
        options: dict[str, Any] = {"policy": policy, "caching": caching, "shared": shared}
        answer = partial(handler, mounts=self.mounts, **options)
        try:
            self.http = http.server.ThreadingHTTPServer(("127.0.0.1", port), answer)
        except OSError:
            self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), answer)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.shutdown()
        self.http.server_close()

    def wait(self) -> None:
        """Serve until interrupted."""
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
