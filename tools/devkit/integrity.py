"""`integrity.json`: the hash of every file of the site, in the format of `integrity` attributes and import maps."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

NAME = "integrity.json"


def digest(path: Path) -> str:
    """Return a file's Subresource Integrity hash, `sha384-...`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha384")
    return f"sha384-{base64.b64encode(found.digest()).decode()}"


def write_integrity(folder: Path) -> None:
    """Write the hashes of all files below `folder` to its `integrity.json`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    hashes = {path.relative_to(folder).as_posix(): digest(path) for path in files}
    (folder / NAME).write_text(json.dumps(hashes, indent=1) + "\n")
