"""Run checked models in headless Chromium, one browser for all: python -m tools.zoo.browser [--source S] [NAME ...].

Each run of a model is done twice in one session; the results are compared bit for bit, and with onnxruntime's outputs.
They are added to NAME.result.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from e2e.harness.browser import Guard, launch
from e2e.harness.python import BrowserPython
from tools.devkit.chromium import ensure_chromium
from tools.devkit.server import Handler, Server
from tools.devkit.shell import ROOT, python
from tools.devkit.site import build_site, mounts
from tools.zoo.check import Feeds, inputs_of, result_path
from tools.zoo.compare import complaint
from tools.zoo.definitions import CACHE, Definition, arguments, definitions

__all__ = ["RUN", "browser_python", "compared", "run_in_browser"]

RUN = """
import os
os.environ["PYRUNTIME_VERIFY"] = "1"
import pyruntime as ort
options = ort.SessionOptions()
options.add_session_config_entry("pyruntime.disable", "")
options.limits.run_seconds = limit
session = await ort.InferenceSession.create(model, options)
made, same, told = [], True, None

def bits(value):
    return value.tobytes() if hasattr(value, "tobytes") else repr(value)

try:
    taken = [v.name for v in session.get_inputs()]
    names = [v.name for v in session.get_outputs()]
    for steps in fed:
        outputs = []
        for step in steps:
            states = {i: outputs[-1][o] for i, o in back.items()} if outputs else {}
            feeds = {n: x for n, x in {**step, **states}.items() if n in taken}
            first = await session.run_async(None, feeds)
            again = await session.run_async(None, feeds)
            same = same and all(bits(a) == bits(b) for a, b in zip(first, again))
            outputs.append(dict(zip(names, first)))
            told = told or session.explain().to_dict()
        made.append(outputs)
    plans = [bool(stage.sizes) for stage in session._program.roots]
finally:
    session.release()
host = [n["op_type"] + ": " + n["reason"] for n in told["nodes"] if n["placement"] == "host"]
facts = [same, host, told["dispatches"], plans]
"""
"""Every step of the runs `fed`, twice, each with the states `back` (input to output) of the step before it; `made` are
its outputs by name."""

SECONDS = 180
"""For one model."""


@contextmanager
def browser_python(handler: type[Handler] = Handler) -> Iterator[BrowserPython]:
    """Yield Python in headless Chromium, with the current build of the site; `handler` answers its requests.

    Its page intercepts no requests: if it did, their bodies would pass through the debugging protocol, as text of at
    most 512 MB.
    """
    pages = {"/e2e/": ROOT / "e2e" / "pages", "/harness/": ROOT / "e2e" / "harness"}
    with (
        Server(mounts(build_site(python())) | pages | {"/zoo/": CACHE}, handler=handler) as server,
        sync_playwright() as playwright,
        launch(playwright, ensure_chromium(python())) as browser,
    ):
        page = browser.new_page(service_workers="block")
        page.set_default_timeout(180_000)
        yield BrowserPython(page, Guard(server.url), server.url)


def compared(
    in_browser: BrowserPython,
    model: bytes | str,
    runs: Sequence[Feeds],
    wanted: Sequence[Sequence[Any]],
    names: Sequence[str],
) -> dict[str, Any]:
    """Run a model (bytes or URL) in the browser; return its error or '', host steps, and dispatches."""
    fed = [[feeds] for feeds in runs]
    made, same, host, dispatches, plans = in_browser(
        f"{RUN}[made, *facts]", model=model, fed=fed, back={}, limit=SECONDS
    )
    wrong = "" if same else "a second run gives other bits"
    for feeds, [mine], theirs in zip(runs, made, wanted, strict=True):
        shapes = ", ".join(f"{n}{list(x.shape)}" for n, x in feeds.items())
        if not wrong and (told := complaint(list(mine.values()), theirs, names)):
            wrong = f"{shapes}: {told}"
    return {"browser": wrong, "browser_host": host, "browser_dispatches": dispatches, "browser_open": plans}


def run_in_browser(in_browser: BrowserPython, definition: Definition) -> dict[str, Any]:
    """Run `compared` for a model that was checked natively."""
    runs: list[Feeds] = []
    wanted: list[list[Any]] = []
    with np.load(definition.path.with_suffix(".wanted.npz")) as arrays:
        names = list(dict.fromkeys(key.split("/", 1)[1] for key in arrays.files))
        count = 1 + max(int(key.split("/", 1)[0]) for key in arrays.files)
        wanted = [[arrays[f"{i}/{n}"] for n in names] for i in range(count)]
    runs = inputs_of(definition.path.with_suffix(".npz"))[:count]
    try:
        url = f"{in_browser.page.url.split('/e2e/')[0]}/zoo/{definition.source}/{definition.path.name}"
        return compared(in_browser, url, runs, wanted, names)
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        return {"browser": str(error).strip().splitlines()[-1][:800] if str(error).strip() else repr(error)}


def pending(args: argparse.Namespace) -> list[tuple[Definition, Path]]:
    """Return models that onnxruntime runs and that were not run in the browser yet, the fastest first."""
    found: list[tuple[float, Definition, Path]] = []
    for definition in definitions(args.source, args.names):
        path = result_path(definition)
        if not path.is_file():
            continue
        result = json.loads(path.read_text())
        if not result["onnxruntime"] and (args.again or result.get("browser") is None):
            found.append((result["native_seconds"], definition, path))
    return [(definition, path) for _, definition, path in sorted(found, key=lambda entry: entry[0])]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--again", action="store_true", help="also what was run before")
    args = parser.parse_args()
    todo = pending(args)
    if not todo:
        return
    with browser_python() as in_browser:
        for definition, path in todo:
            found = run_in_browser(in_browser, definition)
            path.write_text(json.dumps({**json.loads(path.read_text()), **found}))
            state = found["browser"] or f"agrees, {found['browser_dispatches']} dispatches, {found['browser_open']}"
            print(f"{definition.source} {definition.name}: {state}", flush=True)


if __name__ == "__main__":
    main()
