"""First visits over slow connections: bytes, requests, time until the first result. `dev.py bench --first-visits`.

Each visit has a new browser profile; the engines alternate. dev.py sets PYRUNTIME_CHROMIUM and ONNXRUNTIME_WEB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Playwright, sync_playwright

from bench import cases
from bench.folder import write_pages
from bench.report import FIRST_VISITORS, first_visits
from bench.slow_server import Network, SlowServer
from e2e.harness.browser import FLAGS
from pyruntime.session.aot.compile_ahead import compile_model
from tools.devkit.chromium import VARIABLE
from tools.devkit.shell import DIST

NETWORKS = (
    Network("10 Mbit/s, 60 ms", 10, 60),
    Network("50 Mbit/s, 30 ms", 50, 30),
    Network("200 Mbit/s, 15 ms", 200, 15),
)
LOCALHOST = "localhost"
RESULTS = Path(__file__).parent / "results" / "first_visits"
LIMIT_MS = 300_000
CHANNELS = (3, 32, 64, 128, 256, 512, 512)

Json = dict[str, Any]


def small_network(path: Path) -> cases.Case:
    """Six convolutions and a classifier with 4 million random weights, 16 MB."""
    rng, nodes, weights, x = np.random.default_rng(3), [], [], "image"
    for number, (before, after) in enumerate(pairwise(CHANNELS)):
        w = rng.standard_normal((after, before, 3, 3), np.float32) * np.float32((2 / (9 * before)) ** 0.5)
        weights.append(numpy_helper.from_array(w, f"w{number}"))
        nodes.append(helper.make_node("Conv", [x, f"w{number}"], [f"c{number}"], pads=[1] * 4, strides=[2, 2]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [x := f"r{number}"]))
    nodes += [helper.make_node("GlobalAveragePool", [x], ["pooled"]), helper.make_node("Flatten", ["pooled"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in
            (("image", [1, 3, 64, 64]), ("y", [1, CHANNELS[-1]]))]  # fmt: skip
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return cases.Case("convolutions", path, cases.declared(path))


def page_url(server: SlowServer, engine: str, case: cases.Case) -> str:
    query = f"model=../bench-models/{case.path.name}&inputs={quote(json.dumps(case.inputs))}"
    return f"{server.url}bench/first.html?engine={engine}&{query}"


def visit(playwright: Playwright, server: SlowServer, url: str, flags: Sequence[str]) -> Json:
    """One visit in a new browser: bytes, requests, milliseconds from navigation to the result, and the result."""
    flags = [*FLAGS, *flags]
    with playwright.chromium.launch(executable_path=os.environ[VARIABLE], headless=True, args=flags) as browser:
        page = browser.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.goto(f"{server.url}bench/empty.html")  # the browser's own start is not counted
        page.evaluate("navigator.gpu?.requestAdapter().then(() => null)")
        sent, requests = server.sent, server.requests
        page.goto(url)
        first: Json = page.evaluate("globalThis.firstResult")
        return {
            "ms": first["ms"],
            "bytes": server.sent - sent,
            "requests": server.requests - requests,
            "output": first["output"],
        }


def measure(models: Sequence[cases.Case], mounts: dict[str, Path], args: argparse.Namespace) -> Iterator[Json]:
    with SlowServer(mounts, None) as server, sync_playwright() as playwright:
        for engine in FIRST_VISITORS:  # what compresses the files, and the machine's own caches
            visit(playwright, server, page_url(server, engine, models[0]), args.flag)
    for network in (*NETWORKS, None):
        name = network.name if network else LOCALHOST
        if args.networks and not any(part in name for part in args.networks):
            continue
        with SlowServer(mounts, network) as server, sync_playwright() as playwright:
            for case in models:
                taken: dict[str, list[Json]] = {engine: [] for engine in FIRST_VISITORS}
                for number in range(args.visits):
                    for engine in list(FIRST_VISITORS)[:: -1 if number % 2 else 1]:
                        url = page_url(server, engine, case)
                        taken[engine].append(visit(playwright, server, url, args.flag))
                for engine, visits in taken.items():
                    ms = [v["ms"] for v in visits]
                    gap = float(np.max(np.abs(np.subtract(visits[0]["output"], taken["peer"][0]["output"]))))
                    row = {"model": case.name, "network": name, "engine": engine, "ms": ms, "difference": gap}
                    row |= {key: visits[0][key] for key in ("bytes", "requests")}
                    print(
                        f"{name:18} {case.name:13} {FIRST_VISITORS[engine]:32} {statistics.median(ms):7.0f} ms",
                        flush=True,
                    )
                    yield row


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py bench --first-visits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--visits", type=int, default=3, help="of each engine, model and network (default 3)")
    parser.add_argument("--networks", nargs="*", help="only networks whose name contains one of these")
    parser.add_argument("--models", nargs="*", help="only these: digits, convolutions")
    parser.add_argument("--flag", action="append", default=[], help="for the browser, such as --use-angle=vulkan")
    parser.add_argument("--name", default="", help="an addition to the result's name")
    parser.add_argument("--no-save", action="store_true", help="print only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "models").mkdir()
        models = [cases.digits(), small_network(folder / "models" / "convolutions.onnx")]
        models = [case for case in models if not args.models or case.name in args.models]
        write_pages(folder / "pages", models, {case.name: f"../bench-models/{case.path.name}" for case in models})
        for case in models:
            target = folder / "models" / case.path.name
            if target != case.path:
                target.write_bytes(case.path.read_bytes())
            shapes = {name: [tuple(given["shape"])] for name, given in case.inputs.items()}
            target.with_suffix(".plan").write_bytes(compile_model(target, shapes))
        peer = Path(os.environ["ONNXRUNTIME_WEB"]) / "dist"
        mounts = {"/": DIST, "/ort/": peer, "/bench/": folder / "pages", "/bench-models/": folder / "models"}
        measured: Json = {"date": time.strftime("%Y-%m-%d"), "results": list(measure(models, mounts, args))}
    print(f"\n{first_visits(measured['results'])}")
    if not args.no_save:
        RESULTS.mkdir(exist_ok=True)
        target = RESULTS / f"{measured['date']}{f'-{args.name}' if args.name else ''}.json"
        target.write_text(json.dumps(measured, indent=1) + "\n")
        print(f"\nwritten to {target}")
    return 1 if any(row["difference"] > 1e-3 for row in measured["results"]) else 0


if __name__ == "__main__":
    sys.exit(main())
