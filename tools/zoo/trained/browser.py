"""Run checked trained models in headless Chromium: python -m tools.zoo.trained.browser [NAME ...].

Each step is run twice in one session; the results are compared bit for bit, and with onnxruntime's native outputs.
States are fed back from the session's outputs. Results of the current version are reused, so an interrupted run can be
continued. `--minutes` limits the time. A file that is large or takes too long is followed by a new page.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from playwright.sync_api import Error

from e2e.harness import codec
from e2e.harness.python import BrowserPython, BrowserPythonError
from tools.devkit.server import Handler
from tools.zoo.browser import RUN, browser_python
from tools.zoo.check import Feeds
from tools.zoo.definitions import CACHE
from tools.zoo.trained import transfer
from tools.zoo.trained.check import arguments, commit, in_parts, judged, product, put, recorded, selected
from tools.zoo.trained.cut import rounds
from tools.zoo.trained.packages import FOLDER, Case
from tools.zoo.trained.table import failures
from tools.zoo.trained.transfer import packed, unpacked

__all__ = ["Receiver", "main", "pending", "run"]

VALUES = FOLDER / "values"
"""Feeds and outputs on their way."""

SECONDS, LARGE = 900, 2700
"""For one run of `RUN`, and for one of a large file, on a machine that is busy."""

BYTES = 1 << 28
"""Of the feeds and outputs of parts that go at once: Python holds them several times in the browser's 4 GB."""

GIVEN = """
from js import Blob
from pyodide.ffi import to_js
from pyodide.http import pyfetch
fed = unpacked(io.BytesIO(await (await pyfetch(values)).bytes()))
"""
"""Before RUN; follows the source of transfer.py."""

MADE = """
# A Blob: other bodies pass through the debugging protocol, as text of at most 512 MB.
(await pyfetch(values, method="PUT", body=Blob.new(to_js([packed(made)])))).raise_for_status()
facts
"""

CALL = """([source, data, limit]) => Promise.race([runPython(source, data), new Promise((_, reject) =>
    setTimeout(() => reject(new Error(`no answer within ${limit / 1000} s`)), limit))])"""


class Receiver(Handler):
    """Also accepts files of values by PUT."""

    def do_PUT(self) -> None:  # noqa: N802 (the name that http.server calls)
        """Write a file below `VALUES`; respond 403 for other places."""
        target = Path(self.translate_path(self.path))
        if not target.is_relative_to(VALUES):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        target.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()


def outcome(in_browser: BrowserPython, case: Case, path: Path, fed: Sequence[Sequence[Feeds]], back: Any) -> Any:
    """Run `RUN` for a file; return its outputs as arrays, and its last expression.

    Raises:
        BrowserPythonError: Python's traceback.
    """
    served = f"{in_browser.page.url.split('/e2e/')[0]}/zoo/"
    limit = 1000 * (LARGE if case.model.large else SECONDS)
    source = Path(transfer.__file__).read_text() + GIVEN + RUN + MADE
    VALUES.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=VALUES, suffix=".npz") as file:
        values = Path(file.name)
        values.write_bytes(packed(fed))
        urls = {"model": f"{served}{path.relative_to(CACHE)}", "values": f"{served}{values.relative_to(CACHE)}"}
        data = codec.encode({**urls, "back": dict(back), "limit": limit / 1000})
        told = codec.decode(in_browser.page.evaluate(CALL, [source, data, limit]))
        if "error" in told:
            raise BrowserPythonError(told["error"].strip().splitlines()[-1][:800])
        with values.open("rb") as answer:
            made = unpacked(answer)
    return [[list(step.values()) for step in steps] for steps in made], *told["value"]


def run(in_browser: BrowserPython, case: Case, path: Path) -> dict[str, Any]:
    """Run a case in the browser; return its error or '', the largest difference, host steps, and dispatches."""
    feeds, witnesses, shipped, names = recorded(case)
    began = time.monotonic()
    mine, same, host, dispatches, plans = outcome(in_browser, case, path, feeds, case.model.back)
    wrong, far = judged(case, mine, witnesses, shipped, names)
    found = {"browser_far": far, "browser_host": host, "browser_dispatches": dispatches, "browser_open": plans}
    found["browser_seconds"] = round(time.monotonic() - began, 1)
    if wrong and path.suffix == ".onnx" and rounds(path):
        wrong, far, again = parts_in_browser(in_browser, case, path, feeds)
        found["browser_parts"] = far
        same = same and again
    return {"browser": wrong or ("" if same else "a second run gives other bits"), **found}


def parts_in_browser(
    in_browser: BrowserPython, case: Case, path: Path, feeds: Sequence[Sequence[Feeds]]
) -> tuple[str, float, bool]:
    """Run parts; return the error or '', the largest difference, and whether second runs have the same bits."""
    far, same = 0.0, True
    for parts, fed, wanted in in_parts(case, path, feeds, BYTES):
        mine, again, *_ = outcome(in_browser, case, parts, [[fed]], {})
        wrong, apart = judged(Case(case.model), mine, [[[list(wanted.values())]]], [], list(wanted))
        far, same = max(far, apart), same and again
        if wrong:
            return wrong, far, same
    return "", far, same


def pending(names: Sequence[str], again: bool, now: str) -> list[tuple[Case, dict[str, Any]]]:
    """Return cases checked natively but not in the browser, the fastest first; listed failures only if named."""
    found, listed = [], {} if names else failures()
    for case in selected(names):
        if case.key in listed:
            continue
        known = json.loads(case.result.read_text()) if case.result.is_file() else {}
        if known.get("product") != now or not case.result.with_suffix(".npz").is_file():
            continue
        if again or known.get("browser_product") != now:
            found.append((case, known))
    return sorted(found, key=lambda entry: entry[1].get("native_seconds", 1e9))


def main() -> int:
    args = arguments(__doc__).parse_args()
    now, end, wrong = product(), time.monotonic() + args.minutes * 60, 0
    todo = pending(args.names, args.again, now)
    while todo and time.monotonic() < end:
        with browser_python(Receiver) as in_browser:
            while todo and time.monotonic() < end:
                case, known = todo.pop(0)
                lost = False
                try:
                    found = run(in_browser, case, Path(known["path"]))
                except BrowserPythonError as error:
                    found = {"browser": str(error)}
                except Error as error:
                    found, lost = {"browser": str(error).strip().splitlines()[0][:400]}, True
                put(case, {**found, "browser_product": now, "browser_commit": commit()}, "browser")
                wrong += bool(found["browser"])
                state = f"WRONG {found['browser']}" if found["browser"] else f"{found['browser_dispatches']} dispatches"
                print(f"{case.key}: {state}, {found.get('browser_seconds', '-')} s", flush=True)
                if lost or case.model.large:
                    break
    if todo:
        print(f"time is over, {len(todo)} files are left: run this again for the others")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
