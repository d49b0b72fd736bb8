"""Run the notebooks of `notebooks/` in JupyterLite, headless, and compare their outputs with the stored ones.

    python3 dev.py notebook --once            # run and compare
    python3 dev.py notebook --once --write    # run and store the outputs

The committed notebooks contain their outputs, for readers who do not run them and as the exact reference of later runs.
A cell tagged `varies` has outputs that depend on the machine or on generated kernels (times, memory, WGSL); it must
have an output and no error, and its outputs are not stored.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from e2e.harness.browser import guarded_page, launch
from e2e.harness.notebook import USUAL, Notebooks
from tools.devkit.chromium import ensure_chromium
from tools.devkit.notebook_site import NOTEBOOKS, SITE
from tools.devkit.server import Server

VARIES = "varies"
Cell = dict[str, Any]


def read(path: Path) -> list[Cell]:
    cells: list[Cell] = json.loads(path.read_text("utf-8"))["cells"]
    return cells


def varies(cell: Cell) -> bool:
    return VARIES in cell["metadata"].get("tags", ())


def joined(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def outputs_of(cell: Cell) -> list[dict[str, Any]]:
    """Return a code cell's outputs in a canonical form: streams, data by MIME type, errors."""
    made: list[dict[str, Any]] = []
    for output in cell["outputs"]:
        match output["output_type"]:
            case "stream":
                if made and made[-1].get("stream") == output["name"]:
                    made[-1]["text"] += joined(output["text"])
                else:
                    made.append({"stream": output["name"], "text": joined(output["text"])})
            case "error":
                made.append({"error": output["ename"], "text": output["evalue"]})
            case _:
                made.append({kind: joined(data) for kind, data in output["data"].items()})
    return made


def differences(stored: Sequence[Cell], fresh: Sequence[Cell]) -> Iterator[str]:
    """Yield the differences between a run and the stored notebook."""
    if [c["source"] for c in map(plain, stored)] != [c["source"] for c in map(plain, fresh)]:
        yield "the cells that ran are not the notebook's: build the site again"
        return
    for kept, ran in zip(stored, fresh, strict=True):
        if kept["cell_type"] != "code":
            continue
        want, got = outputs_of(kept), outputs_of(ran)
        raised = next((o for o in got if "error" in o), None)
        if raised:
            yield f"cell {kept['id']!r} raised {raised['error']}: {raised['text']}"
        elif varies(kept):
            if not got:
                yield f"cell {kept['id']!r} shows nothing"
        elif want != got:
            before, now = (json.dumps(o, indent=1, ensure_ascii=False).splitlines() for o in (want, got))
            yield f"cell {kept['id']!r}:\n" + "\n".join(difflib.unified_diff(before, now, "kept", "now", lineterm=""))


def plain(cell: Cell) -> Cell:
    return {**cell, "source": joined(cell["source"])}


def write(path: Path, fresh: Sequence[Cell]) -> None:
    """Store the outputs of a run in the notebook."""
    content = json.loads(path.read_text("utf-8"))
    for kept, ran in zip(content["cells"], fresh, strict=True):
        if kept["cell_type"] == "code":
            kept["execution_count"] = None if varies(kept) else ran["execution_count"]
            kept["outputs"] = [] if varies(kept) else list(map(stored_output, outputs_of(ran)))
            for output in kept["outputs"]:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = ran["execution_count"]
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def stored_output(output: dict[str, Any]) -> dict[str, Any]:
    """Convert an output to the notebook format. Text is a string: of a list, JupyterLite shows the commas."""
    if "stream" in output:
        return {"name": output["stream"], "output_type": "stream", "text": output["text"]}
    return {"data": output, "execution_count": None, "metadata": {}, "output_type": "execute_result"}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="keep the outputs in the notebooks")
    args = parser.parse_args(argv)
    wrong = 0
    executable = ensure_chromium(Path(sys.executable))
    with (
        Server({"/": SITE}, policy=None) as server,
        sync_playwright() as playwright,
        launch(playwright, executable) as browser,
        guarded_page(browser, server.url, service_workers="allow") as (page, guard),
    ):
        for pattern in USUAL:
            guard.allow(pattern)
        lab = Notebooks(page, server.url)
        for path in sorted(NOTEBOOKS.glob("*.ipynb")):
            lab.open(path.name)
            fresh = lab.run_all()
            if args.write:
                write(path, fresh)
            found = list(differences(read(path), fresh))
            wrong += len(found)
            ran = sum(cell["cell_type"] == "code" for cell in fresh)
            print(f"{path.name}: {ran} cells ran, " + (f"{len(found)} differ" if found else "all as kept"))
            print("\n".join(found), end="\n" if found else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
