"""Wheels as dictionaries of files, and files as one byte stream, for a snapshot."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

Files = dict[str, bytes]


def read_wheel(wheel: Path) -> Files:
    return read_zip(wheel.read_bytes())


def read_zip(content: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}


def bundle(files: Mapping[str, bytes], now: int | None = None) -> bytes:
    """Return one line of JSON, `[[path, bytes], ...]`, followed by the contents of the first `now` files."""
    head = json.dumps([[path, len(data)] for path, data in files.items()], separators=(",", ":"))
    return head.encode() + b"\n" + b"".join(list(files.values())[:now])
