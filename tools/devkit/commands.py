"""The commands of dev.py. Each works in a clean checkout: it first makes what it needs."""

from __future__ import annotations

import datetime
import os
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.devkit import chromium, fetch, firefox, pins
from tools.devkit.server import Server
from tools.devkit.shell import DIST, ROOT, SetupError, child_environment, python, run, say
from tools.devkit.site import build_site
from tools.devkit.venv import ensure_venv

FIRST_HALF = ("tests/onnx", "tests/bad_models", "tests/hostile", "tests/compiler")
"""Native tests that take about as long as all the others: the two halves run at the same time."""

PARTS = 5
"""Days in which each test has its turn."""

BROWSER = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-q", "--durations=25")
"""Two browsers: the GPU process of one is busy on one processor. Tests of a file share what they opened. In the
order that e2e/conftest.py puts them in; what takes longest is told."""


def build() -> int:
    build_site(ensure_venv())
    say(f"the site is in {DIST}")
    return 0


def serve(*, port: int) -> int:
    build_site(ensure_venv())
    with Server({"/": DIST}, port=port, shared=True) as server:  # pages of other origins may use it, too
        say(f"serving {server.url} (Ctrl+C ends)")
        server.wait()
    return 0


def demo(*, once: bool, port: int) -> int:
    ensure_venv()
    browser = chromium.ensure_chromium(python())
    build_site(python())
    status = run([python(), "-m", "tools.demo"], env={chromium.VARIABLE: str(browser)})
    if status or once:
        return status
    return serve(port=port)


def test(*, native: bool, browser: bool, everything: bool, pytest_args: Sequence[str]) -> int:
    """Run both suites, also when the first fails: one run shows everything that is wrong.

    What only the second needs is made ready during the first: most of that is downloads.

    Args:
        everything: every test, which takes an hour; else those of today (`tests/sampling.py`).
        pytest_args: more of pytest's. Files and folders among them run alone, each in its suite.
    """
    ensure_venv()
    if everything:
        os.environ.pop("PYRUNTIME_SAMPLE", None)
    else:
        sample = os.environ.setdefault("PYRUNTIME_SAMPLE", f"{datetime.date.today().toordinal() % PARTS}/{PARTS}")
        say(f"the tests of today (again: PYRUNTIME_SAMPLE={sample}); --all: every test")
    suites, options = chosen_tests(pytest_args)
    native, browser = native and bool(suites["tests"]), browser and bool(suites["e2e"])
    if not native and not browser:
        raise SetupError("The given files are not of the suite asked for: tests/ is native, e2e/ needs a browser.")
    statuses = []
    with ThreadPoolExecutor(1) as thread:
        environment = thread.submit(browsers) if browser else None
        if native:
            statuses.append(native_tests(suites["tests"], options))
        if environment is not None:
            made = environment.result()
            say("browser tests")
            statuses.append(run([python(), "-m", "pytest", *BROWSER, *suites["e2e"], *options], env=made))
    return max(statuses)


