"""A static server that sends as over a slow connection: one token bucket for all, and a delay before each answer."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import unquote, urlsplit

from tools.devkit.server import MIME_TYPES

PIECE = 16384
# What content delivery networks compress, at the level that they have for files.
COMPRESSED = (".js", ".mjs", ".wasm", ".json", ".html")
PACK = "process.stdout.write(zlib.brotliCompressSync(fs.readFileSync(process.argv[1]), {params: {1: 9}}))"
"""Brotli at level 9, by Node.js."""


@dataclass(frozen=True)
class Network:
    """`mbits` per second from the server to the browser, and `delay_ms` from a request to its answer."""

    name: str
    mbits: float
    delay_ms: float


class SlowServer:
    """`with SlowServer(mounts, network) as server: server.url`. `sent` and `requests` count answers' bodies.

    mounts: folders by URL prefix; the longest that fits decides. network: None sends as fast as it can.
    """

    _packed: ClassVar[dict[Path, bytes]] = {}
    """Files in Brotli, made at their first request to any server."""

    def __init__(self, mounts: Mapping[str, Path], network: Network | None) -> None:
        self.mounts, self.network = mounts, network
        self.sent = self.requests = 0
        self._free = 0.0
        self._loop = asyncio.new_event_loop()
        ready: Future[int] = Future()
        threading.Thread(target=self._serve, args=(ready,), daemon=True).start()
        self.url = f"http://127.0.0.1:{ready.result()}/"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self, ready: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connection, "127.0.0.1", 0))
        ready.set_result(server.sockets[0].getsockname()[1])
        self._loop.run_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                method, target, _ = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                await self._answer(writer, method, unquote(urlsplit(target).path))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the browser has left
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, method: str, path: str) -> None:
        if self.network:
            await asyncio.sleep(self.network.delay_ms / 1000)
        file = self._file(path)
        body = self._body(file) if file else b""
        self.requests += 1
        header = ["HTTP/1.1 200 OK" if file else "HTTP/1.1 404 Not Found", f"Content-Length: {len(body)}"]
        header += [f"Content-Type: {MIME_TYPES.get(Path(path).suffix, 'application/octet-stream')}"]
        header += ["Cache-Control: max-age=3600"] + ["Content-Encoding: br"] * bool(file and file in self._packed)
        writer.write(("\r\n".join(header) + "\r\n\r\n").encode())
        for start in range(0, 0 if method == "HEAD" else len(body), PIECE):
            piece = body[start : start + PIECE]
            await self._pace(len(piece))
            writer.write(piece)
            self.sent += len(piece)
            await writer.drain()
        await writer.drain()

    async def _pace(self, size: int) -> None:
        """Wait until the connection that all share has sent so many bytes more."""
        if self.network:
            now = self._loop.time()
            self._free = max(self._free, now) + size * 8 / self.network.mbits / 1e6
            await asyncio.sleep(self._free - now)

    def _file(self, path: str) -> Path | None:
        prefix = max((prefix for prefix in self.mounts if path.startswith(prefix)), key=len)
        root = self.mounts[prefix].resolve()
        found = (root / path.removeprefix(prefix)).resolve()
        return found if found.is_relative_to(root) and found.is_file() else None

    def _body(self, file: Path) -> bytes:
        if file.suffix in COMPRESSED and file not in self._packed:
            self._packed[file] = subprocess.run(["node", "-e", PACK, file], check=True, capture_output=True).stdout
        return self._packed.get(file) or file.read_bytes()
