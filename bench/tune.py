"""Measure every kernel that could run a model's products, in headless Chromium. `python3 dev.py tune [options]`.

It prints what was chosen by cost and what is the fastest, and writes the measurements to bench/results/tuning/. In a
page, `session.tune()` does the same and stores the winners in the browser; `--profile DIR` stores them in DIR.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import BrowserContext, sync_playwright

from bench import cases, report
from bench.run import PAGE_LIMIT_MS, RESULTS, served
from e2e.harness.browser import FLAGS
from tools.devkit.chromium import VARIABLE

Json = dict[str, Any]

TUNE = """async ([model, inputs]) => {
    const { InferenceSession, Tensor, adapterInfo } = await import('/web/pyruntime.js');
    const { makeInputs } = await import('/bench/inputs.js');
    const session = await InferenceSession.create(model);
    const feeds = Object.fromEntries(Object.entries(makeInputs(inputs)).map(
      ([name, { type, data, dims }]) => [name, new Tensor(type, data, dims)]));
    await session.run(feeds);
    const tuning = await session.tune();
    await session.release();
    return { ...tuning, adapter: await adapterInfo() };
}"""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py tune", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--models", type=Path, metavar="DIR", help="the models that bench/models.py wrote there")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="keep the winners in this profile of the browser")
    parser.add_argument("--name", default="", help="end of the result's file name")
    parser.add_argument("--flag", action="append", default=[], help="another flag for the browser")
    parser.add_argument("--no-save", action="store_true", help="only print")
    return parser.parse_args(argv)


def main() -> int:
    args = arguments()
    every = (
        [case for case in cases.generated(args.models) if case.path.suffix == ".onnx"] if args.models else cases.light()
    )
    models = cases.choose(every, args.names)
    problems: dict[str, Json] = {}
    found: Json = {"date": datetime.date.today().isoformat(), "problems": problems}
    with served(models) as url, ExitStack() as stack:
        context = opened(stack, args)
        found["browser"] = f"Chromium {context.browser.version}" if context.browser else "Chromium"
        for number, case in enumerate(models):
            folder = list(dict.fromkeys(other.path.parent for other in models)).index(case.path.parent)
            page = context.new_page()
            page.goto(f"{url}bench/empty.html")
            tuning = page.evaluate(TUNE, [f"{url}bench-models/{folder}/{case.path.name}", case.inputs])
            page.close()
            found |= {"adapter": tuning["adapter"], "rates": tuning["rates"]}
            note(problems, case.name, tuning["measured"])
            print(f"{number + 1}/{len(models)} {case.name}: {table(tuning['measured'])}", flush=True)
    losses = [row["loss"] for row in problems.values()]
    if losses:
        print(f"{len(losses)} problems; chosen by cost {sum(losses) / len(losses):.3f} of the fastest on average")
    if not args.no_save:
        print(f"written to {report.save(found, RESULTS / 'tuning', args.name)}")
    return 0


def opened(stack: ExitStack, args: argparse.Namespace) -> BrowserContext:
    """A context that keeps what pages store, where there is a profile."""
    chromium = stack.enter_context(sync_playwright()).chromium
    flags = [*FLAGS, *args.flag]
    if args.profile:
        context = chromium.launch_persistent_context(
            str(args.profile), executable_path=os.environ[VARIABLE], headless=True, args=flags
        )
        stack.callback(context.close)
    else:
        browser = stack.enter_context(chromium.launch(executable_path=os.environ[VARIABLE], headless=True, args=flags))
        context = browser.new_context()
    context.set_default_timeout(PAGE_LIMIT_MS)
    return context


def note(problems: dict[str, Json], model: str, measured: Sequence[Json]) -> None:
    """Add what was measured; a problem of several models keeps its first measurement."""
    for one in measured:
        row = problems.setdefault(
            f"{one['family']} {one['problem']}",
            {
                "models": [],
                "chosen": one["chosen"],
                "loss": round(one["loss"], 3),
                "us": {c["name"]: round(c["took"], 1) for c in one["candidates"]},
            },
        )
        row["models"].append(model)


def table(measured: Sequence[Json]) -> str:
    """A problem a line: what ran before, the fastest ones."""
    lines = [
        f"  {one['family']} {one['problem']}: {one['chosen']} ({one['loss']:.2f}); "
        + ", ".join(f"{c['name']} {c['took']:.1f}" for c in one["candidates"][:4])
        for one in measured
    ]
    return "\n".join([f"{len(measured)} problems", *lines])


if __name__ == "__main__":
    sys.exit(main())