def chosen_tests(pytest_args: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Which files, folders or tests run of each suite, and pytest's other arguments.

    Both suites are run whole where none is named.
    """
    suites: dict[str, list[str]] = {"tests": [], "e2e": []}
    options: list[str] = []
    for argument in pytest_args:
        path = ROOT / argument.partition("::")[0]
        suite = path.relative_to(ROOT).parts[:1] if path.is_relative_to(ROOT) else ()
        named = path.exists() and bool(suite) and suite[0] in suites
        (suites[suite[0]] if named else options).append(argument)
    return (suites if any(suites.values()) else {name: [name] for name in suites}), options


def browsers() -> dict[str, str]:
    """The environment that names the browsers to the tests; the site is built, too."""
    executable = chromium.ensure_chromium(python())
    build_site(python())
    return {chromium.VARIABLE: str(executable), firefox.VARIABLE: str(firefox.ensure_firefox() or "")}


def native_tests(chosen: Sequence[str], options: Sequence[str]) -> int:
    """tests/ in two halves at the same time; in one process where tests are chosen or pytest has options."""
    say("ONNX's node tests")
    run([python(), "-c", "from tests.harness import node_tests; node_tests()"])
    say("native tests")
    command: list[str | Path] = [python(), "-m", "pytest"]
    if options or list(chosen) != ["tests"]:
        return run([*command, *chosen, *options])
    rest = [*command, "-q", "-p", "no:cacheprovider", "tests", *(f"--ignore={folder}" for folder in FIRST_HALF)]
    with tempfile.TemporaryFile("w+") as output:
        other = subprocess.Popen(rest, cwd=ROOT, env=child_environment(), stdout=output, stderr=subprocess.STDOUT)
        status = run([*command, "-q", *FIRST_HALF])
        status = max(status, other.wait())
        output.seek(0)
        print(output.read(), flush=True)
    return status


def bench(args: Sequence[str], script: str = "run.py") -> int:
    """A script of bench/, with a browser, the site and onnxruntime-web."""
    ensure_venv()
    if args[:1] == ["lengths"]:
        script, args = "lengths.py", args[1:]
    if args[:1] == ["--first-visits"]:
        script, args = "first_visits.py", args[1:]
    path = ROOT / "bench" / script
    if not path.is_file():
        raise SetupError(f"bench/{script} is missing: this is no complete checkout.")
    browser = chromium.ensure_chromium(python())
    build_site(python())
    peer = fetch.npm_package(pins.ONNXRUNTIME_WEB)
    environment = {chromium.VARIABLE: str(browser), "ONNXRUNTIME_WEB": str(peer)}
    if script == "lengths.py":
        environment["TRANSFORMERS_JS"] = str(fetch.npm_package(pins.TRANSFORMERS_JS))
    return run([python(), path, *args], env=environment)


def lint(*, fix: bool) -> int:
    """Every checker, also after one has failed, as many at a time as there are processors."""
    ensure_venv()
    bin_folder = python().parent
    if fix:
        run([bin_folder / "ruff", "check", "--fix", "--quiet"])
        run([bin_folder / "ruff", "format", "--quiet"])
        run([python(), "-m", "tools.operator_index"])
        run([python(), "-m", "tools.api_docs"])
        run([python(), "-m", "tools.switches"])
        run([python(), "-m", "e2e.conformance", "--table"])
    checks: list[tuple[str, list[str | Path]]] = [
        ("mypy --strict", [bin_folder / "mypy"]),
        ("ruff check", [bin_folder / "ruff", "check", "--quiet"]),
        ("ruff format", [bin_folder / "ruff", "format", "--check", "--quiet"]),
        ("import-linter", [bin_folder / "lint-imports"]),
        ("import cycles of web/", [python(), "-m", "tools.devkit.cycles"]),
        ("exceptions", [python(), "-m", "tools.devkit.boundaries"]),
        ("private attributes", [python(), "-m", "tools.devkit.privates"]),
        ("sizes", [python(), "-m", "tools.devkit.code_limits"]),
        ("folders", [python(), "-m", "tools.devkit.folders"]),
        ("words", [python(), "-m", "tools.devkit.words"]),
        ("tsc", tsc()),
        ("pyruntime/ops/index.py", [python(), "-m", "tools.operator_index", "--check"]),
        ("docs/api.md", [python(), "-m", "tools.api_docs", "--check"]),
        ("docs/SWITCHES.md", [python(), "-m", "tools.switches", "--check"]),
        ("OPERATORS.md", [python(), "-m", "e2e.conformance", "--table", "--check"]),
    ]

    def passes(check: tuple[str, list[str | Path]]) -> bool:
        name, command = check
        status = run(command, quiet=True)
        say(f"{name}: {'passed' if status == 0 else 'failed'}")
        return status == 0

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return 0 if all(list(threads.map(passes, checks))) else 1


def tsc() -> list[str | Path]:
    """TypeScript's compiler as a checker of web/, with WebGPU's types (jsconfig.json names where they are)."""
    fetch.npm_package(pins.WEBGPU_TYPES)
    compiler = fetch.npm_package(pins.TYPESCRIPT) / "lib" / "tsc.js"
    return ["node", compiler, "--project", ROOT / "jsconfig.json", "--pretty", "false"]
