"""Compare with onnxruntime-web on the same models, in one headless Chromium. `python3 dev.py bench [options]`.

Without options: the digits model and two light models of the onnx package. See bench/README.md for what is measured.
dev.py sets the variables that name the browser (PYRUNTIME_CHROMIUM) and onnxruntime-web's package (ONNXRUNTIME_WEB).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

from bench import cases, report
from bench.folder import write_pages
from e2e.harness.browser import FLAGS
from tools.devkit.chromium import VARIABLE
from tools.devkit.server import Server
from tools.devkit.shell import DIST
from tools.devkit.site import CONTENT_SECURITY_POLICY, WEB

ENGINES = ("ours", "peer")
RESULTS = Path(__file__).parent / "results"
# The site's own policy; the benchmark's page holds the engines in frames.
POLICY = f"{CONTENT_SECURITY_POLICY}; frame-src 'self'"
PAGE_LIMIT_MS = 1_800_000

Json = dict[str, Any]


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--models", type=Path, metavar="DIR", help="also the models that bench/models.py wrote there")
    parser.add_argument("--light", action="store_true", help="all nine light models of the onnx package")
    parser.add_argument("--runs", type=int, default=30, help="measured runs of each model (default 30)")
    parser.add_argument("--repeats", type=int, default=1, help="sessions of each model; create and first are medians")
    parser.add_argument("--navigations", type=int, default=5, help="visits to the digits page; 0: none (default 5)")
    parser.add_argument("--python", action="store_true", help="also time this project inside the worker's Python")
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory of the renderer process")
    parser.add_argument("--name", default="", help="end of the result's file name")
    parser.add_argument(
        "--flag", action="append", default=[], help="another flag for the browser (--flag=--use-angle=x)"
    )
    parser.add_argument("--no-save", action="store_true", help="only print")
    return parser.parse_args(argv)


def chosen(args: argparse.Namespace) -> list[cases.Case]:
    every = [cases.digits()]
    if args.light or args.names:
        every += cases.light()
    elif not args.models:
        every += cases.light(cases.LIGHT_BY_DEFAULT)
    if args.models:
        every += [case for case in cases.generated(args.models) if case.path.suffix == ".onnx"]
    return cases.choose(every, args.names)


@contextmanager
def served(models: Sequence[cases.Case]) -> Iterator[str]:
    """Serve the site, both engines, the pages and the models: the server's URL."""
    folders = list(dict.fromkeys(case.path.parent for case in models))
    urls = {case.name: f"../bench-models/{folders.index(case.path.parent)}/{case.path.name}" for case in models}
    mounts = {f"/bench-models/{number}/": folder for number, folder in enumerate(folders)}
    peer = Path(os.environ["ONNXRUNTIME_WEB"]) / "dist"
    with tempfile.TemporaryDirectory() as folder:
        site = shutil.copytree(DIST, Path(folder) / "site")  # a build during the run changes nothing
        write_pages(Path(folder) / "pages", models, urls)
        mounts |= {"/": site, "/src/web/": WEB, "/ort/": peer, "/bench/": Path(folder) / "pages"}
        with Server(mounts, policy=POLICY, caching="max-age=3600") as server:
            yield server.url


def measure_models(browser: Browser, url: str, models: Sequence[cases.Case], args: argparse.Namespace) -> Json:
    """What bench.html measures, model by model, each in a new page."""
    engines = [*ENGINES, "python"] if args.python else list(ENGINES)
    measured: Json = {"results": []}
    for number, case in enumerate(models):
        turned = engines[::-1] if number % 2 else engines
        query = f"models={case.name}&runs={args.runs}&repeats={args.repeats}&engines={','.join(turned)}"
        with fresh_page(browser) as page:
            page.goto(f"{url}bench/bench.html?{query}")
            answer = page.evaluate("globalThis.benchResult")
        if "error" in answer:
            raise SystemExit(f"{case.name}: {answer['error']}")
        for result in answer.pop("results"):
            result["bytes"] = case.path.stat().st_size
            measured["results"].append(result)
            print(report.line(result), flush=True)
        measured |= answer
    return measured


@contextmanager
def fresh_page(browser: Browser) -> Iterator[Page]:
    with context_of(browser) as context:
        yield context.new_page()


