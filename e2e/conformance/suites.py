"""The suites: which cases run where, and two ways to run them: in this process and in the browser."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.conformance import runner
from e2e.conformance.cases import MODEL_SETS, Case, light_cases, model_cases, node_cases, plain_tensor_tests
from e2e.conformance.known import known_failures, verdict

__all__ = ["SUITES", "Results", "Suite", "install", "run_in_browser", "run_natively"]

BATCH_CASES, BATCH_BYTES = 60, 8 << 20


@dataclass(frozen=True)
class Suite:
    """A set of cases and how sessions are made for it.

    Attributes:
        name: also the name of its list of known failures.
        where: 'native' (NumPy), 'desktop' (`tests/desktop.py`) or 'browser' (WebGPU through the built site).
        fallback: False sets session.disable_cpu_ep_fallback.
    """

    name: str
    about: str
    where: str
    cases: Callable[[], Iterator[Case]]
    fallback: bool = True


def _plain_cases() -> Iterator[Case]:
    names = plain_tensor_tests()
    return (case for case in node_cases() if case.name in names)


def _model_cases() -> Iterator[Case]:
    for kind in MODEL_SETS:
        yield from model_cases(kind)


SUITES = {
    suite.name: suite
    for suite in (
        Suite("native", "node tests on NumPy", "native", node_cases),
        Suite("native_models", "simple, pytorch-operator, pytorch-converted on NumPy", "native", _model_cases),
        Suite("native_light", "the nine light models on NumPy", "native", light_cases),
        Suite("desktop", "node tests on the desktop's GPU", "desktop", node_cases),
        Suite("desktop_models", "simple, pytorch-operator, pytorch-converted there", "desktop", _model_cases),
        Suite("default", "node tests with default providers", "browser", node_cases),
        Suite("without_fallback", "plain-tensor node tests, GPU only", "browser", _plain_cases, fallback=False),
        Suite("models", "simple, pytorch-operator, pytorch-converted", "browser", _model_cases),
        Suite("light", "the nine light models", "browser", light_cases),
    )
}


@dataclass
class Results:
    """What came of a suite.

    Attributes:
        wrong: case name to what is wrong, or nothing.
        facts: case name to what else its session told (see `runner.check`).
        seconds: wall time.
    """

    suite: Suite
    wrong: dict[str, str] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> set[str]:
        """Names of the cases that pass."""
        return {name for name, wrong in self.wrong.items() if not wrong}

    def add(self, name: str, outcome: dict[str, Any]) -> None:
        """Keep what `runner.check` said of one case."""
        self.wrong[name] = outcome.pop("wrong")
        self.facts[name] = outcome

    def check(self, part: bool = False) -> None:
        """Compare with the suite's list of known failures.

        Args:
            part: these are a part of the suite's cases.

        Raises:
            AssertionError: they differ; the message says how.
        """
        known = known_failures(self.suite.name)
        differences = verdict(self.wrong, {n: k for n, k in known.items() if n in self.wrong} if part else known)
        if differences:
            raise AssertionError(f"{self.line()}\n{differences}")

    def without_fallback(self, suite: Suite, names: Iterable[str]) -> Results:
        """What came of cases of this suite where no node may run on the host."""
        wrong = {name: self.facts[name]["refused"] or self.wrong[name] for name in names}
        return Results(suite, wrong, {name: self.facts[name] for name in names}, self.seconds)

    def line(self) -> str:
        """One row of the result table."""
        listed = len(known_failures(self.suite.name))
        return (
            f"{self.suite.about:55} {len(self.passed):5} of {len(self.wrong):5} pass"
            f"  ({listed} known failures)  {self.seconds:6.1f} s"
        )


def run_natively(suite: Suite, only: Callable[[Case], bool] = lambda case: True) -> Results:
    """Run the suite in this process: on NumPy, or within `on_desktop` on the GPU."""
    providers = None if suite.where != "native" else ["CPUExecutionProvider"]
    results = Results(suite)
    cases = [c for c in suite.cases() if only(c)]
    began = time.perf_counter()

    async def go() -> None:
        for case in cases:
            results.add(case.name, await runner.check(case.message(), suite.fallback, providers))

    asyncio.run(go())
    results.seconds = time.perf_counter() - began
    return results


def run_in_browser(
    suite: Suite,
    python: Callable[..., Any],
    only: Callable[[Case], bool] = lambda case: True,
    batch: int = BATCH_CASES,
    entries: dict[str, str] | None = None,
) -> Results:
    """Run the suite in the browser, batch by batch.

    Args:
        python: runs Python source there (the fixture `python_in_browser`).
        entries: session config entries.
    """
    install(python)
    results = Results(suite)
    began = time.perf_counter()
    for cases in _batches((c for c in suite.cases() if only(c)), batch):
        messages = [case.message() for case in cases]
        outcomes = python(
            "from conformance_runner import check_all\nawait check_all(cases, fallback=fallback, entries=entries)",
            cases=messages,
            fallback=suite.fallback,
            entries=entries or {},
        )
        for name, outcome in outcomes.items():
            results.add(name, outcome)
    results.seconds = time.perf_counter() - began
    return results


def install(python: Callable[..., Any]) -> None:
    """Make `runner` importable in the browser as `conformance_runner`."""
    python(
        """
        import sys, types
        module = sys.modules["conformance_runner"] = types.ModuleType("conformance_runner")
        exec(compile(text, "conformance_runner.py", "exec"), module.__dict__)
        """,
        text=Path(runner.__file__).read_text(),
    )


def _batches(cases: Iterable[Case], size: int) -> Iterator[list[Case]]:
    batch: list[Case] = []
    nbytes = 0
    for case in cases:
        batch.append(case)
        nbytes += case.nbytes
        if len(batch) >= size or nbytes >= BATCH_BYTES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch
