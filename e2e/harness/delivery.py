"""A server that delays files, breaks connections, supports ranges or not, compresses, and records all requests."""

from __future__ import annotations

import gzip
import http.server
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.devkit.server import Handler, Server

__all__ = ["Answer", "Delivery", "Scripted", "Served"]

_PIECE = 1 << 18

PAUSE_S = 0.1
"""Between what is sent and the end of the connection: a page that hears of the end drops what it has not read."""


@dataclass
class Served:
    """A file and how it is sent.

    Attributes:
        ranges: whether range requests are answered with 206.
        etag: the ETag; None: neither ETag nor Last-Modified. `changed` is the ETag from the second request on, `later`
            from the fourth.
        compressed: sent with Content-Encoding: gzip. chunked: without Content-Length.
        breaks: for each request in order, the bytes after which the connection breaks; None: it does not.
        gate: bytes after which sending waits until `opened` is set.
        asked: the Range header of each request, or ''. sent: bytes of each response passed to the connection.
        left: set when the client disconnected before the end, also while the rest is held back.
        parts: requests for a range with an end; they do not break, and are in no other list.
        held: number of these that do not wait; the others wait until `released` is set.
        other: content of these responses instead of `data`, with `other_etag` (None: without one).
    """

    data: bytes
    ranges: bool = True
    etag: str | None = '"one"'
    changed: str | None = None
    later: str | None = None
    compressed: bool = False
    chunked: bool = False
    breaks: list[int | None] = field(default_factory=list)
    gate: int | None = None
    status: int = 200
    opened: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    held: int | None = None
    released: threading.Event = field(default_factory=threading.Event)
    other: bytes | None = None
    other_etag: str | None = None

    def comes_to(self, *sent: int) -> bool:
        """Wait up to 30 s until this many bytes of each response were sent; return whether they were."""
        deadline = time.monotonic() + 30
        while self.sent != [*sent] and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.sent == [*sent]


@dataclass(frozen=True)
class Answer:
    """A response; `headers` exclude Content-Length, `cut` is the bytes after which the connection breaks."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None


@dataclass
class Scripted:
    """A file whose responses depend on the headers of each request.

    Attributes:
        holds: a response that is cut keeps the connection open until the client disconnects.
        cut: set when that part of a response was sent.
    """

    answer: Callable[[Message], Answer]
    holds: bool = False
    cut: threading.Event = field(default_factory=threading.Event)


class _Handler(Handler):
    def __init__(
        self, *args: object, served: Mapping[str, Served], scripted: Mapping[str, Scripted], **options: Any
    ) -> None:
        self.served, self.scripted = served, scripted
        super().__init__(*args, **options)

    def _follow(self, file: Scripted) -> None:
        answer = file.answer(self.headers)
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        super(http.server.SimpleHTTPRequestHandler, self).end_headers()  # without other files' Cache-Control
        if self.command == "HEAD":
            return
        self.wfile.write(answer.body[: answer.cut])
        if answer.cut is not None:
            self.wfile.flush()
            file.cut.set()
            if file.holds:
                self.connection.settimeout(30)
                with suppress(OSError):
                    self.connection.recv(1)
            else:
                time.sleep(PAUSE_S)  # a slow server, on purpose
            self.close_connection = True
            self.connection.close()

    def do_GET(self) -> None:  # noqa: N802 (the name that http.server calls)
        if scripted := self.scripted.get(urlsplit(self.path).path):
            self._follow(scripted)
            return
        file = self.served.get(urlsplit(self.path).path)
        if file is None:
            super().do_GET()
        else:
            self._deliver(file)

    def do_HEAD(self) -> None:  # noqa: N802 (the name that http.server calls)
        if scripted := self.scripted.get(urlsplit(self.path).path):
            self._follow(scripted)
            return
        file = self.served.get(urlsplit(self.path).path)
        if file is None:
            super().do_HEAD()
            return
        self.send_response(file.status)
        self.send_header("Content-Length", str(len(file.data)))
        self.end_headers()

    def _part(self, file: Served, wanted: str) -> None:
        file.parts.append(wanted)
        if file.held is not None and len(file.parts) > file.held:
            file.released.wait(120)
        begin, end = map(int, wanted.removeprefix("bytes=").split("-"))
        data, etag = (file.data, file.etag) if file.other is None else (file.other, file.other_etag)
        body = data[begin : end + 1]
        self.send_response(206)
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{len(file.data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _deliver(self, file: Served) -> None:
        range_ = self.headers.get("Range", "")
        if file.ranges and not file.compressed and re.fullmatch(r"bytes=\d+-\d+", range_):
            self._part(file, range_)
            return
        number = len(file.asked)
        file.asked.append(self.headers.get("Range", ""))
        file.sent.append(0)
        body = gzip.compress(file.data, 1) if file.compressed else file.data
        wanted = re.fullmatch(r"bytes=(\d+)-", file.asked[-1]) if file.ranges and not file.compressed else None
        begin, end = int(wanted[1]) if wanted else 0, len(body)
        if wanted and begin >= len(body):
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(file.status if file.status != 200 else 206 if wanted else 200)
        self.send_header("Content-Type", "application/octet-stream")
        etag = file.changed if file.changed and number else file.etag
        etag = file.later if file.later and number >= 3 else etag
        if etag:
            self.send_header("ETag", etag)
        if wanted:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(body)}")
        if file.compressed:
            self.send_header("Content-Encoding", "gzip")
        if file.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        stop = file.breaks[number] if number < len(file.breaks) else None
        try:
            self._send(file, body[begin:end], begin, stop)
        except ConnectionError:
            file.left.set()
            raise

    def _hold(self, file: Served) -> None:
        """Wait until the file is opened.

        Raises:
            ConnectionAbortedError: the client has left.
        """
        deadline = time.monotonic() + 120
        while not file.opened.wait(0.02) and time.monotonic() < deadline:
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionAbortedError("the client has left")
        file.opened.set()

    def _send(self, file: Served, body: bytes, begin: int, stop: int | None) -> None:
        at = 0
        while at < len(body):
            size = min(_PIECE, len(body) - at)
            if stop is not None:
                size = min(size, stop - at)
            if file.gate is not None and begin + at + size > file.gate and not file.opened.is_set():
                size = max(0, file.gate - begin - at)
            if stop is not None and at >= stop:
                self.wfile.flush()
                time.sleep(PAUSE_S)  # a slow server, on purpose
                self.close_connection = True
                self.connection.close()
                return
            if size == 0:
                self._hold(file)
                continue
            piece = body[at : at + size]
            file.sent[-1] += size  # before sending: a client may check after the last byte
            self.wfile.write(b"%x\r\n%s\r\n" % (size, piece) if file.chunked else piece)
            at += size
        if file.chunked:
            self.wfile.write(b"0\r\n\r\n")


class Delivery(Server):
    """Serves the built site, and `served` and `scripted`: files by the path of their URL."""

    def __init__(self, mounts: Mapping[str, Path], shared: bool = False) -> None:
        super().__init__(mounts, shared=shared)
        self.served: dict[str, Served] = {}
        self.scripted: dict[str, Scripted] = {}
        old = self.http.RequestHandlerClass
        assert isinstance(old, partial)
        self.http.RequestHandlerClass = partial(_Handler, served=self.served, scripted=self.scripted, **old.keywords)
