"""Samples in the browser: a batch of them runs on WebGPU with default providers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from e2e.conformance.suites import install
from tests.fuzz.build import MOST_BYTES, Sample
from tests.fuzz.oracle import judge

__all__ = ["checker"]

RUN_SECONDS = "60"
"""After which a run that gets no answer is what is wrong with its sample."""


def checker(python: Callable[..., Any]) -> Callable[[list[Sample]], str]:
    """A function that says what is wrong with a batch of samples in the browser, or nothing.

    Batches with an odd number of nodes run on the kernels of GPUs also where the browser has SwiftShader.

    Args:
        python: runs Python source there (the fixture `python_in_browser`).
    """
    install(python)

    def check(drawn: list[Sample]) -> str:
        judged = [judge(sample) for sample in drawn]
        cases = [{**j.case().message(), "name": str(i)} for i, j in enumerate(judged) if j.nbytes <= MOST_BYTES]
        odd = sum(len(sample.model.graph.node) for sample in drawn) % 2
        outcomes = python(
            "from conformance_runner import check_all\nawait check_all(cases, entries=entries)",
            cases=cases,
            entries={"pyruntime.disable": "software" if odd else "", "pyruntime.limits.run_seconds": RUN_SECONDS},
        )
        wrong = {int(i): outcome["wrong"] for i, outcome in outcomes.items() if outcome["wrong"]}
        kernels = "GPU kernels" if odd else "default kernels"
        return "\n".join(f"sample {i} (by {judged[i].by}, {kernels}): {text}" for i, text in wrong.items())

    return check
