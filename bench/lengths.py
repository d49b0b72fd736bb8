"""Time of new input lengths and of texts. `python3 dev.py bench lengths [options]`.

Three tables of ratios: the first run at a new length over a repeated one; a run of a plan for many sizes over one of a
plan for just that size; a token of transformers.js on this project, the first text of a page included, over one on
onnxruntime-web in the same browser. dev.py sets the environment variables that name the browser and the packages.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, Page, sync_playwright

from e2e.harness.browser import FLAGS
from e2e.transformers import architectures, repositories
from e2e.transformers.tokenizers import byte_pairs
from tests import open_models
from tests.quantized.models import encoder
from tools.devkit.chromium import VARIABLE
from tools.devkit.server import Server
from tools.devkit.shell import DIST

RESULTS = Path(__file__).parent / "results" / "lengths"
PAGE_LIMIT_MS = 1_800_000
RUNTIMES = {"ours": "/web/pyruntime.js", "peer": "/ort/dist/ort.webgpu.bundle.min.mjs"}
WASM = "/ort/dist/ort-wasm-simd-threaded.asyncify.wasm"

Json = dict[str, Any]
Draw = Callable[[random.Random], Json]


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py bench lengths", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help="only these of lengths, shared, generation")
    parser.add_argument("--runs", type=int, default=20, help="new lengths of each model, and runs of a plan (20)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a text (64)")
    parser.add_argument("--only", default="", help="of the texts those whose name begins like this")
    parser.add_argument("--texts", type=int, default=4, help="texts of a page (4)")
    parser.add_argument("--rounds", type=int, default=2, help="fresh pages for each engine and repository (2)")
    parser.add_argument(
        "--repository",
        action="append",
        default=[],
        metavar="TASK=DIR",
        help="also a repository as transformers.js reads it, for instance text-generation=exports/llama",
    )
    parser.add_argument("--name", default="", help="end of the result's file name")
    parser.add_argument("--flag", action="append", default=[], help="another flag for the browser")
    parser.add_argument("--no-save", action="store_true", help="only print")
    return parser.parse_args(argv)


def ids(count: Callable[[random.Random], int]) -> Draw:
    return lambda r: {"ids": ["int64", [1, count(r)]]}


def pictures(r: random.Random) -> Json:
    return {"x": ["float32", [1, 3, *(4 * r.randint(8, 48) for _ in range(2))]]}


def models() -> dict[str, tuple[bytes, Draw]]:
    """Models by name, and what draws the shapes of a run."""
    return {
        "sentences, 4 layers of 128": (
            encoder(4, 128, 4, 50).SerializeToString(),
            ids(lambda r: r.randint(2, 400)),
        ),
        "sentences, 12 layers of 32": (
            encoder(12, 32, 2, 50).SerializeToString(),
            ids(lambda r: r.randint(2, 400)),
        ),
        "speech": (open_models.listener(), lambda r: {"sound": ["float32", [1, 8, r.randint(3, 500)]]}),
        "pictures": (open_models.convolutions(), pictures),
        "U-Net": (open_models.unet("linear"), pictures),
    }


def write_texts(folder: Path, given: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Repositories below `folder`, by what they are called: task and folder."""
    repositories.write_repositories(folder)
    _, size = byte_pairs()
    deep = shutil.copytree(folder / "story", folder / "story-16")
    config = json.loads((deep / "config.json").read_text())
    (deep / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 16}))
    (deep / "onnx" / "model.onnx").write_bytes(architectures.decoder(size, True, 16))
    found = {
        "Llama, 2 layers": ("text-generation", "story"),
        "Llama, 16 layers": ("text-generation", "story-16"),
        "Qwen2": ("text-generation", "qwen2"),
        "GPT-2": ("text-generation", "gpt2"),
        "T5": ("translation", "translator"),
        "Whisper": ("automatic-speech-recognition", "whisper"),
    }
    for number, text in enumerate(given):
        task, _, path = text.partition("=")
        shutil.copytree(path, folder / f"given-{number}")
        found[Path(path).name] = (task, f"given-{number}")
    return found


