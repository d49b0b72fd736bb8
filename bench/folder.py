"""The pages of the benchmark as a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import cases

PAGES = Path(__file__).parent / "page"


def write_pages(folder: Path, models: Sequence[cases.Case], urls: Mapping[str, str]) -> None:
    """Copy the pages into `folder`, with models.json (names, URLs below the pages, inputs) and the smallest model."""
    shutil.copytree(PAGES, folder, dirs_exist_ok=True)
    listed = [{"name": case.name, "url": urls[case.name], "inputs": case.inputs} for case in models]
    (folder / "models.json").write_text(json.dumps(listed, indent=1))
    (folder / "smallest.onnx").write_bytes(cases.smallest())
