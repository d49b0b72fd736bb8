"""Bad models and damaged ones end with an exception that names what is wrong, in a browser as natively."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from e2e.harness.python import BrowserPython
from e2e.harness.sessions import SOAK, X, Y, run
from tests.bad_models import test_damage
from tests.bad_models.corpus import cases
from tests.bad_models.damage import Damaged, damaged
from tests.session import models
from tests.session.doubles import FaultyDevice, on_device


def test_bad_models__in_one_batch__raise_what_they_name_and_the_next_good_model_runs(
    python_in_browser: BrowserPython,
) -> None:
    batch = [
        {
            "name": c.name,
            "data": c.data,
            "feeds": c.feeds,
            "files": c.files,
            "limits": {f"pyruntime.limits.{k}": str(v) for k, v in c.limits.items()},
        }
        for c in cases().values()
        if not c.host_only
    ]
    result = run(
        python_in_browser,
        """
        import time
        outcomes = {}
        gpu = await open_device()
        before = set(gpu.ledger.live)
        for case in batch:
            made = SessionOptions()
            for key, value in case["limits"].items():
                made.add_session_config_entry(key, value)
            made.external_files.update(case["files"])
            began = time.perf_counter()
            try:
                session = await InferenceSession.create(case["data"], made)
                try:
                    await session.run_async(None, case["feeds"])
                    outcome = "an answer", ""
                finally:
                    session.release()
            except Exception as error:
                outcome = type(error).__name__, str(error)
            outcomes[case["name"]] = [*outcome, time.perf_counter() - began, more_than(gpu, before)]
        session = await InferenceSession.create(good)
        (y,) = await session.run_async(None, {"x": x})
        session.release()
        {"outcomes": outcomes, "y": y}
        """,
        batch=batch,
        good=models.double(),
        x=X,
    )
    np.testing.assert_array_equal(result["y"], Y)
    wrong = {}
    for name, (error, message, seconds, left) in result["outcomes"].items():
        case = cases()[name]
        if error != case.error or case.says not in message or "bug of pyruntime" in message or seconds > 2 or left:
            wrong[name] = error, message[:200], seconds, left
    assert not wrong


def _native_outcome(case: Damaged) -> str:
    with on_device(FaultyDevice()):
        return asyncio.run(test_damage.outcome(case))


def test_damaged_models__at_structural_boundaries__end_as_natively_and_the_next_good_model_runs(
    python_in_browser: BrowserPython,
) -> None:
    """A sample of tests/bad_models/damage.py; all of it with PYRUNTIME_SOAK."""
    batch = list(damaged())[:: 1 if SOAK > 1 else 23]
    with ThreadPoolExecutor(1) as thread:  # Playwright's event loop runs in this one
        native = thread.submit(lambda: {case.name: _native_outcome(case) for case in batch}).result()
    result = run(
        python_in_browser,
        """
        import time
        outcomes = {}
        gpu = await open_device()
        before = set(gpu.ledger.live)
        for name, data, shape in batch:
            made = SessionOptions()
            made.limits.node_bytes = made.limits.gpu_bytes = 1 << 22
            made.limits.loop_trips = 1000
            began = time.perf_counter()
            try:
                session = await InferenceSession.create(data, made)
                try:
                    await session.run_async(None, {"x": np.ones(shape, np.float32)})
                    outcome = "an answer", ""
                finally:
                    session.release()
            except Exception as error:
                outcome = type(error).__name__, str(error)
            outcomes[name] = [*outcome, time.perf_counter() - began, more_than(gpu, before)]
        session = await InferenceSession.create(good)
        (y,) = await session.run_async(None, {"x": x})
        session.release()
        {"outcomes": outcomes, "y": y}
        """,
        batch=[[case.name, case.data, list(case.shape)] for case in batch],
        good=models.double(),
        x=X,
    )
    np.testing.assert_array_equal(result["y"], Y)
    wrong = {
        name: (native[name], error, message[:200], seconds, left)
        for name, (error, message, seconds, left) in result["outcomes"].items()
        if error != native[name] or "bug of pyruntime" in message or seconds > 2 or left
    }
    assert not wrong
    assert len(set(native.values())) >= 4
