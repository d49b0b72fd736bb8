"""The commands of dev.py. Each works in a clean checkout: it first creates what it needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.devkit import chromium, endurance, fetch, firefox, pins, snapshot, vulkan
from tools.devkit.docs_site import publish_docs
from tools.devkit.packages import build_packages
from tools.devkit.pyodide import ensure_pyodide
from tools.devkit.server import Server
from tools.devkit.shell import DIST, ROOT, SetupError, python, run, say
from tools.devkit.site import build_site, mounts
from tools.devkit.venv import ensure_venv

PYTEST = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-q", "--durations=25")
"""Two processes, of which each takes whole files in the order of `tests.selection.longest_first`: tests of a file share
what they opened. Two browsers, since the GPU process of one is busy on one processor."""


def build() -> int:
    build_site(ensure_venv())
    publish_docs(python())
    say(f"the site is in {DIST}, its documentation in {DIST / 'docs'}")
    return 0


def docs() -> int:
    """Build only the documentation; its examples need the page, which is built if it is missing."""
    ensure_venv()
    if not DIST.is_dir():
        build_site(python())
    say(f"the documentation is in {publish_docs(python())}")
    return 0


def package(*, folder: Path, tag: str) -> int:
    build_packages(ensure_venv(), folder, tag)
    return 0


def serve(*, port: int) -> int:
    build_site(ensure_venv())
    publish_docs(python())
    with Server(mounts(DIST), port=port, shared=True) as server:  # pages of other origins may use it too
        say(f"serving {server.url}, with the sources of web/ as they are: {server.url}src/ (Ctrl+C ends)")
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


def test(*, native: bool, browser: bool, chosen: str, pytest_args: Sequence[str]) -> int:
    """Run both suites, the second even if the first fails.

    What only the second suite needs is prepared while packages are installed and the first runs, since most of that is
    downloads.

    Args:
        chosen: `core` or `ci`: a part of the tests, always the same (`tests/selection.py`); `all`.
        pytest_args: further arguments of pytest. If they name files or folders, only those run, each in its suite.
    """
    os.environ.pop("PYRUNTIME_TESTS", None)
    if chosen != "all":
        os.environ["PYRUNTIME_TESTS"] = chosen
    if chosen == "core":
        os.environ.setdefault(snapshot.SWITCH, "quick")
    suites, options = chosen_tests(pytest_args)
    native, browser = native and bool(suites["tests"]), browser and bool(suites["e2e"])
    if not native and not browser:
        raise SetupError("The given files are not of the suite asked for: tests/ is native, e2e/ needs a browser.")
    statuses = []
    with ThreadPoolExecutor(1) as thread:
        if browser:
            thread.submit(ensure_pyodide)
        ensure_venv()
        environment = thread.submit(browsers, chosen) if browser else None
        if native:
            statuses.append(native_tests(suites["tests"], options))
        if environment is not None:
            made = environment.result()
            say("browser tests")
            statuses.append(run([python(), "-m", "pytest", *PYTEST, *suites["e2e"], *options], env=made))
            if chosen == "ci" and not pytest_args:
                say("defences taken away")
                statuses.append(run([python(), "-m", "tests.mutations", "--ci"], env=made))
    return max(statuses)


def nightly() -> int:
    """Run what CI has no time for: every test, and the long forms of the reliability tests."""
    statuses = [test(native=True, browser=True, chosen="all", pytest_args=()), endurance.soak(minutes=30)]
    return max(statuses)


def chosen_tests(pytest_args: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the files, folders or tests to run in each suite, and pytest's other arguments.

    Without named ones, both suites are run completely.
    """
    suites: dict[str, list[str]] = {"tests": [], "e2e": []}
    options: list[str] = []
    for argument in pytest_args:
        path = ROOT / argument.partition("::")[0]
        suite = path.relative_to(ROOT).parts[:1] if path.is_relative_to(ROOT) else ()
        named = path.exists() and bool(suite) and suite[0] in suites
        (suites[suite[0]] if named else options).append(argument)
    return (suites if any(suites.values()) else {name: [name] for name in suites}), options