@contextmanager
def served(given: Sequence[str]) -> Iterator[tuple[str, dict[str, tuple[str, str]]]]:
    """Serve pages, runtimes and models; yield the server's URL and the repositories by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = write_texts(folder / "models", given)
        for number, (model, _) in enumerate(models().values()):
            (folder / f"{number}.onnx").write_bytes(model)
        library = "/transformers/dist/transformers.web.js"
        for engine, runtime in RUNTIMES.items():
            names = {"onnxruntime-web/webgpu": runtime, "onnxruntime-common": runtime}
            imports = json.dumps({"imports": {**names, "@huggingface/transformers": library}})
            page = f'<script type="importmap">{imports}</script><script type="module" src="lengths.js"></script>'
            (folder / f"{engine}.html").write_text(f"<!doctype html>\n<meta charset='utf-8'>\n{page}\n")
        shutil.copy(Path(__file__).parent / "page" / "lengths.js", folder)
        mounts = {
            "/": folder,
            "/web/": DIST / "web",
            "/ort/": Path(os.environ["ONNXRUNTIME_WEB"]),
            "/transformers/": Path(os.environ["TRANSFORMERS_JS"]),
            **{f"/{path.name}": path for path in DIST.iterdir() if path.suffix == ".whl"},
            **{f"/{part}/": DIST / part for part in ("pyodide", "snapshot")},
        }
        with Server(mounts, policy=None, caching="max-age=3600") as server:
            yield server.url, texts


def asked(browser: Browser, url: str, engine: str, part: str, args: Json) -> Any:
    """What a part gives in a fresh page."""
    context = browser.new_context()
    context.set_default_timeout(PAGE_LIMIT_MS)
    try:
        page: Page = context.new_page()
        page.goto(f"{url}{engine}.html")
        page.wait_for_function("globalThis.bench")
        return page.evaluate(f"(args) => bench.{part}(args)", args)
    finally:
        context.close()


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def measure_lengths(browser: Browser, url: str, runs: int) -> list[Json]:
    """First run at a new length over a repeated one."""
    found = []
    for number, (name, (_, draw)) in enumerate(models().items()):
        r = random.Random(number)
        drawn: list[Json] = []
        while len(drawn) < 40 + runs:
            shapes = draw(r)
            drawn += [shapes] if shapes not in drawn else []
        given = {"url": f"{number}.onnx", "warm": drawn[:40], "fresh": drawn[40:], "again": 5}
        pairs = asked(browser, url, "ours", "lengths", given)
        ratios = [pair["first"] / pair["again"] for pair in pairs]
        found.append({"model": name, "ratio": geometric_mean(ratios), "most": max(ratios), "pairs": pairs})
        print(f"new lengths, {name}: {found[-1]['ratio']:.2f} (most {found[-1]['most']:.2f})", flush=True)
    return found


def measure_shared(browser: Browser, url: str, runs: int) -> list[Json]:
    """A run through a plan for many sizes over one through a plan of its own."""
    found = []
    for number, (name, (_, draw)) in enumerate(models().items()):
        r = random.Random(100 + number)
        given = {"url": f"{number}.onnx", "others": [draw(r) for _ in range(12)], "shapes": draw(r), "runs": runs}
        taken = asked(browser, url, "ours", "shared", given)
        found.append({"model": name, "ratio": taken["shared"] / taken["concrete"], **taken, "shapes": given["shapes"]})
        print(f"shared plan, {name}: {found[-1]['ratio']:.3f}", flush=True)
    return found


def measure_generation(browser: Browser, url: str, texts: dict[str, tuple[str, str]], args: argparse.Namespace) -> Any:
    """Milliseconds per token on both engines, page by page in turn."""
    found = []
    for name, (task, repository) in texts.items():
        if not name.startswith(args.only):
            continue
        taken: Json = {engine: [] for engine in RUNTIMES}
        for turn in range(args.rounds):
            for engine in list(RUNTIMES)[:: -1 if turn % 2 else 1]:
                given = {"task": task, "repository": repository, "tokens": args.tokens, "texts": args.texts}
                given["wasm"] = WASM if engine == "peer" else None
                taken[engine].append(asked(browser, url, engine, "generate", given))
        every = {e: statistics.median(sum(t["ms"]) / (args.tokens * args.texts) for t in taken[e]) for e in taken}
        first = {e: statistics.median(t["ms"][0] / args.tokens for t in taken[e]) for e in taken}
        last = {e: statistics.median(t["ms"][-1] / args.tokens for t in taken[e]) for e in taken}
        same = len({t["text"] for pages in taken.values() for t in pages}) == 1
        row = {"model": name, "ratio": every["ours"] / every["peer"], "every": every, "first": first, "last": last}
        found.append({**row, "same": same, "pages": taken})
        print(f"generation, {name}: {every['ours']:.2f} ms a token, onnxruntime-web {every['peer']:.2f}", flush=True)
    return found


def table(measured: Json) -> str:
    """The tables in Markdown."""
    lines: list[str] = []
    if "lengths" in measured:
        lines += ["| first run at a new length / repeated | ratio | most |", "|---|--:|--:|"]
        lines += [f"| {row['model']} | {row['ratio']:.2f} | {row['most']:.2f} |" for row in measured["lengths"]]
        mean = geometric_mean([row["ratio"] for row in measured["lengths"]])
        lines += [f"| geometric mean (at most 1.5) | {mean:.2f} | |", ""]
    if "shared" in measured:
        lines += ["| plan for many sizes / for one | shared, ms | concrete, ms | ratio |", "|---|--:|--:|--:|"]
        lines += [
            f"| {row['model']} | {row['shared']:.2f} | {row['concrete']:.2f} | {row['ratio']:.3f} |"
            for row in measured["shared"]
        ]
        mean = geometric_mean([row["ratio"] for row in measured["shared"]])
        lines += [f"| geometric mean (at most 1.05) | | | {mean:.3f} |", ""]
    if "generation" in measured:
        lines += [
            "| ms per token of transformers.js | ours | onnxruntime-web | ratio | first text | last text | same text |",
            "|---|--:|--:|--:|--:|--:|:-:|",
        ]
        for row in measured["generation"]:
            first, last = (row[part]["ours"] / row[part]["peer"] for part in ("first", "last"))
            numbers = f"{row['every']['ours']:.2f} | {row['every']['peer']:.2f} | {row['ratio']:.2f}"
            lines.append(
                f"| {row['model']} | {numbers} | {first:.2f} | {last:.2f} | {'yes' if row['same'] else 'no'} |"
            )
        lines += ["", "All texts of a page count, its first included; at most 0.8."]
    return "\n".join(lines)


def main() -> int:
    args = arguments()
    every = ["lengths", "shared", "generation"]
    wanted = args.parts or every
    if not {*wanted} <= {*every}:
        raise SystemExit(f"no such table: {', '.join({*wanted} - {*every})}; there are {', '.join(every)}")
    flags = [*FLAGS, *args.flag]
    with (
        served(args.repository) as (url, texts),
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=os.environ[VARIABLE], headless=True, args=flags) as browser,
    ):
        measured: Json = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "browser": f"Chromium {browser.version}",
            "options": {key: value for key, value in vars(args).items() if key != "parts"},
        }
        if "lengths" in wanted:
            measured["lengths"] = measure_lengths(browser, url, args.runs)
        if "shared" in wanted:
            measured["shared"] = measure_shared(browser, url, args.runs)
        if "generation" in wanted:
            measured["generation"] = measure_generation(browser, url, texts, args)
    print(f"\n{table(measured)}")
    if not args.no_save:
        RESULTS.mkdir(parents=True, exist_ok=True)
        stem = "-".join(filter(None, [measured["date"][:10], re.sub(r"[^a-z0-9.-]+", "-", args.name.lower())]))
        path = RESULTS / f"{stem}.json"
        path.write_text(json.dumps(measured, indent=1) + "\n")
        print(f"\nwritten to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