@contextmanager
def context_of(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.set_default_timeout(PAGE_LIMIT_MS)
    try:
        yield context
    finally:
        context.close()


def measure_navigation(browser: Browser, url: str, case: cases.Case, visits: int) -> Json:
    """Milliseconds from navigation to the first result: first visits (empty caches), and third ones (all cached).

    Each round has a browser context of its own for each engine, so that a first visit finds nothing. "plain" is this
    project without its memory snapshot, "kept" with plans kept for later visits.
    """
    query = f"model={quote(f'{url}bench-models/0/{case.path.name}')}&inputs={quote(json.dumps(case.inputs))}"
    engines = (*ENGINES, "plain", "kept")
    taken: Json = {engine: {"cold_ms": [], "warm_ms": [], "phases": []} for engine in engines}
    outputs: dict[str, list[float]] = {}
    for number in range(visits):
        for engine in engines[::-1] if number % 2 else engines:
            with context_of(browser) as context:
                for key in ("cold_ms", None, "warm_ms"):
                    page = context.new_page()
                    page.goto(f"{url}bench/first.html?engine={engine}&{query}")
                    first = page.evaluate("globalThis.firstResult")
                    page.close()
                    outputs[engine] = first["output"]
                    if key:
                        taken[engine][key].append(first["ms"])
                taken[engine]["phases"].append(first["phases"])
    gap = max(max(values) - min(values) for values in zip(*outputs.values(), strict=True))
    return taken | {"model": case.name, "max_difference": gap}


class Renderers:
    """Memory of Chromium's renderer processes, where /proc tells it."""

    def __init__(self, browser: Browser) -> None:
        self.session = browser.new_browser_cdp_session()

    def ids(self) -> set[int]:
        processes = self.session.send("SystemInfo.getProcessInfo")["processInfo"]
        return {process["id"] for process in processes if process["type"] == "renderer"}

    @staticmethod
    def peak(process: int) -> int:
        """The most bytes the process ever had resident."""
        status = Path(f"/proc/{process}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0


def measure_memory(browser: Browser, url: str, models: Sequence[cases.Case]) -> dict[str, Json]:
    """Peak resident bytes of a renderer that loads a model and runs it once, above those of an empty page."""
    renderers, found = Renderers(browser), dict[str, Json]()

    def peak_of(work: str | None, engine: str) -> int:
        before = renderers.ids()
        with fresh_page(browser) as page:
            page.goto(f"{url}bench/frame.html?engine={engine}" if work else f"{url}bench/empty.html")
            if work:
                page.evaluate(work)
            return max((renderers.peak(process) for process in renderers.ids() - before), default=0)

    empty = peak_of(None, "")
    for case in models:
        source = json.dumps([f"{url}bench-models/{folder_number(case, models)}/{case.path.name}", case.inputs])
        script = f"(async () => {{ await bench.start(); await bench.load(...{source}); }})()"
        found[case.name] = {}
        for engine in ENGINES:
            try:
                found[case.name][engine] = peak_of(script, engine) - empty
            except Error as error:
                found[case.name][engine] = None
                print(f"{case.name}, {engine}: no memory figure ({error.message.splitlines()[0]})", flush=True)
    return found


def folder_number(case: cases.Case, models: Sequence[cases.Case]) -> int:
    return list(dict.fromkeys(other.path.parent for other in models)).index(case.path.parent)


def main() -> int:
    args = arguments()
    models = chosen(args)
    executable = os.environ[VARIABLE]
    flags = [*FLAGS, "--enable-precise-memory-info", *args.flag]
    with (
        served(models) as url,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=executable, headless=True, args=flags) as browser,
    ):
        print(f"Chromium {browser.version}; create / first / median ms of each engine", flush=True)
        measured: Json = {"browser": f"Chromium {browser.version}", "flags": args.flag}
        measured |= measure_models(browser, url, models, args)
        if args.navigations and models[0].name == "digits":
            measured["navigation"] = measure_navigation(browser, url, models[0], args.navigations)
        if not args.no_memory and Path("/proc/self/status").is_file():
            for result, memory in zip(measured["results"], measure_memory(browser, url, models).values(), strict=True):
                for engine, peak in memory.items():
                    result["engines"][engine]["renderer_peak"] = peak
    print()
    print(report.table(measured))
    if not args.no_save:
        print(f"\nwritten to {report.save(measured, RESULTS, args.name)}")
    if not args.models:
        print(
            "\nMore models (ResNet-50, BERT, GPT-2, ViT, ...): see bench/README.md, then `dev.py bench --models DIR`."
        )
    differing = [r["model"] for r in measured["results"] if r["check"] and not r["check"]["same"]]
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