def browsers(chosen: str) -> dict[str, str]:
    """Return environment variables that name the browsers for the tests; also builds the site."""
    executable = chromium.ensure_chromium(python())
    build_site(python())
    other = None if chosen == "core" else firefox.ensure_firefox()
    return {chromium.VARIABLE: str(executable), firefox.VARIABLE: str(other or "")}


def native_tests(chosen: Sequence[str], options: Sequence[str]) -> int:
    """Run tests/, in one process if tests are named or pytest has options."""
    vulkan.ensure_vulkan()
    say("ONNX's node tests")
    run([python(), "-c", "from tests.harness import node_tests; node_tests()"])
    say("native tests")
    alone = bool(options) or list(chosen) != ["tests"]
    return run([python(), "-m", "pytest", *(() if alone else PYTEST), *chosen, *options])


def bench(args: Sequence[str], script: str = "run.py") -> int:
    """Run a script of bench/, with a browser, the site and onnxruntime-web."""
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
        environment["TRANSFORMERS_JS"] = str(fetch.transformers_js())
    return run([python(), path, *args], env=environment)


def lint(*, fix: bool) -> int:
    """Run every checker, even after a failure, as many at a time as there are CPUs."""
    ensure_venv()
    bin_folder = python().parent
    if fix:
        run([bin_folder / "ruff", "check", "--fix", "--quiet"])
        run([bin_folder / "ruff", "format", "--quiet"])
        run([python(), "-m", "tools.operator_index"])
        run([python(), "-m", "tools.operator_types"])
        run([python(), "-m", "tools.docs.figure"])
        run([python(), "-m", "tools.switches"])
        run([python(), "-m", "e2e.conformance", "--table"])
    checks: list[tuple[str, list[str | Path]]] = [
        ("mypy --strict", [bin_folder / "mypy"]),
        ("ruff check", [bin_folder / "ruff", "check", "--quiet"]),
        ("ruff format", [bin_folder / "ruff", "format", "--check", "--quiet"]),
        ("import-linter", [bin_folder / "lint-imports"]),
        ("import cycles of web/", [python(), "-m", "tools.lint.cycles"]),
        ("private attributes", [python(), "-m", "tools.lint.privates"]),
        ("sizes", [python(), "-m", "tools.lint.code_limits"]),
        ("folders", [python(), "-m", "tools.lint.folders"]),
        ("words", [python(), "-m", "tools.lint.words"]),
        ("waits of tests", [python(), "-m", "tools.lint.waits"]),
        ("tsc", tsc()),
        ("pyruntime/ops/index.py", [python(), "-m", "tools.operator_index", "--check"]),
        ("pyruntime/ops/types.py", [python(), "-m", "tools.operator_types", "--check"]),
        ("docs/images/layers.svg", [python(), "-m", "tools.docs.figure", "--check"]),
        ("docs/SWITCHES.md", [python(), "-m", "tools.switches", "--check"]),
        ("OPERATORS.md", [python(), "-m", "e2e.conformance", "--table", "--check"]),
        ("docs/browsers.md", [python(), "-m", "e2e.services", "--check"]),
    ]

    def passes(check: tuple[str, list[str | Path]]) -> bool:
        name, command = check
        status = run(command, quiet=True)
        say(f"{name}: {'passed' if status == 0 else 'failed'}")
        return status == 0

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return 0 if all(list(threads.map(passes, checks))) else 1


def tsc() -> list[str | Path]:
    """Return the command that checks web/ with TypeScript's compiler and WebGPU's types (located by jsconfig.json)."""
    compiler = fetch.npm_package(pins.TYPESCRIPT) / "bin" / "tsc"
    return ["node", compiler, "--project", ROOT / "jsconfig.json", "--pretty", "false"]
