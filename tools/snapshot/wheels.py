"""Wheels as dictionaries of files: read, put together for a snapshot, written again with bytecode."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tools.devkit.pyodide import record_digest
from tools.snapshot.canonical import canonical

Files = dict[str, bytes]

DATE = (2020, 2, 2, 0, 0, 0)  # the same files give the same bytes


def read_wheel(wheel: Path) -> Files:
    return read_zip(wheel.read_bytes())


def read_zip(content: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}


def read_bytecode(archive: bytes) -> Files:
    """The .pyc files of a ZIP file, as their sources have them: nothing of the process that compiled them."""
    return {name: canonical(data) for name, data in read_zip(archive).items()}


def bundle(files: Mapping[str, bytes], now: int | None = None) -> bytes:
    """One line of JSON, `[[path, bytes], ...]`, then the files back to back, the first `now` of them."""
    head = json.dumps([[path, len(data)] for path, data in files.items()], separators=(",", ":"))
    return head.encode() + b"\n" + b"".join(list(files.values())[:now])


def source_of(compiled: str) -> str:
    """The source of a .pyc by its path, as PEP 3147 has it: `a/__pycache__/b.cpython-313.pyc` is of `a/b.py`."""
    folder, _, name = compiled.rpartition("/")
    return f"{folder.removesuffix('__pycache__')}{name.split('.', 1)[0]}.py"


def with_bytecode(wheel: Path, compiled: Mapping[str, bytes], out: Path) -> Path:
    """Write `wheel` into the folder `out` with those files of `compiled` whose sources it has, and a RECORD of all.

    `compiled` has .pyc files by their paths below site-packages. Without any for this wheel it is copied as it is.
    """
    files = read_wheel(wheel)
    added = {name: data for name, data in sorted(compiled.items()) if source_of(name) in files}
    target = out / wheel.name
    if not added:
        target.write_bytes(wheel.read_bytes())
        return target
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    rows = [row for row in csv.reader(io.StringIO(files[record].decode())) if row and row[0] not in added]
    own = next((index for index, row in enumerate(rows) if row[0] == record), len(rows))
    rows[own:own] = [[name, record_digest(data), str(len(data))] for name, data in added.items()]
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in {**files, **added, record: lines.getvalue().encode()}.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED, 9)
    return target
