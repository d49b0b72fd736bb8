"""Results as tables.

    python bench/report.py RESULT.json                        print its tables
    python bench/report.py --save POSTED.json [--name NAME]   keep in bench/results/ what bench.html POSTed
    python bench/report.py --docs                             write a line about each result into docs/performance.md

A ratio is onnxruntime-web's figure divided by this project's: above 1 this project is better, for times and for bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs" / "performance.md"
BEGIN, END = "<!-- results: written by `python bench/report.py --docs` -->", "<!-- end of results -->"
SETS = {
    "": "of different kinds",
    "batch32": "in batches of 32",
    "batch8": "in batches of 8",
    "chains": "chains of matrix products",
    "half": "in float16, with shader-f16",
    "others": "of other families",
    "q8": "in eight bits",
    "tiny": "of all kinds, a few MB each",
}
"""What the models of a result are, by the word of its file's name."""
BEGIN_VISITS = BEGIN.replace("results:", "first visits:")

FIRST_VISITORS = {
    "ours": "pyruntime, Python plans",
    "compiled": "pyruntime, compiled plan",
    "peer": "onnxruntime-web, webgpu bundle",
    "jspi": "onnxruntime-web, JSPI bundle",
}

MACHINE = "pyruntime-bench/1"
"""`format` of what the page /bench/ saves."""

Json = dict[str, Any]
LOADING = (("create, ms", "create_ms"), ("first run", "first_ms"), ("both", "ready_ms"))
RUNS = (("median run, ms", "median_ms"), ("95 %", "p95_ms"))
SIZES = (("GPU peak, MB", "gpu_bytes_peak"), ("WebAssembly", "wasm_bytes"), ("renderer peak", "renderer_peak"))
COUNTS = (("dispatches", "dispatches"), ("pipelines", "pipelines"))


def line(result: Json) -> str:
    """One model while it is measured."""
    parts = [f"{result['model']:<18}"]
    for name, engine in result["engines"].items():
        if "error" in engine:
            parts.append(f"{name} failed: {engine['error']}")
        else:
            parts.append(
                f"{name} " + " / ".join(f"{engine[key]:.1f}" for key in ("create_ms", "first_ms", "median_ms"))
            )
    if check := result["check"]:
        parts.append("same outputs" if check["same"] else f"OUTPUTS DIFFER, by up to {check['max_difference']}")
    return "   ".join(parts)


def ratio(result: Json, key: str) -> float | None:
    ours, peer = (result["engines"][engine].get(key) for engine in ("ours", "peer"))
    return peer / ours if ours and peer else None


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """exp(mean(log r)) over those that are there."""
    there = [r for r in ratios if r]
    return math.exp(statistics.fmean(map(math.log, there))) if there else None


def digits(value: float | None) -> str:
    """Three digits, as many as a figure of this benchmark is good for."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def grid(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    rule = " | ".join("-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths))
    return "\n".join(f"| {text} |" for text in [lines[0], rule, *lines[1:]])


def compared(results: Sequence[Json], columns: Sequence[tuple[str, str]], unit: float = 1) -> str:
    """ours, onnxruntime-web's and the ratio of each figure, model by model; the geometric means last."""
    rows = [["model", *(head for name, _ in columns for head in (name, "ort-web", "ratio"))]]
    for result in results:
        row = [result["model"]]
        for _, key in columns:
            figures = (result["engines"][engine].get(key) for engine in ("ours", "peer"))
            row += [digits(figure / unit if figure is not None else None) for figure in figures]
            row.append(digits(ratio(result, key)))
        rows.append(row)
    last = ["geometric mean"]
    for _, key in columns:
        last += ["", "", digits(geometric_mean(ratio(result, key) for result in results))]
    return grid([*rows, last])


def navigation(measured: Json) -> str:
    """From navigation to the first result, medians."""
    taken = measured["navigation"]
    others = ("ours without snapshot", "with a cached plan", "ratio")
    rows = [["navigation to first result, ms", "ours", "ort-web", "ratio", *others]]
    for name, key in (("cold cache", "cold_ms"), ("warm cache", "warm_ms")):
        ours, peer, plain = (statistics.median(taken[engine][key]) for engine in ("ours", "peer", "plain"))
        kept = statistics.median(taken["kept"][key]) if "kept" in taken and key == "warm_ms" else None
        row = [f"{taken['model']}, {name}", digits(ours), digits(peer), digits(peer / ours), digits(plain)]
        rows.append([*row, digits(kept), digits(peer / kept if kept else None)])
    return grid(rows)


def browser_of(measured: Json) -> str:
    """Name and version."""
    return str(measured.get("browser") or re.sub(r".*(Chrom\w+/[\d.]+).*", r"\1", measured["userAgent"]))


def described(measured: Json) -> str:
    """Where and when."""
    adapter = measured.get("adapter") or {}
    name = " ".join(filter(None, (adapter.get("vendor"), adapter.get("architecture"), adapter.get("description"))))
    place = [browser_of(measured), name or "no adapter", f"{measured['cores']} cores", measured["date"][:10]]
    return ", ".join(place) + f"; {measured['runs']} runs, {measured['repeats']} session(s) of each model"


