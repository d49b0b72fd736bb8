"""External tensor data, read only from where the caller allows.

A model names an external file by a relative path. `ExternalFiles` looks it up among bytes that the caller passed.
`ExternalDirectory`, for file systems, opens it in the model's directory and refuses absolute paths, `..`, URLs,
symbolic links that leave the directory, and hard links. `relative_address` returns the URL for a model that came from a
URL; `extents.py` lists the files that a model needs.

Source: ONNX External Data; CVE-2022-25882, CVE-2024-27318, CVE-2024-5187, CVE-2025-51480.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pyruntime.errors import Fail, InvalidProtobuf, NoSuchFile
from pyruntime.onnx.formats.source import ByteSource, MemorySource, Span, map_descriptor, open_descriptor

__all__ = [
    "ExternalData",
    "ExternalDirectory",
    "ExternalFiles",
    "count_of",
    "locate",
    "plain_location",
    "relative_address",
]


class ExternalData(Protocol):
    """Resolves the external files of a model."""

    def resolve(self, location: str) -> ByteSource:
        """Return the bytes of the file that the model calls `location`.

        Raises:
            NoSuchFile: there is no file of that name.
            Fail: the location is refused.
        """
        ...


class ExternalFiles:
    """Files in memory, by the model's names for them (without leading `./`); others are resolved by `otherwise`."""

    def __init__(self, files: Mapping[str, Any], otherwise: ExternalData | None = None) -> None:
        self._files = {plain_location(name): data for name, data in files.items()}
        self._otherwise = otherwise

    def resolve(self, location: str) -> ByteSource:
        """See `ExternalData.resolve`. Also raises InvalidArgument: the given file is not bytes-like."""
        data = self._files.get(plain_location(location))
        if data is None and self._otherwise is not None:
            return self._otherwise.resolve(location)
        if data is None:
            given = ", ".join(map(repr, sorted(self._files))) or "none"
            raise NoSuchFile(f"the model keeps weights in {location!r}, which was not given (given: {given})")
        return data if isinstance(data, ByteSource) else MemorySource(data)


class ExternalDirectory:
    """Files in `directory`; if `model` is a symbolic link, also in the directory of its target."""

    def __init__(self, directory: str | os.PathLike[str], model: str | os.PathLike[str] | None = None) -> None:
        self._directory = os.path.realpath(directory)
        self._roots = {self._directory}
        if model is not None:
            self._roots.add(os.path.dirname(os.path.realpath(model)))
        self._open: dict[str, ByteSource] = {}

    @staticmethod
    def of(path: str | os.PathLike[str]) -> ExternalDirectory:
        """Return the directory `path`, or the directory of the model at `path`."""
        if os.path.isdir(path):
            return ExternalDirectory(path)
        return ExternalDirectory(os.path.dirname(os.path.abspath(path)), path)

    def resolve(self, location: str) -> ByteSource:
        """See `ExternalData.resolve`."""
        _refuse_escape(location)
        path = os.path.realpath(os.path.join(self._directory, *location.split("/")))
        if not any(Path(path).is_relative_to(root) for root in self._roots):
            raise Fail(
                f"the model keeps weights in {location!r}, a link that leaves {self._directory!r}; copy the file there"
            )
        if path not in self._open:
            try:
                descriptor = open_descriptor(path, getattr(os, "O_NOFOLLOW", 0))
            except InvalidProtobuf as error:
                raise Fail(f"the model keeps weights in {location!r}: {error}") from error
            if os.fstat(descriptor).st_nlink > 1:
                os.close(descriptor)
                raise Fail(
                    f"the model keeps weights in {location!r}, a hard link to a file that may be elsewhere; copy it"
                )
            self._open[path] = map_descriptor(descriptor)
        return self._open[path]


def plain_location(name: str) -> str:
    """Return a location without a leading `./`."""
    return name[2:] if name.startswith("./") else name


def _refuse_escape(location: str) -> None:
    parts = location.split("/")
    if (
        location.startswith("/")
        or ".." in parts
        or "\\" in location
        or "\0" in location
        or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", location)
    ):
        raise Fail(
            f"the model keeps weights in {location!r}; only a relative path inside the model's directory is accepted"
        )


def count_of(entries: Mapping[str, str], key: str, default: int, label: str) -> int:
    """Return the byte count of `key` in `entries`. Raises Fail where the entry is not a byte count."""
    text = entries.get(key, "").strip()
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Fail(
            f"{label}: the {key} of its external data is {text[:40]!r}, not a byte count; export the model again"
        )
    return int(text)


def locate(entries: Mapping[str, str], nbytes: int, external: ExternalData | None, label: str) -> Span:
    """Return the location of a tensor's external data: `length` bytes (default: `nbytes`) from `offset` (default: 0).

    Raises:
        NoSuchFile: the file was not given.
        Fail: there is no location, it is refused, or the span exceeds the file.
    """
    location = entries.get("location", "")
    if not location:
        raise Fail(f"{label} is stored in another file, but the model does not name it; export the model again")
    if "_ORT_MEM_ADDR_" in location:
        raise Fail(f"{label} is stored at a memory address of another process; export the model again")
    if external is None:
        raise NoSuchFile(f"{label} is stored in the file {location!r}; give its bytes along with the model")
    offset, length = count_of(entries, "offset", 0, label), count_of(entries, "length", nbytes, label)
    source = external.resolve(location)
    if offset > source.size or length > source.size - offset:
        raise Fail(
            f"{label} takes {length} bytes at {offset} of {location!r}, which has {source.size}; "
            "the file is incomplete or belongs to another model"
        )
    return Span(source, offset, length)


def relative_address(location: str) -> str:
    """Return the URL, relative to the model's, of the file that the model calls `location`.

    Raises:
        Fail: `location` is not a relative path inside the model's folder.
    """
    from urllib.parse import quote  # few models have external data, and pages fetch what is imported before

    _refuse_escape(location)
    return "/".join(quote(part, safe="") for part in location.split("/"))
