"""Run the digits model on its held-out test images in headless Chromium, through the built site.

    python3 dev.py demo --once

The page is an empty one of the site's origin, so that nothing else affects the timings. Images go through the site's
JavaScript API to Python in the worker and to WebGPU. Labels are compared with the truth and with onnxruntime's CPU.
"""

from __future__ import annotations

import base64
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from playwright.sync_api import sync_playwright

from e2e.harness.browser import guarded_page, launch
from tools.devkit.chromium import ensure_chromium
from tools.devkit.server import Server
from tools.devkit.shell import DIST, ROOT
from tools.digits_data import from_counts, load_split

MODEL = ROOT / "models" / "digits.onnx"
SHOWN = 10
SINGLE_RUNS = 31
ACCURACY_WANTED = 0.98

Floats = npt.NDArray[np.float32]

# Runs in the page. Times are milliseconds.
SCRIPT = """
async ({images, count, side, singleRuns}) => {
  const { InferenceSession, Tensor, adapterInfo } = await import('/web/pyruntime.js');
  const bytes = Uint8Array.from(atob(images), (letter) => letter.charCodeAt(0));
  const pixels = new Float32Array(bytes.buffer);
  const clock = async (work) => {
    const begin = performance.now();
    const result = await work();
    return [result, performance.now() - begin];
  };
  const phases = {};
  const onProgress = ({ phase, status, ms }) => { if (status === 'end') phases[phase] = ms; };
  const [session, create] = await clock(() => InferenceSession.create('/models/digits.onnx', { onProgress }));
  const one = (index) => new Tensor('float32', pixels.slice(index * side * side, (index + 1) * side * side),
                                    [1, 1, side, side]);
  const [, first] = await clock(() => session.run({ image: one(0) }));
  const firstAfterNavigation = performance.now();
  const singles = [];
  for (let i = 0; i < singleRuns; i++) singles.push((await clock(() => session.run({ image: one(i % count) })))[1]);
  const batch = new Tensor('float32', pixels, [count, 1, side, side]);
  const [outputs, batchFirst] = await clock(() => session.run({ image: batch }));
  const [, batchAgain] = await clock(() => session.run({ image: batch }));
  const adapter = await adapterInfo();
  const { memory, dispatches } = await session.summary();
  await session.release();
  return { probabilities: [...outputs.probabilities.data], adapter, phases, memory, dispatches,
           create, first, firstAfterNavigation, singles, batchFirst, batchAgain };
}
"""


def main() -> int:
    split = load_split()
    images, labels = from_counts(split.heldout_counts), split.heldout_labels
    begin = time.perf_counter()
    report, version = run_in_browser(images)
    seconds = time.perf_counter() - begin
    probabilities = np.array(report["probabilities"], np.float32).reshape(len(labels), -1)
    predicted = probabilities.argmax(1)
    (reference,) = onnxruntime.InferenceSession(MODEL).run(None, {"image": images})

    print_predictions(probabilities, labels)
    print_report(report, version, seconds)
    accuracy = float((predicted == labels).mean())
    agreeing = int((predicted == reference.argmax(1)).sum())
    difference = float(np.abs(probabilities - reference).max())
    print(f"held-out digits    {int((predicted == labels).sum())} of {len(labels)} right ({accuracy:.2%})")
    print(f"onnxruntime's CPU  {agreeing} of {len(labels)} labels the same, largest difference {difference:.1e}")
    if accuracy < ACCURACY_WANTED or agreeing != len(labels):
        print(f"expected at least {ACCURACY_WANTED:.0%} right, and the labels of onnxruntime's CPU", file=sys.stderr)
        return 1
    return 0


def run_in_browser(images: Floats) -> tuple[dict[str, Any], str]:
    """Return the result of SCRIPT, and the browser's version."""
    arguments = {
        "images": base64.b64encode(images.tobytes()).decode(),
        "count": len(images),
        "side": images.shape[-1],
        "singleRuns": SINGLE_RUNS,
    }
    executable = ensure_chromium(Path(sys.executable))
    with (
        Server({"/": DIST, "/e2e/": ROOT / "e2e" / "pages"}) as server,
        sync_playwright() as playwright,
        launch(playwright, executable) as browser,
        guarded_page(browser, server.url) as (page, _),
    ):
        page.goto(f"{server.url}e2e/blank.html")
        return page.evaluate(SCRIPT, arguments), browser.version


def print_predictions(probabilities: Floats, labels: npt.NDArray[np.int64]) -> None:
    print(f"\nThe first {SHOWN} test images: predicted digits with their probabilities")
    for row, label in zip(probabilities[:SHOWN], labels, strict=False):
        order = row.argsort()[::-1][:3]
        best = "   ".join(f"{digit}  {row[digit]:7.2%}" for digit in order)
        print(f"  {'right' if order[0] == label else 'WRONG'}  it is a {label}:   {best}")


def print_report(report: dict[str, Any], version: str, seconds: float) -> None:
    adapter = report["adapter"]
    name = " ".join(filter(None, (adapter["vendor"], adapter["architecture"]))) if adapter else "none: NumPy on the CPU"
    phases = ", ".join(f"{phase} {ms:.0f}" for phase, ms in report["phases"].items())
    memory = report["memory"]
    print(f"\nbrowser            Chromium {version}, headless, {seconds:.1f} s in all")
    print(f"GPU adapter        {name} {adapter['description'] if adapter else ''}".rstrip())
    print(f"loading, ms        {phases} (some at once)")
    print(f"first prediction   {report['firstAfterNavigation'] / 1000:.2f} s after navigation")
    print(f"one image          first {report['first']:.1f} ms, then {np.median(report['singles']):.1f} ms (median)")
    print(f"all images at once first {report['batchFirst']:.1f} ms, then {report['batchAgain']:.1f} ms")
    if memory:
        print(f"GPU memory         {memory['peak']:,} bytes of activations for these, {memory['weights']:,} of weights")


if __name__ == "__main__":
    sys.exit(main())
