"""WebDriver BiDi over a WebSocket, for browsers that Playwright does not drive.

Sources: W3C WebDriver BiDi; RFC 6455 (WebSocket).
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from itertools import count
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

__all__ = ["BidiError", "Session"]

_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA


class BidiError(Exception):
    """The browser refused a command, or the page's JavaScript threw."""


class _WebSocket:
    """A synchronous WebSocket client for text messages."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout_s)
        self._received = b""
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._socket.sendall(request.encode())
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, self._received = self._received.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise BidiError(f"{url} is no WebSocket: {head.decode(errors='replace')}")

    def _more(self) -> None:
        chunk = self._socket.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the browser closed the connection")
        self._received += chunk

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._more()
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        self._socket.sendall(head + mask + masked)

    def send(self, text: str) -> None:
        self._send(_TEXT, text.encode())

    def receive(self) -> str:
        """Return the next complete message."""
        message = b""
        while True:
            first, second = self._take(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self._take(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._take(8))
            payload = self._take(size)
            match first & 0xF:
                case opcode if opcode == _PING:
                    self._send(_PONG, payload)
                    continue
                case opcode if opcode == _CLOSE:
                    raise ConnectionError(f"the browser closed the connection: {payload[2:].decode(errors='replace')}")
            message += payload
            if first & 0x80:
                return message.decode()

    def close(self) -> None:
        self._socket.close()


class Session:
    """A session with one page. `complaints` has the errors and warnings of the page's console.

    Args:
        url: the browser's BiDi endpoint, `ws://HOST:PORT/session`.
        timeout_s: time limit for each response.
    """

    def __init__(self, url: str, timeout_s: float = 120) -> None:
        self.complaints: list[str] = []
        self._numbers = count(1)
        self._connection = _WebSocket(url, timeout_s)
        self.command("session.new", capabilities={})
        self.command("session.subscribe", events=["log.entryAdded"])
        self._page = self.command("browsingContext.getTree")["contexts"][0]["context"]

    def command(self, method: str, **params: Any) -> Any:
        """Send a command; return its result.

        Raises:
            BidiError: the browser responds with an error.
        """
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._connection.receive())
            if message.get("method") == "log.entryAdded":
                self._note(message["params"])
            if message.get("id") != number:
                continue
            if message["type"] == "error":
                raise BidiError(f"{method}: {message['error']}: {message['message']}")
            return message["result"]

    def _note(self, entry: dict[str, Any]) -> None:
        if entry["level"] in ("error", "warn"):
            self.complaints.append(f"{entry['level']}: {entry['text']}")

    def goto(self, url: str) -> None:
        """Load a page and wait for its `load` event."""
        self.command("browsingContext.navigate", context=self._page, url=url, wait="complete")

    def evaluate(self, body: str, **variables: Any) -> Any:
        """Run an async function with this body in the page; return its result, as JSON.

        Raises:
            BidiError: the function throws.
        """
        given = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in variables.items())
        expression = f"(async () => {{ {given} {body} }})().then((value) => JSON.stringify(value ?? null))"
        target = {"context": self._page}
        answer = self.command("script.evaluate", expression=expression, target=target, awaitPromise=True)
        if answer["type"] == "exception":
            raise BidiError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
