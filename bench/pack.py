"""The benchmark as a static folder, for a machine that has a browser and a GPU but neither npm nor Playwright.

    python bench/pack.py OUT [--models DIR]... [--decoders DIR] [--light] [NAME ...]

writes the built site, onnxruntime-web, the pages and the models below OUT. `bench.html` there redirects to the page
with everything it is asked: `bench.html?models=bert,vit&runs=30&repeats=3&post=1` runs and POSTs JSON to /result.
Large files and weights are compressed: run
 `python3 refill.py .` in OUT before serving it, with `serve.py` there for one
(it opens pages, too). What was POSTed becomes a file of bench/results/ with
`python bench/report.py --save RESULT.json [--name NAME]`.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import cases
from bench.folder import write_pages
from tools.devkit import fetch, pins
from tools.devkit.site import WEB, build_site

TOOLS = [Path(__file__).parent / name for name in ("refill.py", "serve.py")]
# What compresses well, in bytes.
PACKED, SMALLEST = (".wasm", ".js", ".mjs", ".onnx"), 100_000
REDIRECT = """<!doctype html>
<meta charset="utf-8">
<script>location.replace('bench/bench.html' + location.search)</script>
"""


def pack(out: Path, models: list[cases.Case], decoders: Path | None = None) -> None:
    """Write the folder; what was there is gone. In `decoders` are folders that bench/decoders.py wrote."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(build_site(Path(sys.executable)), out)
    shutil.copytree(WEB, out / "src" / "web")
    peer = Path(os.environ.get("ONNXRUNTIME_WEB") or fetch.npm_package(pins.ONNXRUNTIME_WEB))
    shutil.copytree(peer / "dist", out / "ort")
    urls = {case.name: f"../bench-models/{case.name}.onnx" for case in models}
    write_pages(out / "bench", models, urls)
    (out / "bench-models").mkdir()
    for case in models:
        shutil.copyfile(case.path, out / "bench-models" / f"{case.name}{case.path.suffix}")
    if decoders is not None:
        shutil.copytree(decoders, out / "bench-models", dirs_exist_ok=True)
    for tool in TOOLS:
        shutil.copyfile(tool, out / tool.name)
    (out / "bench.html").write_text(REDIRECT)
    for file in sorted(out.rglob("*")):
        if file.suffix in PACKED and file.stat().st_size > SMALLEST:
            packed = file.with_name(f"{file.name}.packed")
            packed.write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
            file.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--models", type=Path, action="append", default=[], metavar="DIR", help="generated or stripped")
    parser.add_argument("--decoders", type=Path, metavar="DIR", help="language models, generated or stripped")
    parser.add_argument("--light", action="store_true", help="the nine light models of the onnx package too")
    args = parser.parse_intermixed_args()  # names after flags, too
    every = [cases.digits(), *(cases.light() if args.light else [])]
    for folder in args.models:
        every += cases.generated(folder)
    pack(args.out, cases.choose(every, args.names), args.decoders)
    files = [file for file in args.out.rglob("*") if file.is_file()]
    print(f"{args.out}: {len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
