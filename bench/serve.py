#!/usr/bin/env python3
"""Serve a packed benchmark (see pack.py), open pages of it in a browser, keep what they POST.

    python3 serve.py FOLDER --browser CHROMIUM [--out DIR] [--clock] NAME=PAGE@SECONDS ... [-- FLAG ...]

needs Python 3.11+ alone. Each PAGE opens in a new browser with a new profile; what it POSTs to /result or below becomes
DIR/NAME.json. A page that has not answered after SECONDS is left. FLAGs are more of the browser's flags. For
page/ready.js there are two addresses in addition to the folder's files, which are served with ranges:

    /paced/RATE/PATH   the file PATH, at RATE megabytes (10^6 bytes) a second that all such share, for no cache
    /sent/PATH         when its last piece was given to the network, in milliseconds since 1970 as a number

`--clock` prints what clock an NVIDIA GPU had meanwhile, in MHz, by `nvidia-smi`.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--enable-unsafe-webgpu", "--ignore-gpu-blocklist"),
]
PIECE = 1 << 18


class Server(ThreadingHTTPServer):
    """The folder; `posted` is what a page sent since it was cleared."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        self.folder = folder.resolve()
        self.sent: dict[str, float] = {}
        self._free, self._line = 0.0, threading.Lock()
        self.posted: bytes | None = None
        self.arrived = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def pace(self, seconds: float) -> None:
        """Wait for the line, and have it for so long."""
        if not seconds:
            return
        with self._line:
            self._free = max(self._free, time.perf_counter()) + seconds
            wait = self._free - time.perf_counter()
        time.sleep(max(0.0, wait))

    def handle_error(self, request: object, client_address: object) -> None:
        """Browsers drop connections: told only where it is something else."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A short body is sent right after its header, as other servers do: by Nagle's algorithm it would wait for 40 ms.
    disable_nagle_algorithm = True
    server: Server
    extensions_map = {  # noqa: RUF012 - as its base class has it
        **SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
        ".mjs": "text/javascript",
    }

    def do_GET(self) -> None:
        match urllib.parse.urlsplit(self.path).path.split("/", 3)[1:]:
            case ["paced", rate, path]:
                self._file(path, float(rate) * 1e6)
            case ["sent", *path]:
                self._answer(json.dumps(self.server.sent.get("/".join(path))).encode())
            case path:
                self._file("/".join(path), math.inf)

    def do_POST(self) -> None:
        self.server.posted = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")
        self.server.arrived.set()

    def _answer(self, body: bytes) -> None:
        self._head(200, len(body), "text/plain", {"Cache-Control": "no-store"})
        self.wfile.write(body)

    def _head(self, status: int, length: int, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), "Content-Type": kind, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _file(self, path: str, rate: float) -> None:
        """The file or the range of it that is asked for, as servers of static files do it."""
        file = (self.server.folder / urllib.parse.unquote(path)).resolve()
        if not file.is_relative_to(self.server.folder) or not file.is_file():
            self.send_error(404)
            return
        status = file.stat()
        begin, end = 0, status.st_size
        more = {"Accept-Ranges": "bytes", "ETag": f'"{status.st_mtime_ns:x}-{end:x}"'}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            begin, end = int(asked[1]), min(end, int(asked[2] or end - 1) + 1)
            more["Content-Range"] = f"bytes {begin}-{end - 1}/{status.st_size}"
        more["Cache-Control"] = "max-age=3600" if math.isinf(rate) else "no-store"
        self._head(206 if asked else 200, end - begin, self.guess_type(str(file)), more)
        with file.open("rb") as source:
            source.seek(begin)
            while piece := source.read(min(PIECE, end - begin)):
                begin += len(piece)
                self.server.pace(len(piece) / rate)
                if begin == status.st_size:  # before the client can ask for it
                    self.server.sent[path] = time.time() * 1000
                self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Nothing: the pages tell what matters."""


@contextmanager
def clock_of_gpu(wanted: bool) -> Iterator[list[int]]:
    """Yield a list that holds, after the block, the GPU's clock in MHz, read every 100 ms while the block ran."""
    seen: list[int] = []
    if not wanted:
        yield seen
        return
    command = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-lms", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tool:
        try:
            yield seen
        finally:
            tool.terminate()
            output = tool.communicate()[0]
            seen += [int(line) for line in output.split() if line.isdigit()]


def visit(server: Server, browser: str, page: str, seconds: float, flags: list[str]) -> bytes | None:
    """What the page POSTed, or None where nothing came in time."""
    server.posted = None
    server.arrived.clear()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, *FLAGS, *flags, f"--user-data-dir={profile}", f"{server.url}/{page}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            server.arrived.wait(seconds)
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
    return server.posted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="+", metavar="NAME=PAGE@SECONDS")
    parser.add_argument("--browser", required=True)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--clock", action="store_true")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    args = parser.parse_intermixed_args(words[:end])
    args.out.mkdir(parents=True, exist_ok=True)
    server = Server(args.folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for order in args.pages:
        name, _, rest = order.partition("=")
        page, _, seconds = rest.rpartition("@")
        begin = time.perf_counter()
        with clock_of_gpu(args.clock) as clock:
            posted = visit(server, args.browser, page, float(seconds), words[end + 1 :])
        said = "no answer" if posted is None else f"{len(posted)} bytes"
        print(f"{name}: {said} in {time.perf_counter() - begin:.1f} s", *clock[:: max(1, len(clock) // 40)], flush=True)
        if posted is not None:
            (args.out / f"{name}.json").write_bytes(posted)


if __name__ == "__main__":
    main()
