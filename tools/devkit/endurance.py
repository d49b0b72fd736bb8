"""`dev.py fuzz` and `dev.py soak`: long-running tests."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.devkit import chromium
from tools.devkit.shell import CACHE, ROOT, check, fingerprint, put_stamp, python, run, say, stamped
from tools.devkit.site import build_site
from tools.devkit.venv import ensure_venv

TARGETS = ("reader", "load")
CRASHES = CACHE / "fuzz" / "crashes"


@dataclass(frozen=True)
class Row:
    """A line of the result table."""

    name: str
    amount: str
    seconds: float
    status: int

    def __str__(self) -> str:
        return f"{self.name:<42} {self.amount:<14} {self.seconds:>7.0f} s  {'passed' if self.status == 0 else 'FAILED'}"


def fuzz(*, seconds: int, fresh: bool = False) -> int:
    """Fuzz every target for `seconds`; findings are in .cache/fuzz/crashes. `fresh` starts from the seeds alone."""
    return max(row.status for row in _fuzz(seconds, fresh))


def differential(*, minutes: float, seed: int) -> int:
    """Compare random operators and graphs with onnxruntime on NumPy, in the browser, and as plans, for `minutes`."""
    ensure_venv()
    environment = {chromium.VARIABLE: str(chromium.ensure_chromium(python()))}
    build_site(python())
    return run([python(), "-m", "tests.fuzz", "--minutes", str(minutes), "--seed", str(seed)], env=environment)


def soak(*, minutes: int) -> int:
    """Run every long test, for about `minutes` in total; print a table."""
    rows = _fuzz(minutes * 60 // 4, fresh=False)
    factor = max(2, minutes // 3)
    rows.append(_pytest("mutated models", factor, ["tests/hostile"]))
    rows.append(_pytest("bad models, every cut and flip (native)", factor, ["tests/bad_models"]))
    rows.append(_pytest("devices that fail or are lost (native)", factor, ["tests/session"]))
    rows.append(_pytest("plans of random graphs, proved", factor, ["tests/fuzz/test_plans.py"]))
    browser = {chromium.VARIABLE: str(chromium.ensure_chromium(python()))}
    build_site(python())
    began = time.monotonic()
    status = run([python(), "-m", "tests.mutations"], env=browser)
    rows.append(Row("defences taken away, tests fail", "each", time.monotonic() - began, status))
    rows.append(_pytest("every combination of kernels' tests (browser)", factor, ["e2e/ops"], browser))
    models = ["e2e/conformance/test_forms.py", "e2e/conformance/test_models.py"]
    rows.append(_pytest("residuals of own inputs, models (browser)", factor, models, browser))
    rows.append(_pytest("texts of 200 tokens (browser)", factor, ["e2e/text/test_writing_memory.py"], browser))
    cached = ["e2e/plans/test_cached_plan_caches.py", "e2e/plans/test_cached_plan_texts.py"]
    rows.append(_pytest("caches and long texts of cached plans (browser)", factor, cached, browser))
    files = [f"e2e/reliability/test_reliability{part}.py" for part in ("", "_models", "_memory", "_page")]
    for name, select in {
        "lost devices (browser)": "loss",
        "device calls that fail (browser)": "fault or outside_of_any_run or out_of_memory",
        "bad models, every cut and flip (browser)": "bad_models or damaged_models",
        "overlapping runs (browser)": "overlapping",
        "many input shapes (browser)": "many_input_shapes",
        "many runs, memory flat (browser)": "many_runs",
    }.items():
        rows.append(_pytest(name, factor, [*files, "-k", select], browser))
    print(f"\n{'what':<42} {'amount':<14} {'time':>9}  result")
    for row in rows:
        print(row)
    return max(row.status for row in rows)


def _fuzz(seconds: int, fresh: bool) -> list[Row]:
    """Run the fuzz targets in parallel, one on each CPU."""
    _ensure_atheris()

    def one(target: str) -> Row:
        corpus: list[str | Path] = [] if fresh else ["--corpus", CACHE / "fuzz" / target]
        command = [python(), "-m", "tests.hostile", target, "--seconds", str(seconds), "--crashes", CRASHES, *corpus]
        began = time.monotonic()
        status = run(command, quiet=True)
        return Row(f"fuzzing: {target}", f"{seconds} s", time.monotonic() - began, status)

    say(f"fuzzing {' and '.join(TARGETS)} for {seconds} s")
    with ThreadPoolExecutor() as threads:
        return list(threads.map(one, TARGETS))


def _pytest(name: str, factor: int, args: list[str], env: dict[str, str] | None = None) -> Row:
    say(name)
    began = time.monotonic()
    status = run(
        [python(), "-m", "pytest", "-q", *args], env={"PYRUNTIME_SOAK": str(factor), **(env or {})}, quiet=True
    )
    return Row(name, f"x {factor}", time.monotonic() - began, status)


def _ensure_atheris() -> None:
    """Install atheris, which only fuzzing needs."""
    ensure_venv()
    requirements = ROOT / "requirements-fuzz.txt"
    stamp = python().parents[1] / "pyruntime-fuzz.stamp"
    if not stamped(stamp, fingerprint(requirements)):
        say(f"installing {requirements.name} into .venv")
        check([python(), "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", requirements])
        put_stamp(stamp, fingerprint(requirements))