def table(measured: Json) -> str:
    """Everything a result says."""
    results = [r for r in measured["results"] if not any("error" in e for e in r["engines"].values())]
    failed = [r for r in measured["results"] if r not in results]
    parts = [described(measured)]
    if "navigation" in measured:
        parts.append(navigation(measured))
    parts.append(compared(results, LOADING))
    parts.append(compared(results, RUNS))
    parts.append(compared(results, SIZES, 1e6))
    parts.append(compared(results, COUNTS))
    if any("python" in r["engines"] for r in results):
        rows = [["inside the worker's Python, ms", "create", "first run", "median run", "95 %"]]
        rows += [
            [r["model"], *(digits(r["engines"]["python"][key]) for _, key in (*LOADING[:2], *RUNS))] for r in results
        ]
        parts.append(grid(rows))
    same = [r for r in results if r["check"] and r["check"]["same"]]
    differing = [f"{r['model']} by {r['check']['max_difference']:.2g}" for r in results if r["check"] and r not in same]
    parts.append(
        f"same outputs: {len(same)} of {len(results)}" + (f"; NOT: {', '.join(differing)}" if differing else "")
    )
    if skipped := measured.get("skipped"):
        parts.append(f"left out, the time was over: {', '.join(skipped)}")
    for result in failed:
        errors = [f"{name}: {e['error']}" for name, e in result["engines"].items() if "error" in e]
        parts.append(f"{result['model']} failed. {' '.join(errors)}")
    return "\n\n".join(parts)


def machine_table(measured: Json) -> str:
    """What the page /bench/ measured: the device's rates, then models."""
    adapter, rates = measured["adapter"], measured["device"]
    names = " ".join(filter(None, (adapter[key] for key in ("vendor", "architecture", "device", "description"))))
    rows = [["rate", "figure"], ["memory, GB/s", digits(rates["bandwidth_gb_per_s"])]]
    rows += [["a dispatch, µs", digits(rates["dispatch_us"])], ["readback, ms", digits(rates["readback_ms"])]]
    for engine, product in measured["products"].items():
        rows.append([f"products, GFLOP/s, {engine}", product.get("error") or digits(product["gflop_per_s"])])
    models = [["model", "pyruntime, ms", "8 runs in 10", "onnxruntime-web, ms", "8 runs in 10", "ratio"]]
    for model in measured["models"]:
        found = [model["engines"].get(name, {"error": "–"}) for name in ("pyruntime", "onnxruntime_web")]
        cells = [
            text
            for times in found
            for text in (
                (times["error"], "–")
                if "error" in times
                else (digits(times["median_ms"]), f"{digits(times['p10_ms'])} to {digits(times['p90_ms'])}")
            )
        ]
        models.append([model["name"], *cells, digits(model["ratio"])])
    head = f"{names}, {measured['browser']['user_agent']}, {measured['date'][:10]}"
    return "\n\n".join([head, grid(rows), grid(models)])


def save(measured: Json, folder: Path, name: str = "") -> Path:
    """Write `<date>-<adapter>[-<name>].json`."""
    adapter = measured.get("adapter") or {}
    parts = [measured["date"][:10], adapter.get("vendor") or "none", adapter.get("architecture"), name]
    stem = re.sub(r"[^a-z0-9.-]+", "-", "-".join(filter(None, parts)).lower())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.json"
    path.write_text(json.dumps(measured, indent=1) + "\n")
    return path


def overview(measured: Json, stem: str) -> list[str]:
    """One line about a result: models, GPU and date, browser, and the geometric means of the ratios."""
    results = measured["results"]
    medians = [value for result in results if (value := ratio(result, "median_ms")) is not None]
    means = [digits(geometric_mean(ratio(result, key) for result in results)) for key in ("ready_ms", "gpu_bytes_peak")]
    least = digits(min(medians, default=None))
    date, words = stem[:10], stem[11:].split("-")
    kind = next((word for word in words if word in SETS), "")
    device = " ".join(word for word in words if word != kind and not word.isdecimal())
    link = f"[{device}, {date}](../bench/results/{stem}.json)"
    browser = re.sub(r"[/ ](\d+)\..*", r" \1", browser_of(measured))
    return [f"{len(results)} {SETS[kind]}", link, browser, digits(geometric_mean(medians)), least, *means]


def first_visits(rows: Sequence[Json]) -> str:
    """Markdown: a row for each engine and model, a column for each network."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    lines = [
        f"| model | engine | MB | requests | {' | '.join(networks)} |",
        f"|---|---|--:|--:|{'--:|' * len(networks)}",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        for engine, title in FIRST_VISITORS.items():
            own = {row["network"]: row for row in rows if (row["model"], row["engine"]) == (model, engine)}
            times = " | ".join(f"{statistics.median(own[n]['ms']):,.0f}" if n in own else "–" for n in networks)
            first = next(iter(own.values()))
            lines.append(f"| {model} | {title} | {first['bytes'] / 1e6:.2f} | {first['requests']} | {times} |")
    return "\n".join(lines)


def write_docs() -> None:
    """In docs/performance.md: a line about every result, the newest first, and the newest table of first visits."""
    rows = [["models", "GPU, date", "browser", "median run", "least", "create and first run", "GPU peak"]]
    rows += [overview(json.loads(path.read_text()), path.stem) for path in sorted(RESULTS.glob("*.json"), reverse=True)]
    visits = max((RESULTS / "first_visits").glob("*.json"))
    text = DOCS.read_text()
    for begin, table in ((BEGIN, grid(rows)), (BEGIN_VISITS, first_visits(json.loads(visits.read_text())["results"]))):
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(END)
        text = "\n\n".join([before.rstrip(), begin, table, END]) + after
    DOCS.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--name", default="")
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    for file in args.files:
        measured = json.loads(file.read_text())
        print(machine_table(measured) if measured.get("format") == MACHINE else table(measured))
        if args.save:
            print(f"\nwritten to {save(measured, RESULTS, args.name)}")
    if args.docs:
        write_docs()


if __name__ == "__main__":
    main()
