"""pyruntime on the desktop's GPU against onnxruntime's WebGPU plug-in: `python bench/desktop.py MODEL.onnx ...`

Each engine loads and runs each model in a process of its own; the engines follow one another model by model, in another
order each round. Measured are `create` with the first run, and the median run from NumPy to NumPy. Outputs are compared
with those of onnxruntime's CPU provider. A ratio is onnxruntime's time over pyruntime's: above 1 pyruntime is better.

Needs this package, NumPy, `wgpu` or `wgpudawn`, and for the comparison `onnxruntime` and `onnxruntime-ep-webgpu`; no
network. Inputs are random, or those of MODEL.npz next to the model.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGES = {"wgpu": "wgpu", "dawn": "wgpudawn", "onnxruntime": "onnxruntime_ep_webgpu"}
"""Engines, pyruntime's by the implementation of WebGPU, with the package that each needs."""

TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}
IDS = 50
"""Integers are below this: ids of tokens that every vocabulary has."""


def made_inputs(declared: Sequence[Any], path: Path, dims: Mapping[str, int]) -> dict[str, Any]:
    """Inputs of the declared types, the same in every process; symbolic dimensions are 1 where `dims` has none."""
    given = path.with_suffix(".npz")
    if given.is_file():
        with np.load(given, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    random, feeds = np.random.default_rng(0), dict[str, Any]()
    for value in declared:
        shape = [d if isinstance(d, int) else dims.get(str(d), 1) for d in value.shape]
        kind = np.dtype(TYPES[value.type])
        if kind.kind == "f":
            feeds[value.name] = random.random(shape).astype(kind)
        elif "mask" in value.name:
            feeds[value.name] = np.ones(shape, kind)
        else:
            feeds[value.name] = random.integers(0, 2 if kind.kind == "b" else IDS, shape).astype(kind)
    return feeds


def pyruntime_opener() -> Callable[[Path], tuple[Any, dict[str, Any]]]:
    """What makes a session of pyruntime, with what is known of the GPU; the package is imported."""
    sys.path.insert(0, str(ROOT))
    from pyruntime import InferenceSession

    def opened(path: Path) -> tuple[Any, dict[str, Any]]:
        session = InferenceSession(str(path))
        assert session.get_providers()[0] == "WebGpuExecutionProvider", session.summary()["warnings"]
        return session, {"adapter": session.summary()["adapter"]}

    return opened


def onnxruntime_opener() -> Callable[[Path], tuple[Any, dict[str, Any]]]:
    """The same of onnxruntime, with all nodes on its WebGPU plug-in that it has kernels for."""
    import onnxruntime
    import onnxruntime_ep_webgpu as plugin

    onnxruntime.register_execution_provider_library("webgpu", plugin.get_library_path())
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == plugin.get_ep_name()]
    if not devices:
        raise LookupError("onnxruntime's WebGPU plug-in finds no device")

    def opened(path: Path) -> tuple[Any, dict[str, Any]]:
        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices(devices[:1], {})
        return onnxruntime.InferenceSession(str(path), options), {"version": onnxruntime.__version__}

    return opened


def measure(engine: str, path: Path, runs: int, dims: Mapping[str, int], outputs: Path) -> dict[str, Any]:
    """Load and run a model in this process; its outputs go to a file."""
    if engine != "onnxruntime":
        os.environ["PYRUNTIME_WEBGPU"] = engine
    began = time.perf_counter()
    opener = onnxruntime_opener() if engine == "onnxruntime" else pyruntime_opener()
    imported = time.perf_counter()
    session, about = opener(path)
    created = time.perf_counter()
    feeds = made_inputs(session.get_inputs(), path, dims)
    fed = time.perf_counter()
    values = session.run(None, feeds)
    first = time.perf_counter()
    arrays: dict[str, Any] = {str(i): np.asarray(v) for i, v in enumerate(values)}
    np.savez(outputs, **arrays)
    for _ in range(3):
        session.run(None, feeds)
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return {
        "import_ms": 1000 * (imported - began),
        "create_ms": 1000 * (created - imported),
        "first_ms": 1000 * (first - fed),
        "median_ms": 1000 * statistics.median(times),
        "least_ms": 1000 * min(times),
        **about,
    }


