"""`python -m e2e.conformance`: every suite, one table of results, and OPERATORS.md.

    python -m e2e.conformance                  all suites, natively, on wgpu and in headless Chromium
    python -m e2e.conformance native light     some of them
    python -m e2e.conformance --only softmax   cases with this in their name; the lists of known failures do not apply
    python -m e2e.conformance --table          OPERATORS.md alone; with --check: whether it is up to date

Ends with status 1 where a suite differs from its list of known failures.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from e2e.conformance.cases import Case
from e2e.conformance.operators import PATH, render
from e2e.conformance.suites import SUITES, Results, Suite, run_in_browser, run_natively
from e2e.conftest import mounts
from e2e.harness.browser import guarded_page, launch
from e2e.harness.python import BrowserPython
from tests.desktop import on_desktop
from tools.devkit.chromium import ensure_chromium
from tools.devkit.server import Server
from tools.devkit.site import build_site


@contextmanager
def browser_python() -> Iterator[BrowserPython]:
    """Python in headless Chromium, with the site as it is built now."""
    python = Path(sys.executable)
    with (
        Server(mounts(build_site(python))) as server,
        sync_playwright() as playwright,
        launch(playwright, ensure_chromium(python)) as browser,
        guarded_page(browser, server.url) as (page, guard),
    ):
        yield BrowserPython(page, guard, server.url)


def run(suites: list[Suite], only: Callable[[Case], bool]) -> list[Results]:
    """The results of the suites, native ones first."""
    results = [run_natively(suite, only) for suite in suites if suite.where == "native"]
    if desktop := [suite for suite in suites if suite.where == "desktop"]:
        with on_desktop():
            results += [run_natively(suite, only) for suite in desktop]
    remote = [suite for suite in suites if suite.where == "browser"]
    if remote:
        with browser_python() as python:
            results += [run_in_browser(suite, python, only) for suite in remote]
    return results


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.conformance", description="ONNX's conformance cases.")
    parser.add_argument("suites", nargs="*", choices=[[], *SUITES], help=f"default: all of {', '.join(SUITES)}")
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--table", action="store_true", help="write OPERATORS.md and nothing else")
    parser.add_argument("--check", action="store_true", help="with --table: fail where it is outdated; write nothing")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    if args.check:
        if PATH.read_text("utf-8") == render():
            return 0
        print(f"{PATH.name} is outdated: run `python -m e2e.conformance --table`")
        return 1
    failed = False
    if not args.table:
        for results in run([SUITES[n] for n in args.suites or SUITES], lambda case: args.only in case.name):
            print(results.line())
            if args.only:
                print("".join(f"  {name}: {wrong}\n" for name, wrong in results.wrong.items() if wrong), end="")
                continue
            try:
                results.check()
            except AssertionError as error:
                failed = True
                print(error)
    if not args.only:
        PATH.write_text(render())
        print(f"wrote {PATH.name}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