def expected(path: Path, dims: Mapping[str, int]) -> list[Any]:
    """What onnxruntime's CPU provider gives."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, made_inputs(session.get_inputs(), path, dims)))


def difference(got: Any, wanted: Sequence[Any]) -> float:
    """The largest difference of outputs, relative to the largest expected element of each."""
    worst = 0.0
    for i, value in enumerate(wanted):
        a, b = np.asarray(got[str(i)], np.float64), np.asarray(value, np.float64)
        if a.shape != b.shape:
            return math.inf
        if b.size:
            worst = max(worst, float(np.abs(a - b).max() / max(1e-6, np.abs(b).max())))
    return worst


def in_process(engine: str, path: Path, args: argparse.Namespace, wanted: Sequence[Any]) -> dict[str, Any]:
    """`measure` in a process of its own; `error` where that fails."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder, "outputs.npz")
        command = [sys.executable, __file__, str(path), "--engine", engine, "--runs", str(args.runs)]
        command += [part for dim in args.dim for part in ("--dim", dim)] + ["--outputs", str(outputs)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout)
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        if wanted:
            with np.load(outputs) as got:
                result["difference"] = difference(got, wanted)
        return result


def together(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians over the rounds that worked, or the first error."""
    good = [r for r in results if "error" not in r]
    if not good:
        return dict(results[0])
    made = {k: statistics.median(r[k] for r in good) for k, v in good[0].items() if isinstance(v, float)}
    return {**{k: v for k, v in good[0].items() if not isinstance(v, float)}, **made}


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def table(results: Mapping[str, Mapping[str, Mapping[str, Any]]], engines: Sequence[str]) -> str:
    """A line a model: milliseconds by engine, then the ratios of pyruntime's best engine and of each."""
    columns = "".join(f" {name:>8}" for name in ("import", "create", "first", "median"))
    lines = [f"{'model':28} {'engine':12}{columns} {'difference':>10}  ratio run, start"]
    ratios: dict[str, list[tuple[float, float]]] = {e: [] for e in (*engines, "best")}
    for model, by_engine in results.items():
        theirs = by_engine.get("onnxruntime", {})
        pairs: dict[str, tuple[float, float]] = {}
        for engine, r in by_engine.items():
            if "error" in r:
                lines.append(f"{model:28} {engine:12} {r['error'][:120]}")
                continue
            start, text = r["create_ms"] + r["first_ms"], ""
            if engine != "onnxruntime" and "median_ms" in theirs:
                their_start = theirs["create_ms"] + theirs["first_ms"]
                pairs[engine] = theirs["median_ms"] / r["median_ms"], their_start / start
                text = f"{pairs[engine][0]:.2f}, {pairs[engine][1]:.2f}"
            numbers = f"{r['import_ms']:8.1f} {r['create_ms']:8.1f} {r['first_ms']:8.1f} {r['median_ms']:8.2f}"
            lines.append(f"{model:28} {engine:12} {numbers} {r.get('difference', math.nan):10.1e}  {text}")
        if pairs:
            pairs["best"] = (max(run for run, _ in pairs.values()), max(start for _, start in pairs.values()))
        for engine, pair in pairs.items():
            ratios[engine].append(pair)
    for engine, found in ratios.items():
        if found:
            runs, starts = zip(*found, strict=True)
            lines.append(
                f"geometric means of {len(found)}, {engine}: run {geometric_mean(runs):.2f} (least {min(runs):.2f}), "
                f"create + first run {geometric_mean(starts):.2f} (least {min(starts):.2f})"
            )
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench/desktop.py", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each engine for each model (default 3)")
    parser.add_argument("--runs", type=int, default=50, help="runs that are timed in a process (default 50)")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="size of a symbolic dimension")
    parser.add_argument("--engines", nargs="*", choices=list(PACKAGES), help="default: those that are installed")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds that a process may take (default 600)")
    parser.add_argument("--json", metavar="FILE", help="write all results")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--outputs", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    dims = {name: int(size) for name, _, size in (text.partition("=") for text in args.dim)}
    if args.engine:
        print(json.dumps(measure(args.engine, Path(args.models[0]), args.runs, dims, Path(args.outputs))))
        return 0
    engines = args.engines or [e for e, package in PACKAGES.items() if importlib.util.find_spec(package)]
    rounds: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in args.models:
        path = Path(name)
        wanted = expected(path, dims) if importlib.util.find_spec("onnxruntime") else []
        by_engine = rounds.setdefault(path.stem, {engine: [] for engine in engines})
        for number in range(args.rounds):
            turn = number % len(engines)
            for engine in (*engines[turn:], *engines[:turn]):
                by_engine[engine].append(in_process(engine, path, args, wanted))
        print(f"{path.stem}: done", file=sys.stderr, flush=True)
    results = {model: {e: together(found) for e, found in by.items()} for model, by in rounds.items()}
    print(table(results, engines))
    if args.json:
        Path(args.json).write_text(json.dumps({"rounds": rounds, "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
